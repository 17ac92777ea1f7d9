import { sparkline, stepwise } from './charts.js'
import { element, reconcile, setAttribute, setText } from './elements.js'
import { listBar } from './list-bar.js'
import { sorting } from './sorting.js'
import { cell, keyLink, ownerNode, showCount, table, tableBody } from './tickets.js'
import { showNoTime, showSince } from './time.js'
import { totalsRow } from './totals.js'
/** @import { ContentionJson, ViewJson } from '../view-json.ts' */

/** The keys with the longest queues of the last minute, and the course of these queues. */
export function contentionView({ place, go }) {
  const statistics = totalsRow()
  const rows = tableBody()
  const empty = element('p', { class: 'empty' })
  const order = sorting({ place, go, columns: COLUMNS, first: 'average' })
  const query = () => ({ view: 'contention', ...order.query() })
  const grid = table({
    caption: 'Contended keys',
    className: 'contention',
    columns: COLUMNS,
    rows,
    sorting: order,
  })
  const about = element('p', { class: 'about' }, ABOUT)
  const bar = listBar({ pager: order.node, query })
  return {
    node: element('div', {}, statistics.node, about, bar, grid, empty),
    query,
    order,
    /** @param {ViewJson & ContentionJson} view */
    update(view) {
      statistics.update(view)
      const most = Math.max(0, ...view.rows.map(({ averageWaiting }) => averageWaiting))
      const fromAt = view.totals[0]?.at ?? view.now - 20_000
      reconcile(
        rows,
        view.rows.map((row) => ({ ...row, at: view.at, now: view.now, fromAt, most })),
        ({ key }) => key,
        contentionRow,
      )
      grid.hidden = view.rows.length === 0
      const nothing =
        view.at === 0 ? 'Nothing was seen yet.' : 'Nobody has waited for a key in the last minute.'
      setText(empty, view.rows.length > 0 ? '' : nothing)
    },
  }
}

function contentionRow({ key }) {
  const link = keyLink(key)
  const number = element('span')
  // A bar relative to the longest queue.
  const bar = element('meter', { min: 0, 'aria-hidden': 'true' })
  const average = cell('average', { 'data-title': 'on average' }, number, bar)
  const most = cell('count', { 'data-title': 'at most', 'data-align': 'end', 'data-some': 'true' })
  const waiting = cell('waiting', { 'data-title': 'now', 'data-align': 'end' })
  const longest = cell('waits', { 'data-title': 'longest', 'data-align': 'end' })
  const handOvers = cell('count', {
    ...{ 'data-title': 'hand-overs', 'data-align': 'end', 'data-some': 'true' },
  })
  const owner = ownerNode()
  const trend = sparkline({ width: 220, height: 28 })
  return {
    node: element(
      'tr',
      { role: 'row' },
      cell('key', {}, link),
      average,
      most,
      waiting,
      longest,
      handOvers,
      cell('holder', {}, owner.node),
      cell('trend', {}, trend.node),
    ),
    /** @param {ContentionJson['rows'][number] & { at: number, now: number, fromAt: number, most: number }} row */
    update(row) {
      setText(number, row.averageWaiting.toFixed(1))
      setAttribute(bar, 'max', row.most)
      setAttribute(bar, 'value', row.averageWaiting)
      showCount(most, row.mostWaiting)
      showCount(waiting, row.waiting)
      setAttribute(waiting, 'data-some', row.waiting > 0 ? 'true' : undefined)
      if (row.waiting > 0) showSince(longest, row.at - row.longestWaitMs)
      else showNoTime(longest)
      showCount(handOvers, row.handOvers)
      owner.update(row.holders[0]?.owner ?? { text: 'nobody' })
      const samples = row.trend.map(([at, , count]) => [at, count])
      trend.update(stepwise(samples, row.fromAt, row.now))
    },
  }
}

const COLUMNS = [
  { title: 'Key', name: 'key', sort: 'key' },
  { title: 'Waiting on average', name: 'average', sort: 'average', isLeastFirst: false },
  { title: 'At most', name: 'count', align: 'end', sort: 'most' },
  { title: 'Now', name: 'waiting', align: 'end', sort: 'waiting' },
  { title: 'Longest', name: 'waits', align: 'end', sort: 'longest' },
  { title: 'Hand-overs', name: 'count', align: 'end', sort: 'handOvers' },
  { title: 'Holder', name: 'holder', sort: 'holder' },
  { title: 'Queue', name: 'trend' },
]
const ABOUT =
  'The keys with the longest queues in the last minute. Elections are left out, as their candidates always wait.'
