import { element, setAttribute, setText } from './elements.js'
import { addressOf } from './places.js'
import { counted } from './tickets.js'

/**
 * What stands above a list, and stays there while the list is scrolled: its pages, what can be done, and its export.
 * @param {{ pager: Node, actions?: readonly Node[], query: () => Record<string, string> }} content
 */
export function listBar({ pager, actions = [], query }) {
  const file = (format) =>
    element(
      'a',
      {
        class: 'file',
        download: '',
        'aria-keyshortcuts': format === 'csv' ? 'E' : undefined,
        // The filter may have changed since it was drawn.
        onclick: ({ currentTarget }) =>
          currentTarget.setAttribute('href', `api/export?${new URLSearchParams({ ...query(), format })}`),
        href: `api/export?format=${format}`,
        'aria-label': `Export all as ${format.toUpperCase()}`,
      },
      format.toUpperCase(),
    )
  return element(
    'div',
    { class: 'list-bar' },
    pager,
    ...actions,
    element('span', { class: 'files' }, 'Export ', file('csv'), ' ', file('json')),
  )
}

/**
 * The number of the page stands between its buttons, which do not move.
 * @param {{ one: string, many?: string }} what
 */
export function pagerOf({ one, many }, onPage) {
  let shown = { page: 0, pages: 1 }
  const number = element('span', { class: 'page' })
  const count = element('span', { class: 'matching' })
  const back = pageButton('Previous', '[', () => onPage(shown.page - 1))
  const forth = pageButton('Next', ']', () => onPage(shown.page + 1))
  return {
    node: element('nav', { class: 'pager', 'aria-label': 'Pages' }, back, number, forth, count),
    update({ page, pages, matching }) {
      shown = { page, pages }
      back.disabled = page === 0
      forth.disabled = page >= pages - 1
      setText(number, `page ${page + 1} of ${pages}`)
      setText(count, counted(matching, one, many))
    },
  }
}

export function pageButton(title, key, onclick) {
  const button = element('button', { type: 'button', onclick, 'aria-keyshortcuts': key }, title)
  setAttribute(button, 'title', `${title} page: ${key}`)
  return button
}

/** Leads from a page back to its list, with the filter that the list had. */
export function crumb(list, name) {
  const href = addressOf(list)
  const isWhole = href === addressOf({ view: list.view })
  return element(
    'p',
    { class: 'crumb' },
    element('a', { href }, isWhole ? `← ${name}` : '← Back to the list'),
  )
}
