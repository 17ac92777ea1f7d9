import { sparkline, statistic, stepwise } from './charts.js'
import { element, reconcile, setAttribute, setStrange, setText } from './elements.js'
import { addressOf } from './places.js'
import { cell, choice, counted, ownerNode, showCount, showLeft, table, tableBody } from './tickets.js'
import { clockTime, showNoTime, showSince } from './time.js'
/** @import { ElectionJson, KeysJson, RowJson, ViewJson } from '../view-json.ts' */

/** All keys that are held or waited for, one page at a time. The server filters and sorts. */
export function keysView({ place, go }) {
  const statistics = totalsRow()
  const tools = toolbar(place, go)
  const rows = tableBody()
  const empty = element('p', { class: 'empty' })
  const pager = pagerOf({ one: 'key' }, (page) => go({ page }))
  const grid = table({
    caption: 'Keys',
    className: 'keys',
    columns: [
      { title: 'Key', name: 'key' },
      { title: 'Holder', name: 'holder' },
      { title: 'Mode', name: 'mode' },
      { title: 'Held', name: 'held', align: 'end' },
      { title: 'Left', name: 'left', align: 'end' },
      { title: 'Fence', name: 'fence', align: 'end' },
      { title: 'Waiting', name: 'waiting', align: 'end' },
      { title: 'Queue', name: 'trend' },
    ],
    rows,
  })
  return {
    node: element('div', {}, statistics.node, tools, grid, empty, pager.node),
    query: () => ({
      view: 'keys',
      search: place.search ?? '',
      show: place.show ?? 'all',
      sort: place.sort ?? 'key',
      page: place.page ?? 0,
    }),
    /** @param {ViewJson & KeysJson} view */
    update(view) {
      statistics.update(view)
      const fromAt = Math.min(view.totals[0]?.at ?? view.now, view.now - LEAST_PLACES * 1000)
      reconcile(
        rows,
        view.rows.map((row) => ({ ...row, at: view.at, now: view.now, fromAt })),
        ({ key }) => key,
        keyRow,
      )
      grid.hidden = view.rows.length === 0
      setText(empty, view.rows.length > 0 ? '' : view.at === 0 ? 'Nothing was seen yet.' : nothing(place))
      pager.update(view)
    },
  }
}

function nothing({ search = '', show = 'all' }) {
  if (search !== '') return 'No key and no owner is called like that.'
  if (show === 'contended') return 'Nobody waits for a key.'
  return show === 'elections' ? 'Nobody leads.' : 'No key is held.'
}

/** The sums over all keys. Each leads to the list of what it counts. */
export function totalsRow() {
  const keys = statistic('keys', { href: addressOf({ view: 'keys' }) })
  const waiting = statistic('waiting', {
    href: addressOf({ view: 'keys', show: 'contended', sort: 'waiting' }),
  })
  const begun = statistic('hand-overs / min', { href: addressOf({ view: 'contention' }) })
  const expired = statistic('expired', {
    href: addressOf({ view: 'losses', show: 'expired' }),
    tone: 'warn',
  })
  return {
    node: element(
      'section',
      { class: 'totals', 'aria-label': 'Sums over all keys' },
      keys.node,
      waiting.node,
      begun.node,
      expired.node,
    ),
    /** @param {ViewJson} view */
    update({ totals, isCut, history }) {
      const last = totals.at(-1) ?? { keys: 0, waiting: 0 }
      const places = Math.max(LEAST_PLACES, totals.length)
      const show = (of, text, name) =>
        of.update(
          text,
          totals.map((each) => each[name]),
          places,
        )
      show(keys, `${last.keys.toLocaleString('en')}${isCut ? '+' : ''}`, 'keys')
      show(waiting, last.waiting.toLocaleString('en'), 'waiting')
      show(begun, perMinute(totals), 'begun')
      show(expired, history.expired.toLocaleString('en'), 'expired')
      expired.name(history.fromAt === undefined ? 'expired' : `expired since ${clockTime(history.fromAt)}`)
      setAttribute(expired.node, 'data-some', history.expired > 0 ? 'true' : undefined)
    },
  }
}

