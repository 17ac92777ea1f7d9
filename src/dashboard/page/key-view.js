import { copyButton } from './copy.js'
import { element, reconcile, setAttribute, setStrange, setText, strange } from './elements.js'
import { askToEvict } from './evict-dialog.js'
import { crumb } from './list-bar.js'
import { reachOf, whyEnded } from './losses-view.js'
import { handOverPicture, unseenIn } from './picture.js'
import { cell, counted, ownerName, ownerNode, showLeft, table, tableBody } from './tickets.js'
import { age, clockTime, fullTime, showNoTime, showSince, showTime } from './time.js'
/** @import { HoldJson, HolderJson, KeyJson, ViewJson, WaiterJson } from '../view-json.ts' */

/** @typedef {{ at: number, canEvict: boolean, evict: () => void }} Shown what the view adds to a ticket */

/** One key: its holders, its queue, and the holds that the dashboard has seen. */
export function keyView({ place, say, list }) {
  const { key } = place
  const state = element('p', { class: 'state' })
  const holders = tableBody()
  const queue = tableBody()
  const holds = tableBody()
  const picture = handOverPicture()
  const range = rangeChoice(() => shown !== undefined && update(shown))
  const evictAll = element('button', {
    type: 'button',
    class: 'danger',
    hidden: true,
    'aria-keyshortcuts': 'x',
    onclick: () => {
      const { holders, queue, holding, waiting } = shown
      // The waiters first: otherwise the key goes through all of them.
      askToEvict({ key, say, tickets: [...queue.toReversed(), ...holders], count: holding + waiting })
    },
  })
  evictAll.append('Evict everybody…')
  let shown

  const holderTable = section('Holders', holders, HOLDER_COLUMNS)
  const queueTable = section('Queue', queue, QUEUE_COLUMNS)
  const holdTable = section('Timeline', holds, HOLD_COLUMNS)
  const reach = element('p', { class: 'more' })
  const history = element(
    'section',
    {},
    element('div', { class: 'heading' }, element('h3', {}, 'Hand-overs'), range.node),
    picture.node,
    reach,
  )
  const allHolds = element('button', {
    type: 'button',
    hidden: true,
    onclick: () => {
      hasAllHolds = true
      update(shown)
    },
  })
  let hasAllHolds = false
  // A long queue would push all else off the screen.
  const folded = element('details', { open: true }, element('summary'), queueTable.node)
  let hasQueue = false
  const node = element(
    'div',
    {},
    crumb(list, 'All keys'),
    element(
      'div',
      { class: 'heading' },
      element(
        'div',
        { class: 'named' },
        strange('h2', { class: 'strange' }, key),
        copyButton('key', () => key, say),
      ),
      evictAll,
    ),
    state,
    holderTable.node,
    history,
    holdTable.node,
    allHolds,
    folded,
  )

  /** @param {ViewJson & KeyJson} view */
  function update(view) {
    shown = view
    setText(state, view.at === 0 ? 'Nothing was seen yet.' : stateOf(view))
    const { at, site } = view
    evictAll.hidden = !site.allowEvict || view.holding + view.waiting === 0
    const ticket = (each) => ({
      ...each,
      at,
      canEvict: site.allowEvict,
      evict: () => askToEvict({ key, say, tickets: [each] }),
    })
    reconcile(
      holders,
      view.holders.map(ticket),
      ({ id }) => id,
      (holder) => holderRow(holder, say),
    )
    reconcile(
      queue,
      view.queue.map(ticket),
      ({ id }) => id,
      (waiter) => waiterRow(waiter, say),
    )
    const past = timeline(view)
    reconcile(holds, hasAllHolds ? past : past.slice(0, FIRST_HOLDS), ({ id }) => id, timelineRow)
    allHolds.hidden = hasAllHolds || past.length <= FIRST_HOLDS
    setText(allHolds, `All ${past.length} of the timeline`)
    holderTable.update(view.holders.length, view.holding)
    queueTable.update(view.queue.length, view.waiting)
    holdTable.update(view.holds.length, view.holds.length)
    folded.hidden = view.waiting === 0
    setText(folded.firstElementChild, `Queue: ${counted(view.waiting, 'waiter')}`)
    // Decided once: afterwards it stays as the user wants it.
    if (!hasQueue && view.waiting > 0) folded.open = view.waiting <= UNFOLDED
    hasQueue ||= view.waiting > 0
    setText(reach, reachOf(view))
    picture.update({ ...view, rangeMs: range.value() ?? seenMs(view) })
  }

  return { node, query: () => ({ view: 'key', key }), update }
}

