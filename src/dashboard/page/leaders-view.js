import { element, reconcile, setStrange, setText } from './elements.js'
import { pagerOf } from './keys-view.js'
import { addressOf } from './places.js'
import { cell, ownerNode, showCount, showLeft, table, tableBody } from './tickets.js'
import { showNoTime, showSince } from './time.js'
/** @import { ElectionJson, KeysJson, RowJson, ViewJson } from '../view-json.ts' */

/** Elections: each leader, for how long it leads, the value that it published, and how many candidates and watchers. */
export function leadersView({ place, go }) {
  const rows = tableBody()
  const empty = element('p', { class: 'empty' })
  const pager = pagerOf({ one: 'election' }, (page) => go({ page }))
  const grid = table({
    caption: 'Leaders',
    className: 'leaders',
    columns: [
      { title: 'Election', name: 'key' },
      { title: 'Leader', name: 'holder' },
      { title: 'Says', name: 'value' },
      { title: 'Leads for', name: 'held', align: 'end' },
      { title: 'Left', name: 'left', align: 'end' },
      { title: 'Term (fence)', name: 'fence', align: 'end' },
      { title: 'Candidates', name: 'waiting', align: 'end' },
      { title: 'Watchers', name: 'watchers', align: 'end' },
    ],
    rows,
  })
  return {
    node: element('div', {}, grid, empty, pager.node),
    query: () => ({ view: 'keys', show: 'elections', page: place.page ?? 0 }),
    /** @param {ViewJson & KeysJson} view */
    update(view) {
      reconcile(
        rows,
        view.rows.map((row) => ({ ...row, at: view.at })),
        ({ key }) => key,
        leaderRow,
      )
      grid.hidden = view.rows.length === 0
      setText(empty, view.rows.length > 0 ? '' : 'Nobody leads. Elections are shown while somebody does.')
      pager.update(view)
    },
  }
}

function leaderRow({ key }) {
  const link = element('a', { href: addressOf({ view: 'key', key }) })
  const owner = ownerNode()
  const value = cell('value')
  const held = cell('held', { 'data-title': 'leads for', 'data-align': 'end' })
  const left = cell('left', { 'data-title': 'left', 'data-align': 'end' })
  const fence = cell('fence', { 'data-title': 'fence', 'data-align': 'end' })
  const waiting = cell('waiting', { 'data-title': 'candidates', 'data-align': 'end' })
  const watchers = cell('watchers', { 'data-title': 'watchers', 'data-align': 'end' })
  setStrange(link, key)
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
    watchers,
  )
  return {
    node,
    /** @param {RowJson & ElectionJson & { at: number }} row */
    update(row) {
      const holder = row.holders.find(({ state }) => state === 'held') ?? row.holders[0]
      owner.update(holder?.owner ?? { text: 'nobody' })
      setStrange(value, holder?.value ?? '')
      setText(fence, holder?.fence ?? '–')
      showCount(waiting, row.waiting)
      showCount(watchers, row.watchers)
      if (holder === undefined) for (const each of [held, left]) showNoTime(each)
      else {
        showSince(held, row.at - holder.heldMs)
        showLeft(left, holder, row.at)
      }
    },
  }
}
