import { isSortName, type ViewRequest } from './view.ts'

/** Reads which view of the locks a query asks for. What it cannot read is left at its default. */
export function viewRequestOf(query: URLSearchParams): ViewRequest {
  const key = query.get('key')
  if (key !== null) return { view: 'key', key }
  if (query.get('view') === 'contention') return { view: 'contention' }
  const sort = query.get('sort') ?? 'key'
  const show = query.get('show')
  const search = query.get('search') ?? ''
  const page = Math.max(0, Number.parseInt(query.get('page') ?? '0', 10) || 0)
  if (query.get('view') === 'losses') {
    return { view: 'losses', search, show: show === 'expired' || show === 'evicted' ? show : 'all', page }
  }
  if (query.get('view') === 'processes') return { view: 'processes', search, page }
  return {
    view: 'keys',
    search,
    show: show === 'contended' || show === 'elections' ? show : 'all',
    sort: isSortName(sort) ? sort : 'key',
    page,
  }
}
