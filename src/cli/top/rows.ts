import type { HolderView, RoomView } from '../../index.ts'
import { modeOf, ownerOf } from '../room-text.ts'
import { age, plain } from '../text.ts'

/** One key, as a line of the table. */
export interface Row {
  readonly room: RoomView
  readonly key: string
  /** What it is, as a letter: see {@link STATES}. */
  readonly state: string
  readonly mode: string
  readonly holder: string
  /** `undefined` where nobody holds it. */
  readonly heldMs: number | undefined
  readonly leftMs: number | undefined
  readonly fence: bigint | undefined
  readonly waiting: number
  /** Of the one that waits longest. */
  readonly longestMs: number | undefined
}

export const STATES: Readonly<Record<string, string>> = {
  H: 'held',
  O: 'offered to who waited, and not confirmed yet',
  M: 'given back, and closed until its minimum hold is over',
  D: 'closed by a lock-delay',
  W: 'held by nobody, and waited for',
}

/** Of each key; what is shown of it is made when somebody looks at it. */
export function rowOf(room: RoomView): Row {
  const { holders, queue } = room
  let holder: string | undefined
  return {
    room,
    key: room.key,
    get state() {
      return stateOf(room)
    },
    get mode() {
      const [first] = [...holders, ...queue]
      return first === undefined ? '–' : modeOf(first)
    },
    get holder() {
      // Once: sorting asks for it again and again.
      holder ??= holderOf(room)
      return holder
    },
    heldMs: most(holders.map(({ heldMs }) => heldMs)),
    leftMs: leftOf(room),
    fence: holders[0]?.fence,
    waiting: queue.length,
    longestMs: most(queue.map(({ waitedMs }) => waitedMs)),
  }
}

function holderOf({ holders }: RoomView): string {
  const [first, ...others] = holders
  if (first === undefined) return '–'
  return others.length === 0 ? ownerOf(first) : `${ownerOf(first)} +${others.length}`
}

function stateOf({ holders, queue, closedMs }: RoomView): string {
  const states = holders.map(({ state }) => LETTERS[state])
  for (const letter of ['H', 'O', 'M']) if (states.includes(letter)) return letter
  return closedMs > 0 || queue.length === 0 ? 'D' : 'W'
}

const LETTERS: Readonly<Record<HolderView['state'], string>> = { held: 'H', offered: 'O', leaving: 'M' }

/** Until the first of the holders would be gone, or the key is open again. */
function leftOf({ holders, closedMs }: RoomView): number | undefined {
  if (holders.length === 0) return closedMs > 0 ? closedMs : undefined
  return holders.reduce((least, { remainingMs }) => Math.min(least, remainingMs), Number.POSITIVE_INFINITY)
}

function most(numbers: readonly number[]): number | undefined {
  return numbers.length === 0 ? undefined : numbers.reduce((one, other) => Math.max(one, other))
}

/** What the table can be sorted by, in the order of its columns. */
export const SORTS = [
  'key',
  'state',
  'mode',
  'holder',
  'held',
  'left',
  'fence',
  'waiting',
  'longest',
] as const
export type Sort = (typeof SORTS)[number]

export interface RowOrder {
  readonly sort: Sort
  readonly isReversed: boolean
}

/** Numbers have the largest first, but for the time left, where the shortest is what people look for; texts as in a book. */
export function sorted(rows: readonly Row[], { sort, isReversed }: RowOrder): readonly Row[] {
  const compare = COMPARE[sort]
  const sign = isReversed ? -1 : 1
  // The sort is stable, and the rows come by key.
  return [...rows].sort((one, other) => sign * compare(one, other))
}

const COMPARE: Readonly<Record<Sort, (one: Row, other: Row) => number>> = {
  key: (one, other) => text(one.key, other.key),
  state: (one, other) => text(one.state, other.state),
  mode: (one, other) => text(one.mode, other.mode),
  holder: (one, other) => text(one.holder, other.holder),
  held: (one, other) => (other.heldMs ?? -1) - (one.heldMs ?? -1),
  left: (one, other) => (one.leftMs ?? Number.MAX_VALUE) - (other.leftMs ?? Number.MAX_VALUE),
  fence: (one, other) => Number((other.fence ?? -1n) - (one.fence ?? -1n)),
  waiting: (one, other) => other.waiting - one.waiting || (other.longestMs ?? -1) - (one.longestMs ?? -1),
  longest: (one, other) => (other.longestMs ?? -1) - (one.longestMs ?? -1),
}

function text(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}

/** Those that have the text in their key or in one of their owners, whatever its case. */
export function filtered(rows: readonly Row[], filter: string): readonly Row[] {
  if (filter === '') return rows
  const wanted = filter.toLowerCase()
  const has = (shown: string): boolean => shown.toLowerCase().includes(wanted)
  return rows.filter(
    ({ key, room }) =>
      has(plain(key)) || [...room.holders, ...room.queue].some((ticket) => has(ownerOf(ticket))),
  )
}

/** The cells of a row, as the table shows them. */
export function cellsOf(row: Row): Readonly<Record<Sort, string>> {
  const duration = (durationMs: number | undefined): string =>
    durationMs === undefined ? '–' : age(durationMs)
  return {
    key: plain(row.key),
    state: row.state,
    mode: row.mode,
    holder: row.holder,
    held: duration(row.heldMs),
    left: duration(row.leftMs),
    fence: row.fence === undefined ? '–' : String(row.fence),
    waiting: String(row.waiting),
    longest: duration(row.longestMs),
  }
}
