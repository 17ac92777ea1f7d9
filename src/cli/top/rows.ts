import type { InspectedHolder, InspectedRoom } from '../../index.ts'
import { lateMsOf, roundTtlMs } from '../../room-watch/renewal-facts.ts'
import type { RoomWatch } from '../../room-watch/room-watch.ts'
import { electionsIn, isPartOf, isVacancy } from '../../room-watch/ticket-facts.ts'
import { modeOf, ownerOf } from '../room-text.ts'
import { age, plain } from '../text.ts'
import type { Sort } from './sorts.ts'

/** One key, as a line of the table. */
export interface Row {
  readonly room: InspectedRoom
  readonly key: string
  /** A letter: see {@link STATES}. */
  readonly state: string
  readonly mode: string
  readonly holder: string
  /** `undefined` where the key has no holder. */
  readonly heldMs: number | undefined
  readonly leftMs: number | undefined
  /** Of the first holder; `undefined` where looks could not tell it yet. */
  readonly ttlMs: number | undefined
  /** For how long the first late holder has not renewed; `undefined` while none is late. */
  readonly lateMs: number | undefined
  readonly fence: bigint | undefined
  readonly waiting: number
  /** How long the first waiter has waited. */
  readonly longestMs: number | undefined
}

export const STATES: Readonly<Record<string, string>> = {
  H: 'held',
  L: 'late: held, and not renewed for more than half of its ttl',
  O: 'offered to a waiter, and not confirmed yet',
  M: 'released, and closed until its minimum hold is over',
  D: 'closed by a lock-delay',
  W: 'held by nobody, with waiters',
  N: 'an election that nobody leads, with observers',
}

/** A row for each key. The mark and the vacancy of an election have none: they are part of the election's row. */
export function rowsOf(
  rooms: readonly InspectedRoom[],
  watch: Pick<RoomWatch, 'renewalsOf'>,
): readonly Row[] {
  const elections = electionsIn(rooms)
  return rooms
    .filter(({ key }) => !isPartOf(elections, key))
    .map((room) => rowOf(room, { watch, isElection: elections.has(room.key) }))
}

/** The row of a room. Texts are built on first use, as most rows are not on the screen. */
function rowOf(
  room: InspectedRoom,
  { watch, isElection }: { readonly watch: Pick<RoomWatch, 'renewalsOf'>; readonly isElection: boolean },
): Row {
  const { queue } = room
  // Observers hold the vacancy, and lead nothing.
  const isVacant = isElection && isVacancy(room)
  const holders = isVacant ? [] : room.holders
  const [first] = holders
  const renewals = first && watch.renewalsOf(first.id)
  const lateMs = most(holders.flatMap((holder) => lateMsOf(holder, watch.renewalsOf(holder.id)) ?? []))
  let holder: string | undefined
  return {
    room,
    key: room.key,
    get state() {
      if (isVacant) return 'N'
      return lateMs === undefined ? stateOf(room) : 'L'
    },
    get mode() {
      if (isElection) return 'election'
      const [ticket] = [...holders, ...queue]
      return ticket === undefined ? '–' : modeOf(ticket)
    },
    get holder() {
      // Built once, as sorting reads it often.
      holder ??= isVacant ? 'nobody leads' : holderOf(room)
      return holder
    },
    // Since when nobody leads, for an election without a leader.
    heldMs: most(room.holders.map(({ heldMs }) => heldMs)),
    leftMs: isVacant ? undefined : leftOf(room),
    ttlMs: renewals?.isKnown === true ? roundTtlMs(renewals.ttlMs) : undefined,
    lateMs,
    fence: first?.fence,
    waiting: queue.length,
    longestMs: most(queue.map(({ waitedMs }) => waitedMs)),
  }
}

function holderOf({ holders }: InspectedRoom): string {
  const [first, ...others] = holders
  if (first === undefined) return '–'
  return others.length === 0 ? ownerOf(first) : `${ownerOf(first)} +${others.length}`
}

function stateOf({ holders, queue, closedMs }: InspectedRoom): string {
  const states = holders.map(({ state }) => LETTERS[state])
  for (const letter of ['H', 'O', 'M']) if (states.includes(letter)) return letter
  return closedMs > 0 || queue.length === 0 ? 'D' : 'W'
}

const LETTERS: Readonly<Record<InspectedHolder['state'], string>> = { held: 'H', offered: 'O', leaving: 'M' }

/** How long until the first holder expires, or the lock-delay ends. */
function leftOf({ holders, closedMs }: InspectedRoom): number | undefined {
  if (holders.length === 0) return closedMs > 0 ? closedMs : undefined
  return holders.reduce((least, { remainingMs }) => Math.min(least, remainingMs), Number.POSITIVE_INFINITY)
}

function most(numbers: readonly number[]): number | undefined {
  return numbers.length === 0 ? undefined : numbers.reduce((one, other) => Math.max(one, other))
}

export interface RowOrder {
  readonly sort: Sort
  readonly isReversed: boolean
}

/** Numbers: largest first, but the shortest time left first. Texts: in code-unit order. */
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
  ttl: (one, other) => (one.ttlMs ?? Number.MAX_VALUE) - (other.ttlMs ?? Number.MAX_VALUE),
  fence: (one, other) => Number((other.fence ?? -1n) - (one.fence ?? -1n)),
  waiting: (one, other) => other.waiting - one.waiting || (other.longestMs ?? -1) - (one.longestMs ?? -1),
  longest: (one, other) => (other.longestMs ?? -1) - (one.longestMs ?? -1),
}

function text(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}

/** The rows with the text in their key or in an owner, whatever its case. */
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
    ttl: duration(row.ttlMs).replace('.0s', 's'),
    fence: row.fence === undefined ? '–' : String(row.fence),
    waiting: String(row.waiting),
    longest: duration(row.longestMs),
  }
}
