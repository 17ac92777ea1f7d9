import { sparkline, stepwise } from './charts.js'
import { copyButton } from './copy.js'
import { element, reconcile, setAttribute, setStrange, setText } from './elements.js'
import { askToEvictHolders } from './evict-dialog.js'
import { listBar, pagerOf } from './list-bar.js'
import { openGroupsIn } from './places.js'
import { searchField } from './search-field.js'
import { selection } from './selection.js'
import { sorting } from './sorting.js'
import {
  cell,
  choice,
  counted,
  keyLink,
  ownerNode,
  showCount,
  showLeft,
  table,
  tableBody,
} from './tickets.js'
import { showNoTime, showSince } from './time.js'
import { LEAST_PLACES, totalsRow } from './totals.js'
/** @import { GroupRowJson, KeyRowJson, KeysJson, ViewJson } from '../view-json.ts' */

/** All keys that are held or waited for, one page at a time, as a list or a tree. The server filters, sorts and groups. */
export function keysView({ place, go, say }) {
  const statistics = totalsRow()
  const order = sorting({ place, go, columns: COLUMNS, first: 'key' })
  /** The fence of each key when it was ticked: whoever takes the key later is not evicted. */
  const fences = new Map()
  const chosen = selection({ one: 'key', onChange: () => showScope() })
  const scope = element('span', { class: 'scope', role: 'status' })
  const evict = element(
    'button',
    {
      type: 'button',
      class: 'danger',
      'aria-keyshortcuts': 'x',
      onclick: () => askToEvictHolders({ asked: askedNow(), say, onDone: () => chosen.clear() }),
    },
    'Evict…',
  )
  const changes = element('div', { class: 'changes', hidden: true }, scope, evict)
  const pager = pagerOf({ one: 'key' }, (page) => go({ page }))
  const query = () => ({
    view: 'keys',
    search: place.search ?? '',
    show: place.show ?? 'all',
    as: place.as ?? 'list',
    open: JSON.stringify(openGroupsIn(place)),
    ...order.query(),
    page: place.page ?? 0,
  })
  const rows = tableBody()
  const empty = element('p', { class: 'empty' })
  const columns = [{ title: chosen.all, name: 'select' }, ...COLUMNS]
  const grid = table({ caption: 'Keys', className: 'keys', columns, rows, sorting: order })
  const askedNow = () => chosen.keys.map((key) => ({ key, fence: fences.get(key) }))
  const filter = (changes) => {
    // Ticked keys may be hidden now. Those in a closed group stay ticked, and are counted above the list.
    chosen.clear()
    go({ ...changes, page: 0 })
  }
  const turn = (group) => {
    const open = openGroupsIn(place)
    const others = open.filter((each) => !each.startsWith(group))
    const next = JSON.stringify(open.includes(group) ? others : [...open, group])
    go({ open: JSON.stringify(openGroupsIn({ open: next })) })
  }

  function showScope() {
    const { length } = chosen.keys
    setText(scope, length === 0 ? 'Select keys to evict their holders' : `${counted(length, 'key')} selected`)
    evict.disabled = length === 0
  }

  return {
    node: element(
      'div',
      {},
      statistics.node,
      toolbar(place, { filter, sort: order.node }),
      listBar({ pager: pager.node, actions: [changes], query }),
      grid,
      empty,
    ),
    query,
    order,
    /** @param {ViewJson & KeysJson} view */
    update(view) {
      statistics.update(view)
      const fromAt = Math.min(view.totals[0]?.at ?? view.now, view.now - LEAST_PLACES * 1000)
      const keys = view.rows.filter((row) => row.tag === 'key')
      const ticked = new Set(chosen.keys)
      for (const key of fences.keys()) if (!ticked.has(key)) fences.delete(key)
      for (const { key, lastFence } of keys) if (!ticked.has(key)) fences.set(key, lastFence)
      reconcile(
        rows,
        view.rows.map((row) => ({
          ...row,
          at: view.at,
          now: view.now,
          fromAt,
          canEvict: view.site.allowEvict,
        })),
        ({ tag, key }) => `${tag} ${key}`,
        (row) => (row.tag === 'group' ? groupRow(row, turn) : keyRow(row, { chosen, say })),
      )
      changes.hidden = !view.site.allowEvict
      showScope()
      chosen.show(
        grid,
        keys.map(({ key }) => key),
        view.site.allowEvict,
      )
      grid.hidden = view.rows.length === 0
      setText(
        empty,
        view.rows.length > 0 ? '' : view.at === 0 ? 'Nothing was seen yet.' : nothing(place, view),
      )
      pager.update(view)
    },
  }
}

function nothing({ search = '', show = 'all' }, { isCut, site }) {
  if (isCut || (search !== '' && site.prefix !== '')) return 'No key of those that were read is like that.'
  if (search !== '') return 'No key and no owner is called like that.'
  if (show === 'contended') return 'Nobody waits for a key.'
  return show === 'elections' ? 'Nobody leads.' : 'No key is held.'
}