/** How long the history of the key is, between 30 s and a day. A present hold may have begun before it. */
function seenMs({ samples, holds, now }) {
  const [[at] = [now]] = samples
  const endedAt = holds.find(({ untilAt }) => untilAt !== undefined)?.fromAt ?? at
  return Math.min(86_400_000, Math.max(30_000, now - Math.min(at, endedAt)))
}

/**
 * The holds of the key, newest first, and between them the times of which nothing is known.
 * @param {KeyJson} view
 */
function timeline({ holds, watched, holdsFromAt }) {
  const fromAt = holds[0]?.fromAt ?? Number.POSITIVE_INFINITY
  const unseen = unseenIn(watched)
    .filter(({ untilAt }) => untilAt > fromAt)
    .map((gap) => ({
      ...{ id: `unseen ${gap.fromAt}`, fromAt: gap.fromAt },
      unseen: `nobody looked from ${clockTime(gap.fromAt)} to ${clockTime(gap.untilAt)}`,
    }))
  if (holdsFromAt !== undefined) {
    const text = `holds before ${clockTime(holdsFromAt)} may be left out`
    unseen.push({ id: 'left out', fromAt: holdsFromAt, unseen: text })
  }
  return [...holds, ...unseen].sort((one, other) => other.fromAt - one.fromAt)
}

/** @param {ViewJson & KeyJson} view */
function stateOf({ key, holding, waiting, closedMs, isElection, observers, isCut, site }) {
  const parts = [
    holding > 0 && `${holding.toLocaleString('en')} holding`,
    closedMs > 0 && `closed by a lock-delay for ${age(closedMs)}`,
    waiting > 0 && `${waiting.toLocaleString('en')} waiting`,
    isElection && `an election, ${counted(observers, 'observer')}`,
  ].filter(Boolean)
  if (parts.length > 0) return parts.join(', ')
  return isCut || !key.startsWith(site.prefix) ? 'not among the keys that were read' : 'free'
}

/** A heading and a table, hidden while the table is empty. */
function section(title, rows, columns) {
  const more = element('p', { class: 'more' })
  const node = element(
    'section',
    {},
    element('h3', {}, title),
    table({ caption: title, columns, rows, className: 'tickets' }),
    more,
  )
  return {
    node,
    update(shown, all) {
      node.hidden = all === 0
      setText(more, shown < all ? `The first ${shown} of ${all.toLocaleString('en')}.` : '')
    },
  }
}

/** @param {HolderJson} holder */
function holderRow({ id: ticketId, fence: number }, say) {
  const owner = ownerNode()
  const [mode, held, left] = cells(['mode', 'held', 'left'])
  const fence = copiedCell('fence', () => number, say)
  const id = copiedCell('id', () => ticketId, say)
  const { button, node: evict } = evictCell()
  return {
    node: element(
      'tr',
      { role: 'row' },
      cell('holder', {}, owner.node),
      mode,
      held,
      left,
      fence.node,
      id.node,
      evict,
    ),
    /** @param {HolderJson & Shown} holder */
    update(holder) {
      owner.update(holder.owner)
      setText(mode, holder.mode)
      setText(fence.text, holder.fence)
      setStrange(id.text, holder.id)
      showSince(held, holder.at - holder.heldMs)
      showLeft(left, holder, holder.at)
      button(holder)
    },
  }
}

/** @param {WaiterJson} waiter */
function waiterRow({ id: ticketId }, say) {
  const owner = ownerNode()
  const [mode, waits] = cells(['mode', 'waits'])
  const id = copiedCell('id', () => ticketId, say)
  const { button, node: evict } = evictCell()
  return {
    node: element('tr', { role: 'row' }, cell('holder', {}, owner.node), mode, waits, id.node, evict),
    /** @param {WaiterJson & Shown} waiter */
    update(waiter) {
      owner.update(waiter.owner)
      setText(mode, waiter.mode)
      setStrange(id.text, waiter.id)
      showSince(waits, waiter.at - waiter.waitedMs)
      button(waiter)
    },
  }
}

