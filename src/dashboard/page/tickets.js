import { element, setStrange, setText, strange, visible } from './elements.js'
import { addressOf } from './places.js'
import { showUntil } from './time.js'
/** @import { HolderJson, OwnerJson } from '../view-json.ts' */

/**
 * Label, host and process, or the text as it is where another program wrote it.
 * @param {OwnerJson} owner
 */
export function ownerText({ text, host, pid, label }) {
  if (text !== undefined) return text
  return label === undefined ? `${host}:${pid}` : `${label} ${host}:${pid}`
}

/**
 * The same as one line, with invisible characters escaped.
 * @param {OwnerJson} owner
 */
export function ownerName(owner) {
  return visible(ownerText(owner))
}

/** Leads to the page of a key. The tooltip of a long name has all of it, as the link shows its beginning. */
export function keyLink(key) {
  const title = key.length > LONG_KEY ? visible(key) : undefined
  return strange('a', { href: addressOf({ view: 'key', key }), title }, key)
}

/** Shows the label first, if there is one, as people have chosen it. */
export function ownerNode() {
  const name = element('span', { class: 'name' })
  const place = element('span', { class: 'place' })
  const node = element('span', { class: 'owner' }, name, place)
  return {
    node,
    /** @param {OwnerJson} owner */
    update(owner) {
      const where = owner.text ?? `${owner.host}:${owner.pid}`
      setStrange(name, owner.label ?? where)
      setStrange(place, owner.label === undefined ? '' : where)
    },
  }
}

/**
 * The time left, its ttl, and for how long a late holder has not renewed.
 * @param {HTMLElement} node
 * @param {HolderJson} holder
 * @param {number} at
 */
export function showLeft(node, { state, remainingMs, ttlMs, lateMs }, at) {
  const suffix = { held: '', offered: ' to accept', leaving: ' min-hold' }[state]
  showUntil(node, at + remainingMs, {
    suffix,
    ttlMs: state === 'held' ? ttlMs : undefined,
    lateSinceAt: lateMs === undefined ? undefined : at - lateMs,
  })
}

/**
 * A table with explicit roles, so that screen readers see a table also where CSS shows cards. `sorting` makes titles that sort.
 * @param {{
 *   caption: string,
 *   columns: readonly { title: string | Node, name: string, align?: string, sort?: string, isUnseen?: boolean }[],
 *   rows: HTMLElement,
 *   className?: string,
 *   sorting?: { titleOf: (column: object) => Node },
 * }} content
 */
export function table({ caption, columns, rows, className = '', sorting }) {
  const titles = columns.map((column) => {
    const { title, name, align, sort, isUnseen } = column
    if (sort !== undefined && sorting !== undefined) return sorting.titleOf(column)
    const shown = isUnseen ? element('span', { class: 'aside' }, title) : title
    return element('th', { scope: 'col', role: 'columnheader', class: name, 'data-align': align }, shown)
  })
  return element(
    'table',
    { role: 'table', class: className },
    element('caption', { class: 'aside' }, caption),
    element('thead', { role: 'rowgroup' }, element('tr', { role: 'row' }, ...titles)),
    rows,
  )
}

/** `key`: the key of the keyboard that leads to it. */
export function choice(title, chosen, options, onChoose, key) {
  const select = element(
    'select',
    { 'aria-label': title, 'aria-keyshortcuts': key, onchange: () => onChoose(select.value) },
    ...options.map(([value, text]) => element('option', { value, selected: value === chosen }, text)),
  )
  return element('label', {}, element('span', {}, title), select)
}

export function tableBody() {
  return element('tbody', { role: 'rowgroup' })
}

export function cell(name, properties = {}, ...children) {
  return element('td', { role: 'cell', class: name, ...properties }, ...children)
}

export function counted(count, one, many = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`
}

export function showCount(node, count) {
  setText(node, count.toLocaleString('en'))
}

const LONG_KEY = 60
