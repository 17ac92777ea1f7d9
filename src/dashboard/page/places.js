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

/** The groups of the tree whose keys are listed. */
export function openGroupsIn({ open = '[]' }) {
  try {
    const groups = JSON.parse(open)
    return Array.isArray(groups) ? groups.filter((each) => typeof each === 'string') : []
  } catch {
    return []
  }
}

const VIEWS = new Set(['keys', 'contention', 'leaders', 'losses', 'processes', 'partitions', 'jobs'])
const DEFAULTS = { show: 'all', as: 'list', open: '[]' }
