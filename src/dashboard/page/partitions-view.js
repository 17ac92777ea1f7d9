import { element, reconcile, setAttribute, setStrange, setText, visible } from './elements.js'
import { listBar, pagerOf } from './list-bar.js'
import { addressOf } from './places.js'
import { searchField } from './search-field.js'
import { cell, counted, ownerName, ownerNode, showCount, table, tableBody } from './tickets.js'
import { fullTime } from './time.js'
/** @import { PartitionJson, PartitionKeyJson, PartitionProcessJson, PartitionsJson, ViewJson } from '../view-json.ts' */

/** Which process holds which keys of each partition: a row for each process, and a square for each of its keys. */
export function partitionsView({ place, go }) {
  const partitions = element('div')
  const empty = element('p', { class: 'empty' })
  const pager = pagerOf({ one: 'partition' }, (page) => go({ page }))
  const query = () => ({ view: 'partitions', search: place.search ?? '', page: place.page ?? 0 })
  const tools = element(
    'form',
    { class: 'tools', role: 'search', onsubmit: (event) => event.preventDefault() },
    searchField(place, go, 'Filter by the name of the partition'),
  )
  const about = element('p', { class: 'about' }, ABOUT)
  return {
    node: element('div', {}, tools, about, listBar({ pager: pager.node, query }), partitions, empty),
    query,
    /** @param {ViewJson & PartitionsJson} view */
    update(view) {
      reconcile(
        partitions,
        view.rows.map((row) => ({ ...row, isCut: view.isCut })),
        ({ id }) => id,
        partitionSection,
      )
      setText(
        empty,
        view.rows.length > 0
          ? ''
          : view.at === 0
            ? 'Nothing was seen yet.'
            : 'No process is a member of a partition.',
      )
      pager.update(view)
    },
  }
}

/** @param {PartitionJson} partition */
function partitionSection({ name }) {
  const rows = tableBody()
  const title = element('h2')
  const sums = element('p', { class: 'sums' })
  const moves = element('p', { class: 'moves' })
  setStrange(title, name)
  const grid = table({
    caption: `Processes and keys of ${visible(name)}`,
    className: 'partition',
    columns: COLUMNS,
    rows,
  })
  return {
    node: element('section', {}, title, sums, grid, moves),
    /** @param {PartitionJson & { isCut: boolean }} partition */
    update(partition) {
      const { keys, processes, free } = partition
      setText(sums, sumsOf(partition))
      const size = keys <= MOST_NAMED ? 'named' : 'small'
      const lanes = processes.map((process, at) => ({
        ...{ process, at, name, processes, size },
        id: ownerName(process.owner),
      }))
      const unheld = { owner: { text: 'nobody' }, weight: undefined, due: 0, overdue: 0, late: 0, keys: free }
      const last = { process: unheld, at: -1, name, processes, size, id: '' }
      reconcile(rows, free.length > 0 ? [...lanes, last] : lanes, ({ id }) => id, lane)
      setText(moves, movesOf(partition))
    },
  }
}

/** @param {PartitionJson & { isCut: boolean }} partition */
function sumsOf({ keys, members, held, moving, processes, isCut }) {
  const taking = processes.filter((process) => process.weight !== undefined || process.keys.length > 0)
  const shares = taking.map((process) => process.keys.length).sort((a, b) => b - a)
  const shown = shares.length <= 12 ? shares.join(' / ') : `${shares[0]} to ${shares.at(-1)} each`
  const unheld = Math.max(0, keys - held)
  const free =
    isCut && unheld > 0 ? 'not all of them were read' : `${unheld.toLocaleString('en')} held by nobody`
  return `${counted(keys, 'key')} over ${counted(members, 'process', 'processes')}: ${shown}; ${free}, ${moving.toLocaleString('en')} moving`
}

/** The same as the marks on the squares, as text. @param {PartitionJson} partition */
function movesOf({ processes, moving }) {
  const moves = processes.flatMap(({ keys }, from) =>
    keys
      .filter(([, , , to = from]) => to !== from)
      .map(([key, , , to]) => `${visible(key)} to ${nameAt(processes, to)}`),
  )
  if (moves.length === 0) return ''
  const rest = moving > MOVES ? `, and ${(moving - MOVES).toLocaleString('en')} more` : ''
  return `Moving: ${moves.slice(0, MOVES).join(', ')}${rest}`
}

