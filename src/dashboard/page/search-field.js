import { element } from './elements.js'

/** Asks as the user types. */
export function searchField(place, go, title = 'Filter by key or owner') {
  let typing
  const search = element('input', {
    type: 'search',
    id: 'search',
    placeholder: title,
    'aria-label': title,
    autocomplete: 'off',
    spellcheck: 'false',
    'aria-keyshortcuts': '/',
    oninput: () => {
      clearTimeout(typing)
      typing = setTimeout(() => go({ search: search.value, page: 0 }), 150)
    },
  })
  search.value = place.search ?? ''
  return search
}
