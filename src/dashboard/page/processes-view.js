import { element, reconcile, setAttribute, setText } from './elements.js'
import { listBar, pagerOf } from './list-bar.js'
import { searchField } from './search-field.js'
import { sorting } from './sorting.js'
import { cell, keyLink, ownerName, ownerNode, table, tableBody } from './tickets.js'
import { age, showSince } from './time.js'
import { totalsRow } from './totals.js'
/** @import { ProcessesJson, ProcessJson, ViewJson } from '../view-json.ts' */

/** Who lives, what each process holds and waits for, and when it was heard of last. */
export function processesView({ place, go }) {
  const statistics = totalsRow()
  const rows = tableBody()
  const empty = element('p', { class: 'empty' })
  const pager = pagerOf({ one: 'process', many: 'processes' }, (page) => go({ page }))
  const order = sorting({ place, go, columns: COLUMNS, first: '' })
  const query = () => ({
    view: 'processes',
    search: place.search ?? '',
    ...order.query(),
    page: place.page ?? 0,
  })
  const tools = element(
    'form',
    { class: 'tools', role: 'search', onsubmit: (event) => event.preventDefault() },
    searchField(place, go, 'Filter by label, host or process'),
    order.node,
  )
  const grid = table({ caption: 'Processes', className: 'processes', columns: COLUMNS, rows, sorting: order })
  const about = element('p', { class: 'about' }, ABOUT)
  const bar = listBar({ pager: pager.node, query })
  return {
    node: element('div', {}, statistics.node, tools, about, bar, grid, empty),
    query,
    order,
    /** @param {ViewJson & ProcessesJson} view */
    update(view) {
      statistics.update(view)
      reconcile(rows, view.rows, ({ owner }) => ownerName(owner), processRow)
      grid.hidden = view.rows.length === 0
      setText(empty, view.rows.length > 0 ? '' : 'No process was seen.')
      pager.update(view)
    },
  }
}

function processRow() {
  const owner = ownerNode()
  const state = cell('mode', { 'data-title': 'state' })
  const heard = cell('held', { 'data-title': 'last heard of', 'data-align': 'end' })
  const holds = keyList('holds')
  const waits = keyList('waits for')
  return {
    node: element(
      'tr',
      { role: 'row' },
      cell('holder', {}, owner.node),
      state,
      heard,
      holds.node,
      waits.node,
    ),
    /** @param {ProcessJson} process */
    update(process) {
      owner.update(process.owner)
      setText(state, STATES[process.state])
      setAttribute(state, 'data-process', process.state)
      showSince(heard, process.heardAt)
      holds.update(process.holds, process.holding)
      waits.update(process.waits, process.waiting)
    },
  }
}

/** The first keys, each with its age, and how many more there are. */
function keyList(title) {
  const list = element('span')
  const more = element('span', { class: 'more' })
  const node = cell('list', { 'data-title': title }, list, more)
  return {
    node,
    /**
     * @param {ProcessJson['holds']} keys
     * @param {number} all
     */
    update(keys, all) {
      reconcile(list, keys, ({ key }) => key, keyItem)
      const rest = all - keys.length
      setText(more, rest > 0 ? `and ${rest.toLocaleString('en')} more` : all === 0 ? '–' : '')
    },
  }
}

function keyItem({ key }) {
  const link = keyLink(key)
  const since = element('small')
  return {
    node: element('span', { class: 'item' }, link, ' ', since),
    update: ({ durationMs }) => setText(since, age(Math.floor(durationMs / 1000) * 1000).replace('.0s', 's')),
  }
}

const COLUMNS = [
  { title: 'Process', name: 'holder', sort: 'process' },
  { title: 'State', name: 'mode', sort: 'state' },
  { title: 'Last heard of', name: 'held', align: 'end', sort: 'heard' },
  { title: 'Holds', name: 'list', sort: 'holds', isLeastFirst: false },
  { title: 'Waits for', name: 'list', sort: 'waits', isLeastFirst: false },
]
const STATES = { present: 'present', late: 'not renewing', idle: 'idle' }
const ABOUT =
  'A process is heard of when it takes a key, renews one, or begins to wait. It is idle if it neither holds nor waits. The dashboard cannot know whether it still runs.'
