import { stepwise } from './charts.js'
import { drawn, element } from './elements.js'
import { ownerName } from './tickets.js'
import { age, clockTime } from './time.js'
/** @import { HoldJson, KeyJson, ViewJson } from '../view-json.ts' */

/**
 * When each owner held the key: a lane for each owner, a bar for each hold, and the queue below. The table of holds has the
 * same as text.
 */
export function handOverPicture() {
  const node = element('div', { class: 'picture' })
  return {
    node,
    /** @param {ViewJson & KeyJson & { rangeMs: number }} view */
    update({ holds, samples, watched, holdsFromAt, samplesFromAt, now, rangeMs }) {
      const fromAt = now - rangeMs
      const seen = holds.filter(({ untilAt = now }) => untilAt >= fromAt)
      const lanes = lanesOf(seen)
      const plan = planOf({ width: node.clientWidth - 24, lanes: lanes.length, fromAt, rangeMs, now })
      const { width, height } = plan
      const label = describe(seen, lanes)
      const picture = drawn('svg', {
        width,
        height,
        viewBox: `0 0 ${width} ${height}`,
        role: 'img',
        'aria-label': label,
      })
      picture.append(
        ...unseenIn(watched).flatMap((gap) => unseenNodes(gap, plan)),
        ...unknownNodes({ watchedAt: watched[0]?.[0], holdsFromAt, samplesFromAt }, plan),
        ...gridLines(plan),
        ...lanes.flatMap((lane, index) => laneNodes(lane, index, plan)),
        ...queueNodes(samples, plan),
      )
      node.replaceChildren(picture)
    },
  }
}

/**
 * The times between two stretches in which somebody looked, oldest first.
 * @param {KeyJson['watched']} watched
 */
export function unseenIn(watched) {
  return watched.slice(1).map(([untilAt], index) => ({ fromAt: watched[index]?.[1] ?? untilAt, untilAt }))
}

function unseenNodes({ fromAt, untilAt }, { x, height }) {
  const text = `nobody looked from ${clockTime(fromAt)} to ${clockTime(untilAt)}`
  return greyNodes(text, [x(fromAt), x(untilAt)], [0, height - AXIS])
}

/** The times before somebody looked, before all holds are remembered, and before the lengths of the queue are. */
function unknownNodes({ watchedAt = 0, holdsFromAt = 0, samplesFromAt = 0 }, { x, left, height, queueTop }) {
  const nodes = (knownAt, text, rows) => {
    const at = Math.max(watchedAt, knownAt)
    const reason = watchedAt >= knownAt ? 'nobody looked' : text
    return greyNodes(`${reason} before ${clockTime(at)}`, [left, x(at)], rows)
  }
  return [
    ...nodes(holdsFromAt, 'holds may be left out', [0, queueTop]),
    ...nodes(samplesFromAt, 'the queue is not known', [queueTop, height - AXIS]),
  ]
}

function greyNodes(text, [left, right], [top, bottom]) {
  if (right - left < 1) return []
  const area = { x: left.toFixed(1), y: top, width: (right - left).toFixed(1), height: bottom - top }
  return [drawn('g', { class: 'unseen' }, drawn('rect', area), drawn('title', {}, text))]
}

/** Names stand beside their lanes, or above them on a narrow screen. */
function planOf({ width: room, lanes, fromAt, rangeMs, now }) {
  const width = Math.max(200, Math.floor(room))
  const isWide = width > 560
  const left = isWide ? 190 : 0
  const lane = isWide ? 24 : 36
  const queueTop = 4 + Math.max(1, lanes) * lane
  const height = queueTop + (isWide ? 36 : 52) + AXIS
  const place = (at) => Math.min(1, Math.max(0, (at - fromAt) / rangeMs))
  const x = (at) => left + place(at) * (width - left)
  return { width, height, left, lane, isWide, queueTop, fromAt, rangeMs, now, x }
}