function perMinute(totals) {
  const last = totals.at(-1)
  const recent = totals.filter(({ at }) => at > last.at - 60_000)
  const [first] = recent
  const spanMs = last === undefined ? 0 : last.at - first.at
  if (spanMs < 3000) return '–'
  const sum = recent.slice(1).reduce((all, { begun }) => all + begun, 0)
  return Math.round((sum / spanMs) * 60_000).toLocaleString('en')
}

/** Asks as the user types. `/` leads to it. */
export function searchField(place, go, title = 'Filter by key or owner') {
  let typing
  const search = element('input', {
    type: 'search',
    id: 'search',
    placeholder: title,
    'aria-label': title,
    autocomplete: 'off',
    spellcheck: 'false',
    oninput: () => {
      clearTimeout(typing)
      typing = setTimeout(() => go({ search: search.value, page: 0 }), 150)
    },
  })
  search.value = place.search ?? ''
  return search
}

function toolbar(place, go) {
  const filter = choice('Show', place.show ?? 'all', FILTERS, (show) => go({ show, page: 0 }))
  const sort = choice('Sort by', place.sort ?? 'key', SORTS, (by) => go({ sort: by, page: 0 }))
  return element(
    'form',
    { class: 'tools', role: 'search', onsubmit: (event) => event.preventDefault() },
    searchField(place, go),
    filter,
    sort,
  )
}

function keyRow({ key }) {
  const link = element('a', { href: addressOf({ view: 'key', key }) })
  const badge = element('span', { class: 'badge' })
  const owner = ownerNode()
  const more = element('span', { class: 'more' })
  const cells = {
    key: cell('key', {}, link, badge),
    holder: cell('holder', {}, owner.node, more),
    mode: cell('mode', { 'data-title': 'mode' }),
    held: cell('held', { 'data-title': 'held', 'data-align': 'end' }),
    left: cell('left', { 'data-title': 'left', 'data-align': 'end' }),
    fence: cell('fence', { 'data-title': 'fence', 'data-align': 'end' }),
    waiting: cell('waiting', { 'data-title': 'waiting', 'data-align': 'end' }),
  }
  const trend = sparkline()
  setStrange(link, key)
  return {
    node: element('tr', { role: 'row' }, ...Object.values(cells), cell('trend', {}, trend.node)),
    /** @param {RowJson & ElectionJson & { at: number, now: number, fromAt: number }} row */
    update(row) {
      const [holder] = row.holders
      setText(badge, row.isElection ? 'election' : '')
      setText(more, row.holding > 1 ? `and ${(row.holding - 1).toLocaleString('en')} more` : '')
      owner.update(holder?.owner ?? { text: row.closedMs > 0 ? 'closed by a lock-delay' : 'nobody' })
      setText(cells.mode, holder?.mode ?? '–')
      setText(cells.fence, holder?.fence ?? '–')
      showCount(cells.waiting, row.waiting)
      setAttribute(cells.waiting, 'data-some', row.waiting > 0 ? 'true' : undefined)
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

/** @param {{ one: string, many?: string }} what */
export function pagerOf({ one, many }, onPage) {
  let shown = { page: 0, pages: 1 }
  const text = element('span')
  const back = element('button', { type: 'button', onclick: () => onPage(shown.page - 1) }, 'Previous')
  const forth = element('button', { type: 'button', onclick: () => onPage(shown.page + 1) }, 'Next')
  return {
    node: element('nav', { class: 'pager', 'aria-label': 'Pages' }, back, text, forth),
    update({ page, pages, matching }) {
      shown = { page, pages }
      back.disabled = page === 0
      forth.disabled = page >= pages - 1
      back.hidden = forth.hidden = pages === 1
      const where = pages === 1 ? '' : `, page ${page + 1} of ${pages}`
      setText(text, `${counted(matching, one, many)}${where}`)
    },
  }
}

const FILTERS = [
  ['all', 'all keys'],
  ['contended', 'contended'],
  ['elections', 'elections'],
]
const SORTS = [
  ['key', 'key'],
  ['waiting', 'most waiting'],
  ['wait', 'longest wait'],
  ['held', 'longest held'],
  ['left', 'least time left'],
  ['holding', 'most holders'],
]
/** A line fills its whole width after so many looks. */
const LEAST_PLACES = 20
