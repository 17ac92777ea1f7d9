import { element, reconcile, setStrange, setText } from './elements.js'
import { listBar, pagerOf } from './list-bar.js'
import { sorting } from './sorting.js'
import { cell, keyLink, ownerNode, showCount, showLeft, table, tableBody } from './tickets.js'
import { showNoTime, showSince } from './time.js'
/** @import { KeyRowJson, KeysJson, ViewJson } from '../view-json.ts' */

/** Elections: each leader, for how long it leads, the value that it published, and how many candidates and observers. */
export function leadersView({ place, go }) {
  const rows = tableBody()
  const empty = element('p', { class: 'empty' })
  const pager = pagerOf({ one: 'election' }, (page) => go({ page }))
  const order = sorting({ place, go, columns: COLUMNS, first: 'key' })
  const query = () => ({ view: 'keys', show: 'elections', ...order.query(), page: place.page ?? 0 })
  const grid = table({ caption: 'Leaders', className: 'leaders', columns: COLUMNS, rows, sorting: order })
  const bar = listBar({ pager: pager.node, actions: [order.node], query })
  return {
    node: element('div', {}, bar, grid, empty),
    query,
    order,
    /** @param {ViewJson & KeysJson} view */
    update(view) {
      reconcile(
        rows,
        view.rows.map((row) => ({ ...row, at: view.at })),
        ({ key }) => key,
        leaderRow,
      )
      grid.hidden = view.rows.length === 0
      setText(
        empty,
        view.rows.length > 0
          ? ''
          : view.at === 0
            ? 'Nothing was seen yet.'
            : 'Nobody leads. Elections are shown while somebody leads or observes.',
      )
      pager.update(view)
    },
  }
}

function leaderRow({ key }) {
  const link = keyLink(key)
  const owner = ownerNode()
  const value = cell('value')
  const held = cell('held', { 'data-title': 'held', 'data-align': 'end' })
  const left = cell('left', { 'data-title': 'left', 'data-align': 'end' })
  const fence = cell('fence', { 'data-title': 'fence', 'data-align': 'end' })
  const waiting = cell('waiting', { 'data-title': 'candidates', 'data-align': 'end' })
  const observers = cell('observers', { 'data-title': 'observers', 'data-align': 'end' })
  const node = element(
    'tr',
    { role: 'row' },
    cell('key', {}, link),
    cell('holder', {}, owner.node),
    value,
    held,
    left,
    fence,
    waiting,
    observers,
  )
  return {
    node,
    /** @param {KeyRowJson & { at: number }} row */
    update(row) {
      const holder = row.holders.find(({ state }) => state === 'held') ?? row.holders[0]
      owner.update(holder?.owner ?? { text: 'nobody' })
      setStrange(value, holder?.value ?? '')
      setText(fence, holder?.fence ?? '–')
      showCount(waiting, row.waiting)
      showCount(observers, row.observers)
      if (holder === undefined) for (const each of [held, left]) showNoTime(each)
      else {
        showSince(held, row.at - holder.heldMs)
        showLeft(left, holder, row.at)
      }
    },
  }
}

const COLUMNS = [
  { title: 'Election', name: 'key', sort: 'key' },
  { title: 'Leader', name: 'holder', sort: 'holder' },
  { title: 'Says', name: 'value' },
  { title: 'Held', name: 'held', align: 'end', sort: 'held' },
  { title: 'Left', name: 'left', align: 'end', sort: 'left', isLeastFirst: true },
  { title: 'Fence', name: 'fence', align: 'end', sort: 'fence' },
  { title: 'Candidates', name: 'waiting', align: 'end', sort: 'waiting' },
  { title: 'Observers', name: 'observers', align: 'end', sort: 'observers' },
]