function lanesOf(holds) {
  const lanes = new Map()
  for (const hold of holds) {
    const owner = ownerName(hold.owner)
    const isTooMany = !lanes.has(owner) && lanes.size >= MOST_LANES - 1
    const name = isTooMany ? 'others' : owner
    lanes.set(name, [...(lanes.get(name) ?? []), hold])
  }
  return Array.from(lanes, ([owner, own]) => ({ owner, holds: own }))
}

function laneNodes({ owner, holds }, index, plan) {
  const { lane, isWide, x, now } = plan
  const top = 4 + index * lane
  const y = isWide ? top + 6 : top + 17
  const bars = holds.flatMap(({ fromAt, untilAt = now, end, fence }) => {
    const left = x(fromAt)
    const width = Math.max(2, x(untilAt) - left)
    const lasted = `${age(untilAt - fromAt)}${end === undefined ? ' so far' : `, ${end}`}`
    const bar = drawn(
      'rect',
      { x: left.toFixed(1), y, width: width.toFixed(1), height: 12, rx: 2, class: 'bar' },
      drawn('title', {}, `fence ${fence}, from ${clockTime(fromAt)} for ${lasted}`),
    )
    if (end !== 'expired' && end !== 'evicted') return [bar]
    const cap = { x: (left + width - 3).toFixed(1), y: y - 3, width: 3, height: 18, class: 'cap' }
    return [bar, drawn('rect', cap)]
  })
  return [nameNode(owner, top, plan), drawn('g', { class: `lane tone-${index % 6}` }, ...bars)]
}

function nameNode(name, top, { isWide }) {
  const room = isWide ? 30 : 44
  const short = name.length > room ? `${name.slice(0, room - 1)}…` : name
  return drawn('text', { x: 0, y: top + (isWide ? 16 : 12), class: 'owner' }, short)
}

function queueNodes(samples, plan) {
  const { fromAt, now, left, width, queueTop, height } = plan
  const points = stepwise(
    samples.map(([at, , waiting]) => [at, waiting]),
    fromAt,
    now,
  )
  const most = Math.max(0, ...points.map(([, value]) => value))
  const name = nameNode(most === 0 ? 'nobody waited' : `waiting, up to ${most}`, queueTop, plan)
  if (most === 0) return [name]
  const bottom = height - AXIS
  const room = 28
  const at = (place) => (left + place * (width - left)).toFixed(1)
  const steps = points.map(([place, value]) => `${at(place)},${(bottom - (value / most) * room).toFixed(1)}`)
  const path = `M${steps.join('L')}V${bottom}H${at(points[0][0])}Z`
  return [name, drawn('path', { d: path, class: 'queue' })]
}

function gridLines({ fromAt, rangeMs, left, width, height, x }) {
  const stepMs = STEPS_MS.find((each) => (each / rangeMs) * (width - left) >= 76) ?? rangeMs
  const nodes = []
  for (let at = Math.ceil(fromAt / stepMs) * stepMs; at < fromAt + rangeMs; at += stepMs) {
    const middle = x(at)
    const bottom = height - AXIS
    nodes.push(drawn('line', { x1: middle, x2: middle, y1: 0, y2: bottom, class: 'grid' }))
    // No label where it would be cut off.
    const isInside = middle > left + 28 && middle < width - 28
    if (isInside) nodes.push(drawn('text', { x: middle, y: height - 4, class: 'hour' }, clockTime(at)))
  }
  return nodes
}

/** @param {readonly HoldJson[]} holds */
function describe(holds, lanes) {
  const owners = `${lanes.length} ${lanes.length === 1 ? 'owner' : 'owners'}`
  const lost = holds.filter(({ end }) => end === 'expired' || end === 'evicted').length
  return `${holds.length} ${holds.length === 1 ? 'hold' : 'holds'} of ${owners}, ${lost} of them expired or evicted`
}

const MOST_LANES = 8
const AXIS = 18
const STEPS_MS = [
  ...[5000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000],
  ...[3_600_000, 7_200_000, 10_800_000, 21_600_000],
]