function timelineRow(item) {
  return item.unseen === undefined ? holdRow() : unseenRow(item)
}

function unseenRow({ unseen }) {
  const text = cell('holder', { colspan: 5 }, unseen)
  return {
    node: element('tr', { role: 'row', class: 'unseen' }, text),
    update: (item) => setText(text, item.unseen),
  }
}

function holdRow() {
  const owner = ownerNode()
  const [began, lasted, end, fence] = cells(['began', 'lasted', 'end', 'fence'])
  return {
    node: element('tr', { role: 'row' }, cell('holder', {}, owner.node), began, lasted, end, fence),
    /** @param {HoldJson} hold */
    update(hold) {
      owner.update(hold.owner)
      showTime(began, hold.fromAt)
      setText(fence, hold.fence)
      setAttribute(end, 'data-end', hold.end ?? 'held')
      setStrange(end, whyEnded(hold))
      if (hold.untilAt === undefined) showSince(lasted, hold.fromAt)
      else {
        showNoTime(lasted, age(hold.untilAt - hold.fromAt))
        setAttribute(lasted, 'title', `until ${fullTime(hold.untilAt)}`)
      }
    },
  }
}

function cells(names) {
  return names.map((name) =>
    cell(name, { 'data-title': TITLES[name] ?? name, 'data-align': ENDS.has(name) ? 'end' : undefined }),
  )
}

/** A cell with a button that copies its text. */
function copiedCell(name, textOf, say) {
  const text = element('span')
  const align = ENDS.has(name) ? 'end' : undefined
  return {
    text,
    node: cell(name, { 'data-title': name, 'data-align': align }, text, copyButton(name, textOf, say)),
  }
}

function evictCell() {
  let evict = () => {}
  const control = element('button', { type: 'button', onclick: () => evict() }, 'Evict…')
  return {
    node: cell('actions', {}, control),
    /** @param {(HolderJson | WaiterJson) & Shown} ticket */
    button(ticket) {
      evict = ticket.evict
      control.hidden = !ticket.canEvict
      setAttribute(control, 'aria-label', `Evict ${ownerName(ticket.owner)}`)
    },
  }
}

function rangeChoice(onChange) {
  const select = element(
    'select',
    { 'aria-label': 'How far back', onchange: onChange },
    ...RANGES.map(([minutes, text]) => element('option', { value: minutes }, text)),
  )
  return { node: select, value: () => (select.value === '' ? undefined : Number(select.value) * 60_000) }
}

const RANGES = [
  ['', 'all that was seen'],
  [1, '1 minute'],
  [5, '5 minutes'],
  [15, '15 minutes'],
  [60, '1 hour'],
  [360, '6 hours'],
  [1440, '24 hours'],
]
/** Queues of so many are open at first. */
const UNFOLDED = 10
/** So many holds are shown at first. */
const FIRST_HOLDS = 10
/** Beside a value on a phone, if it differs from the name of the cell. */
const TITLES = { waits: 'waited', lasted: 'held for' }
const ENDS = new Set(['held', 'left', 'fence', 'waits', 'lasted'])
const HOLDER_COLUMNS = [
  { title: 'Holder', name: 'holder' },
  { title: 'Mode', name: 'mode' },
  { title: 'Held', name: 'held', align: 'end' },
  { title: 'Left', name: 'left', align: 'end' },
  { title: 'Fence', name: 'fence', align: 'end' },
  { title: 'Id', name: 'id' },
  { title: 'Actions', name: 'actions', isUnseen: true },
]
const QUEUE_COLUMNS = [
  { title: 'Waiter', name: 'holder' },
  { title: 'Mode', name: 'mode' },
  { title: 'Waited', name: 'waits', align: 'end' },
  { title: 'Id', name: 'id' },
  { title: 'Actions', name: 'actions', isUnseen: true },
]
const HOLD_COLUMNS = [
  { title: 'Holder', name: 'holder' },
  { title: 'Began', name: 'began' },
  { title: 'Held for', name: 'lasted', align: 'end' },
  { title: 'End', name: 'end' },
  { title: 'Fence', name: 'fence', align: 'end' },
]
