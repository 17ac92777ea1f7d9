import type { ListOrder } from './order.ts'
import type { ViewRequest } from './view.ts'

/** Reads which view of the locks a query asks for. What it cannot read is left at its default. */
export function viewRequestOf(query: URLSearchParams): ViewRequest {
  const key = query.get('key')
  if (key !== null) return { view: 'key', key }
  const order: ListOrder = { sort: query.get('sort') ?? '', isReversed: query.get('reversed') === 'true' }
  const show = query.get('show')
  const search = query.get('search') ?? ''
  const page = Math.max(0, Number.parseInt(query.get('page') ?? '0', 10) || 0)
  switch (query.get('view')) {
    case 'contention':
      return { view: 'contention', order }
    case 'losses': {
      const shown = show === 'expired' || show === 'evicted' ? show : 'all'
      return { view: 'losses', search, show: shown, order, page }
    }
    case 'partitions':
      return { view: 'partitions', search, page }
    case 'processes':
      return { view: 'processes', search, order, page }
    default: {
      const shown = show === 'contended' || show === 'elections' ? show : 'all'
      const open = query.get('as') === 'tree' ? openGroups(query.get('open')) : undefined
      return { view: 'keys', search, show: shown, order, page, open }
    }
  }
}

/** A JSON list of texts. */
function openGroups(text: string | null): readonly string[] {
  try {
    const groups: unknown = JSON.parse(text ?? '[]')
    return Array.isArray(groups) ? groups.filter((each) => typeof each === 'string') : []
  } catch {
    return []
  }
}
