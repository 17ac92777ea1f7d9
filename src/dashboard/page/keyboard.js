import { element } from './elements.js'

/**
 * The keys of the page, as in `holdfast top` where both have them. A control that has a key of its own says so itself, by
 * `aria-keyshortcuts`.
 * @param {{ view: () => { order?: { move: (step: number) => void, reverse: () => void } } }} options
 */
export function listenToKeys({ view }) {
  addEventListener('keydown', (event) => {
    const { target, key } = event
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const isTyping =
      target instanceof Element && target.closest('input:not([type="checkbox"]), select, textarea, dialog')
    if (isTyping) {
      if (key !== 'Escape' || isTyping.id !== 'search') return
      // The browser would empty the field, and the filter would stay.
      event.preventDefault()
      moveTo(rowLinks()[0])
      return
    }
    const act = ACTIONS[key]
    const isDone = act === undefined ? press(key) : act(view())
    if (isDone) event.preventDefault()
  })
}

/** Each returns whether there was something to do. A button that has the focus keeps its own Space. */
const ACTIONS = {
  '?': showHelp,
  h: showHelp,
  j: () => step(1),
  k: () => step(-1),
  ArrowDown: () => step(1),
  ArrowUp: () => step(-1),
  g: () => moveTo(rowLinks()[0]),
  G: () => moveTo(rowLinks().at(-1)),
  ' ': () => !document.activeElement?.matches('button') && ofRow('.select input'),
  c: () => ofRow('button.copy') || ofPage('main button.copy'),
  '<': ({ order }) => ordered(order, () => order.move(-1)),
  '>': ({ order }) => ordered(order, () => order.move(1)),
  r: ({ order }) => ordered(order, () => order.reverse()),
  Escape: () => ofPage('.crumb a'),
  ...Object.fromEntries(
    Array.from({ length: 9 }, (_, at) => [
      String(at + 1),
      () => press(visible([...document.querySelectorAll('nav[aria-label="Views"] a')])[at]),
    ]),
  ),
}

/** Presses a control, or the one that has this key. A field gets the focus. */
function press(what) {
  const control =
    typeof what === 'string'
      ? visible([...document.querySelectorAll('[aria-keyshortcuts]')]).find(
          (each) => each.getAttribute('aria-keyshortcuts') === what && !each.disabled,
        )
      : what
  if (control === undefined) return false
  if (control.matches('input:not([type="checkbox"]), select')) control.focus()
  else control.click()
  return true
}

/** The first control of each row: it opens the row. */
function rowLinks() {
  return visible(
    [...document.querySelectorAll('main tbody tr')].flatMap(
      (row) => row.querySelector('a, button.group') ?? [],
    ),
  )
}

function step(by) {
  const links = rowLinks()
  const row = document.activeElement?.closest('tbody tr')
  const at = links.findIndex((link) => link.closest('tr') === row)
  return moveTo(at === -1 ? links[0] : links[Math.max(0, Math.min(at + by, links.length - 1))])
}

function moveTo(link) {
  link?.focus()
  link?.closest('tr').scrollIntoView({ block: 'nearest' })
  return link !== undefined
}

/** Presses what the marked row has of this kind. */
function ofRow(selector) {
  const row = document.activeElement?.closest('tbody tr')
  return press(visible([...(row?.querySelectorAll(selector) ?? [])])[0])
}

function ofPage(selector) {
  return press(visible([...document.querySelectorAll(selector)])[0])
}

function ordered(order, act) {
  if (order !== undefined) act()
  return order !== undefined
}

/** @param {any[]} nodes */
function visible(nodes) {
  return nodes.filter((node) => node.getClientRects().length > 0)
}

/** Lists the keys. */
export function showHelp() {
  const close = element('button', { type: 'submit' }, 'Close')
  const keys = KEYS.map(([names, text]) => {
    const shown = names.split(' ').flatMap((name) => [element('kbd', {}, name), ' '])
    return element('div', {}, element('dt', {}, ...shown), element('dd', {}, text))
  })
  const dialog = element(
    'dialog',
    { class: 'help', 'aria-labelledby': 'help-title', onclose: () => dialog.remove() },
    element(
      'form',
      { method: 'dialog' },
      element('h2', { id: 'help-title' }, 'Keys'),
      element('dl', {}, ...keys),
      element('div', { class: 'buttons' }, close),
    ),
  )
  document.body.append(dialog)
  dialog.showModal()
  close.focus()
  return true
}

/** @type {readonly [keys: string, text: string][]} */
const KEYS = [
  ['1 2 3 …', 'the views, from left to right'],
  ['/', 'filter; Esc leads to the rows'],
  ['j k ↓ ↑', 'mark the next row, or the one before'],
  ['← →', 'the key beside, in a row of a partition'],
  ['g G', 'mark the first row, or the last'],
  ['Enter', 'open the marked row'],
  ['Esc', 'back to the list'],
  ['[ ]', 'the page before, and the next'],
  ['< >', 'sort by the column to the left or right'],
  ['r', 'the other way round'],
  ['t', 'list or tree'],
  ['Space', 'select the marked row'],
  ['x', 'evict: the selected keys, or on the page of a key everybody'],
  ['c', 'copy the marked key, or that of the page'],
  ['E', 'export the whole list as CSV'],
  ['?', 'this help'],
]
