import { element, reconcile, setAttribute, setStrange, setText } from './elements.js'
import { listBar, pagerOf } from './list-bar.js'
import { searchField } from './search-field.js'
import { sorting } from './sorting.js'
import { cell, choice, keyLink, ownerNode, table, tableBody } from './tickets.js'
import { age, clockTime, fullTime, showTime, ttlText } from './time.js'
import { totalsRow } from './totals.js'
/** @import { HoldJson, LossesJson, SiteJson, ViewJson } from '../view-json.ts' */

/** The holds that expired or were evicted, newest first: which key, whose, when and why. */
export function lossesView({ place, go }) {
  const statistics = totalsRow()
  const rows = tableBody()
  const about = element('p', { class: 'about' })
  const empty = element('p', { class: 'empty' })
  const pager = pagerOf({ one: 'loss', many: 'losses' }, (page) => go({ page }))
  const order = sorting({ place, go, columns: COLUMNS, first: 'lost' })
  const query = () => ({
    view: 'losses',
    search: place.search ?? '',
    show: place.show ?? 'all',
    ...order.query(),
    page: place.page ?? 0,
  })
  const tools = element(
    'form',
    { class: 'tools', role: 'search', onsubmit: (event) => event.preventDefault() },
    searchField(place, go),
    choice('Show', place.show ?? 'all', SHOWN, (show) => go({ show, page: 0 })),
    order.node,
  )
  const grid = table({ caption: 'Losses', className: 'losses', columns: COLUMNS, rows, sorting: order })
  const bar = listBar({ pager: pager.node, query })
  return {
    node: element('div', {}, statistics.node, tools, about, bar, grid, empty),
    query,
    order,
    /** @param {ViewJson & LossesJson} view */
    update(view) {
      statistics.update(view)
      setText(about, reachOf(view))
      reconcile(rows, view.rows, ({ key, id, fence }) => `${key} ${id} ${fence}`, lossRow)
      grid.hidden = view.rows.length === 0
      setText(empty, view.rows.length > 0 ? '' : 'No loss was seen.')
      pager.update(view)
    },
  }
}

/**
 * How far back the list goes, and what it cannot know.
 * @param {{ history: ViewJson['history'], site: SiteJson }} view
 */
export function reachOf({ history: { fromAt }, site: { recordMs } }) {
  if (fromAt === undefined) return ''
  const reach = `The history goes back to ${clockTime(fromAt)}`
  return recordMs === undefined
    ? `${reach}, when somebody began to look. It ends a minute after the last page is closed: with --record it is kept.`
    : `${reach}. It is kept for ${ttlText(recordMs)}, and the dashboard looks all the time.`
}

/**
 * Why a hold ended, in a few words.
 * @param {HoldJson} hold
 */
export function whyEnded({ end, reason, renewedAt, ttlMs, fromAt }) {
  if (reason !== undefined) return `${end}: ${reason}`
  if (end !== 'expired') return end ?? 'holds'
  if (renewedAt === undefined) return 'expired: not renewed in time'
  // Without a renewal, the ticket had its ttl from the beginning.
  const last = renewedAt - fromAt < 1000 ? 'never renewed' : `not renewed after ${clockTime(renewedAt)}`
  return `expired: ${last}, ttl ${ttlText(ttlMs)}`
}

/**
 * Whether the process was heard of after the loss: then it lives, and one hold was lost. Otherwise it may be dead.
 * @param {LossesJson['rows'][number]} loss
 */
function signOfLife({ end, heardAt, untilAt }) {
  if (end !== 'expired' || heardAt === undefined) return ''
  return heardAt > untilAt
    ? `The process lives: heard of at ${clockTime(heardAt)}.`
    : `Nothing heard of the process after ${clockTime(heardAt)}.`
}

function lossRow({ key }) {
  const link = keyLink(key)
  const owner = ownerNode()
  const at = cell('began', { 'data-title': 'lost at' })
  const reason = element('span')
  const sign = element('small', { class: 'sign' })
  const why = cell('end', {}, reason, ' ', sign)
  const lasted = cell('lasted', { 'data-title': 'held for', 'data-align': 'end' })
  const fence = cell('fence', { 'data-title': 'fence', 'data-align': 'end' })
  return {
    node: element(
      'tr',
      { role: 'row' },
      at,
      cell('key', {}, link),
      cell('holder', {}, owner.node),
      why,
      lasted,
      fence,
    ),
    /** @param {LossesJson['rows'][number]} loss */
    update(loss) {
      showTime(at, loss.untilAt)
      owner.update(loss.owner)
      setStrange(reason, whyEnded(loss))
      setText(sign, signOfLife(loss))
      setAttribute(why, 'data-end', loss.end)
      setText(lasted, age(loss.untilAt - loss.fromAt))
      setAttribute(lasted, 'title', `since ${fullTime(loss.fromAt)}`)
      setText(fence, loss.fence)
    },
  }
}

const COLUMNS = [
  { title: 'Lost at', name: 'began', sort: 'lost', isLeastFirst: false },
  { title: 'Key', name: 'key', sort: 'key' },
  { title: 'Holder', name: 'holder', sort: 'holder' },
  { title: 'End', name: 'end', sort: 'end' },
  { title: 'Held for', name: 'lasted', align: 'end', sort: 'held' },
  { title: 'Fence', name: 'fence', align: 'end', sort: 'fence' },
]
const SHOWN = [
  ['all', 'all losses'],
  ['expired', 'expired'],
  ['evicted', 'evicted'],
]