function toolbar(place, { filter, sort }) {
  return element(
    'form',
    { class: 'tools', role: 'search', onsubmit: (event) => event.preventDefault() },
    searchField(place, filter),
    choice('Show', place.show ?? 'all', FILTERS, (show) => filter({ show })),
    choice('As', place.as ?? 'list', SHAPES, (as) => filter({ as }), 't'),
    sort,
  )
}

/** @param {KeyRowJson} row */
function keyRow({ key }, { chosen, say }) {
  const link = keyLink(key)
  const badge = element('span', { class: 'badge' })
  const owner = ownerNode()
  const more = element('span', { class: 'more' })
  const cells = {
    key: cell(
      'key',
      {},
      link,
      badge,
      copyButton('key', () => key, say),
    ),
    holder: cell('holder', {}, owner.node, more),
    mode: cell('mode', { 'data-title': 'mode' }),
    held: cell('held', { 'data-title': 'held', 'data-align': 'end' }),
    left: cell('left', { 'data-title': 'left', 'data-align': 'end' }),
    fence: cell('fence', { 'data-title': 'fence', 'data-align': 'end' }),
    waiting: cell('waiting', { 'data-title': 'waiting', 'data-align': 'end' }),
    longest: cell('waits', { 'data-title': 'longest', 'data-align': 'end' }),
  }
  const trend = sparkline()
  return {
    node: element(
      'tr',
      { role: 'row' },
      chosen.cellOf(key, key),
      ...Object.values(cells),
      cell('trend', {}, trend.node),
    ),
    /** @param {KeyRowJson & { at: number, now: number, fromAt: number }} row */
    update(row) {
      const [holder] = row.holders
      setAttribute(cells.key, 'data-depth', row.depth || undefined)
      setText(badge, row.isElection ? 'election' : '')
      setText(more, row.holding > 1 ? `and ${(row.holding - 1).toLocaleString('en')} more` : '')
      owner.update(holder?.owner ?? { text: row.closedMs > 0 ? 'closed by a lock-delay' : 'nobody' })
      setText(cells.mode, holder?.mode ?? '–')
      setText(cells.fence, holder?.fence ?? '–')
      showWaiting(cells, row)
      if (holder === undefined) for (const name of ['held', 'left']) showNoTime(cells[name])
      else {
        showSince(cells.held, row.at - holder.heldMs)
        showLeft(cells.left, holder, row.at)
      }
      const waiting = row.trend.map(([at, , count]) => [at, count])
      trend.update(stepwise(waiting, row.fromAt, row.now))
    },
  }
}

/** Keys that begin alike. A click lists them below. */
function groupRow({ key }, turn) {
  const name = element('bdi')
  const button = element('button', { type: 'button', class: 'group', onclick: () => turn(key) }, name)
  const about = element('span')
  const late = element('small', { class: 'late' })
  const cells = {
    waiting: cell('waiting', { 'data-title': 'waiting', 'data-align': 'end' }),
    longest: cell('waits', { 'data-title': 'longest', 'data-align': 'end' }),
  }
  setStrange(name, key)
  const keys = cell('key', {}, button)
  return {
    node: element(
      'tr',
      { role: 'row', class: 'group' },
      cell('select'),
      keys,
      cell('holder', { colspan: 5 }, about, ' ', late),
      cells.waiting,
      cells.longest,
      cell('trend'),
    ),
    /** @param {GroupRowJson & { at: number }} row */
    update(row) {
      setAttribute(keys, 'data-depth', row.depth || undefined)
      setAttribute(button, 'aria-expanded', row.isOpen)
      setText(about, counted(row.keys, 'key'))
      setText(late, row.late === 0 ? '' : `${row.late.toLocaleString('en')} not renewing`)
      showWaiting(cells, row)
    },
  }
}

function showWaiting({ waiting, longest }, row) {
  showCount(waiting, row.waiting)
  setAttribute(waiting, 'data-some', row.waiting > 0 ? 'true' : undefined)
  if (row.waiting > 0) showSince(longest, row.at - row.longestWaitMs)
  else showNoTime(longest)
}

const FILTERS = [
  ['all', 'all keys'],
  ['contended', 'contended'],
  ['elections', 'elections'],
]
const SHAPES = [
  ['list', 'list'],
  ['tree', 'tree'],
]
const COLUMNS = [
  { title: 'Key', name: 'key', sort: 'key' },
  { title: 'Holder', name: 'holder', sort: 'holder' },
  { title: 'Mode', name: 'mode', sort: 'mode' },
  { title: 'Held', name: 'held', align: 'end', sort: 'held' },
  { title: 'Left', name: 'left', align: 'end', sort: 'left', isLeastFirst: true },
  { title: 'Fence', name: 'fence', align: 'end', sort: 'fence' },
  { title: 'Waiting', name: 'waiting', align: 'end', sort: 'waiting' },
  { title: 'Longest', name: 'waits', align: 'end', sort: 'longest' },
  { title: 'Queue', name: 'trend' },
]