function nameAt(processes, at) {
  return ownerName(processes[at].owner)
}

function lane({ name }) {
  const owner = ownerNode()
  const note = element('small', { class: 'late' })
  const weight = cell('count', { 'data-title': 'weight', 'data-align': 'end', 'data-some': 'true' })
  const held = cell('count', { 'data-title': 'holds', 'data-align': 'end', 'data-some': 'true' })
  const due = cell('count', { 'data-title': 'share', 'data-align': 'end', 'data-some': 'true' })
  const squares = element('span', { class: 'squares', onkeydown: walk })
  return {
    node: element(
      'tr',
      { role: 'row' },
      cell('holder', {}, owner.node, note),
      weight,
      held,
      due,
      cell('squares', {}, squares),
    ),
    /** @param {{ process: PartitionProcessJson, at: number, processes: PartitionJson['processes'], size: string }} lane */
    update({ process, at, processes, size }) {
      owner.update(process.owner)
      setText(note, notesOf(process, at))
      setText(weight, process.weight?.toLocaleString('en') ?? '–')
      showCount(held, process.keys.length)
      setText(due, process.weight === undefined ? '–' : rounded(process.due))
      setAttribute(squares, 'class', `squares ${size} ${at < 0 ? 'free' : `tone-${at % 6}`}`)
      reconcile(
        squares,
        process.keys.map((key) => ({ key, at, name, processes })),
        ({ key: [key] }) => key,
        square,
      )
      // One stop for Tab in each row. The arrow keys lead on from there.
      const links = [...squares.children]
      if (!links.some((link) => link.tabIndex === 0) && links.length > 0) links[0].tabIndex = 0
    },
  }
}

function notesOf({ weight, overdue, late }, at) {
  const notes = []
  if (at >= 0 && weight === undefined) notes.push('no member')
  if (late > 0) notes.push(`does not renew ${counted(late, 'key')}`)
  if (overdue > 0) notes.push(`work on ${counted(overdue, 'key')} does not end`)
  return notes.join(', ')
}

function rounded(due) {
  return (Math.round(due * 10) / 10).toLocaleString('en')
}

/** @param {{ key: PartitionKeyJson, name: string }} item */
function square({ key: [key], name }) {
  const text = element('span')
  const node = element('a', { href: addressOf({ view: 'key', key: `${name}:${key}` }), tabindex: '-1' }, text)
  setStrange(text, key)
  let known
  return {
    node,
    update({ key: [, fence, fromAt, to], at, processes }) {
      const isMoving = to !== undefined && to !== at
      const target = isMoving ? nameAt(processes, to) : ''
      // The time is that of the fence. It is written once, because it takes longer than all the rest.
      const now = `${fence} ${at} ${target}`
      if (now === known) return
      known = now
      const holder =
        at < 0 ? 'held by nobody' : `${nameAt(processes, at)}, fence ${fence}, since ${fullTime(fromAt)}`
      const move = at < 0 ? 'wanted by' : 'moves to'
      const label = `${visible(key)}: ${holder}${isMoving ? `, ${move} ${target}` : ''}`
      setAttribute(node, 'title', label)
      setAttribute(node, 'aria-label', label)
      setAttribute(node, 'data-moves', isMoving ? `${to % 6}` : undefined)
    },
  }
}

/** Leads along the squares of a row. */
function walk(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
  const next = step === 1 ? event.target.nextElementSibling : event.target.previousElementSibling
  if (step === undefined || next === null) return
  event.preventDefault()
  event.target.tabIndex = -1
  next.tabIndex = 0
  next.focus()
}

const COLUMNS = [
  { title: 'Process', name: 'holder' },
  { title: 'Weight', name: 'count', align: 'end' },
  { title: 'Holds', name: 'count', align: 'end' },
  { title: 'Share', name: 'count', align: 'end' },
  { title: 'Keys', name: 'squares' },
]
/** Up to this many keys, the squares show the names. */
const MOST_NAMED = 256
const MOVES = 10
const ABOUT =
  'Each square is a key, in the row of the process that holds it. A square with a dot is moving: another process waits for it. Point at a square for its name, holder and fence. Share is what the process is to hold by its weight.'
