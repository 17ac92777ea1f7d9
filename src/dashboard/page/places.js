/** The open view as the fragment of the address: it can be linked to, and is not sent to the server. */
export function addressOf({ view, ...rest }) {
  const query = new URLSearchParams()
  for (const [name, value] of Object.entries(rest)) {
    if (value !== undefined && value !== '' && value !== 0 && value !== DEFAULTS[name]) query.set(name, value)
  }
  return `#/${view}${query.size === 0 ? '' : `?${query}`}`
}

export function placeIn(hash) {
  const [, view = '', query = ''] = /^#\/([a-z]*)\??(.*)$/s.exec(hash) ?? []
  const place = Object.fromEntries(new URLSearchParams(query))
  if (view === 'key' && place.key !== undefined) return { view, key: place.key }
  if (view === 'job' && place.id !== undefined) return { view, id: place.id }
  const page = Number.parseInt(place.page ?? '0', 10) || 0
  return { ...place, page, view: VIEWS.has(view) ? view : 'keys' }
}

/** The groups of the tree whose keys are listed, in the order in which they were opened. */
export function openGroupsIn({ open = '[]' }) {
  try {
    const groups = JSON.parse(open)
    return Array.isArray(groups)
      ? fitting([...new Set(groups.filter((each) => typeof each === 'string'))])
      : []
  } catch {
    return []
  }
}

/** Servers refuse long addresses: closes the groups that were opened first, but not those around the last one. */
function fitting(groups) {
  const last = groups.at(-1)
  let open = groups
  while (
    open.length > 1 &&
    new URLSearchParams({ open: JSON.stringify(open) }).toString().length > MOST_OPEN
  ) {
    const closed = open.find((each) => !last.startsWith(each)) ?? open[0]
    open = open.filter((each) => each === last || !each.startsWith(closed))
  }
  return open
}

/** Node.js accepts 16 KB for the address and all headers together. */
const MOST_OPEN = 8000

const VIEWS = new Set(['keys', 'contention', 'leaders', 'losses', 'processes', 'partitions', 'jobs'])
const DEFAULTS = { show: 'all', as: 'list', open: '[]' }
