import {
  type AcquireAnswer,
  GONE,
  type Gone,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type Ticket,
  TOMBSTONE_MS,
  type Wake,
} from '../contract/store.ts'
import { Sum } from './law.ts'
import { Roster } from './roster.ts'

/**
 * The executable specification of a room: the state of one key, and what each verb does to it.
 *
 * The functions read no clock and do no I/O: the same room, ticket and time always give the same answer and the same
 * next room. They change the room in place, because the memory store runs them as they are. Copying the room made an
 * uncontended cycle several times slower. Tests compare the SQL and Lua stores with them, step by step, on random
 * histories.
 *
 * Every verb has the same shape. First `settle` drops the expired and admits the next. Then the verb acts. If that made
 * room, it settles again. `wakes` are the messages to the tickets that were admitted on the way.
 */
export interface Room {
  /** Whether a message to the process of this waiter will be taken, as far as the store knows. */
  readonly reaches: (id: string) => boolean
  readonly holders: Roster<Holder>
  /** In order of arrival. */
  readonly queue: Roster<Waiter>
  readonly tombstones: Roster<Tombstone>
  readonly sum: Sum
  /** The last fence given, in µs since 1970; the next one is larger. */
  lastFence: number
  /** The end of the last lock-delay: before it no ticket is admitted. 0: there was no lock-delay. */
  closedUntil: number
  /** No holder or tombstone expires before this, so most calls need not look. May be too early, never too late. */
  nextExpiry: number
}

export interface Holder {
  readonly ticket: Ticket
  readonly fence: number
  readonly since: number
  state: 'held' | 'offered' | 'leaving'
  expiresAt: number
  /** The end of the minimum hold, set when the ticket is confirmed. 0: none. */
  holdUntil: number
}

export interface Waiter {
  readonly ticket: Ticket
  readonly since: number
  /** When the store last heard of the ticket, by an acquire or a renewal. */
  heardAt: number
  /** A waiter that is still silent at this time is dropped when it reaches the head of the queue. */
  rememberedUntil: number
}

export interface Tombstone {
  readonly until: number
  readonly evicted: boolean
  readonly reason: string
}

/**
 * A store's time: `ms` decides expiry, `us` (µs since 1970) is the floor of fences. These are two fields, because a store
 * may take them from two clocks.
 *
 * @inline
 */
export interface StoreTime {
  readonly ms: number
  readonly us: number
}

export interface VerbResult<A> {
  readonly answer: A
  readonly wakes: readonly TicketWake[]
}

/** A message to one ticket. */
export type TicketWake = Exclude<Wake, { tag: 'all' }>

export function openRoom(fenceFloor: number, reaches: Room['reaches'] = reachesNobody): Room {
  return {
    reaches,
    holders: new Roster(),
    queue: new Roster(),
    tombstones: new Roster(),
    sum: new Sum(),
    lastFence: fenceFloor,
    closedUntil: 0,
    nextExpiry: Number.POSITIVE_INFINITY,
  }
}

export function acquire(room: Room, ticket: Ticket, time: StoreTime): VerbResult<AcquireAnswer> {
  // Before `settle` drops anything: a waiter that comes back late keeps its place if the queue still has it.
  remember(room, ticket, time)
  const wakes = settle(room, time, ticket.id)
  const known = find(room, ticket, time)
  if (known?.tag === 'queued') return { answer: { ...known, ahead: countAhead(room, ticket.id) }, wakes }
  if (known !== undefined) return { answer: known, wakes }
  if (room.queue.size === 0 && admits(room, ticket, time)) {
    const holder = grant(room, ticket, time)
    return { answer: confirm(holder, ticket, time), wakes }
  }
  if (ticket.patienceMs === 0) return { answer: { tag: 'busy', retryMs: untilChange(room, time) }, wakes }
  const rememberedUntil = time.ms + ticket.patienceMs
  room.queue.set(ticket.id, { ticket, since: time.ms, heardAt: time.ms, rememberedUntil })
  const ahead = room.queue.size - 1
  return { answer: { ...queued(room, ticket, time), ahead }, wakes }
}

export function renew(room: Room, ticket: Ticket, time: StoreTime): VerbResult<RenewAnswer> {
  remember(room, ticket, time)
  const wakes = settle(room, time, ticket.id)
  return { answer: find(room, ticket, time) ?? GONE, wakes }
}

export function release(room: Room, request: ReleaseRequest, time: StoreTime): VerbResult<ReleaseAnswer> {
  const before = settle(room, time)
  const was = depart(room, request.id, time)
  if (request.cancel) bury(room, request.id, { until: time.ms + TOMBSTONE_MS, evicted: false, reason: '' })
  const after = was === 'unknown' ? NOBODY : settle(room, time)
  if (before.length === 0) return { answer: { was }, wakes: after }
  // If this call admitted the ticket and then removed it, nobody has to wake it.
  const wakes = [...before, ...after].filter(({ id }) => id !== request.id)
  return { answer: { was }, wakes }
}

/**
 * Takes back an offer when the store knows that the process of the waiter is gone. If the ticket was confirmed meanwhile,
 * it stays.
 */
export function withdrawOffer(room: Room, id: string, time: StoreTime): VerbResult<undefined> {
  const wakes = settle(room, time)
  const holder = room.holders.get(id)
  if (holder?.state !== 'offered') return { answer: undefined, wakes }
  drop(room, id, holder)
  return { answer: undefined, wakes: [...wakes, ...settle(room, time)].filter((wake) => wake.id !== id) }
}

/** `wakes` has one for each evicted ticket. If the same call has granted it the key, that message comes first. */
export function evict(
  room: Room,
  request: { readonly id: string | undefined; readonly reason: string; readonly onlyIfWaiting?: boolean },
  time: StoreTime,
): VerbResult<readonly string[]> {
  const before = settle(room, time)
  const waiting = [...room.queue.keys()]
  const present = request.onlyIfWaiting === true ? waiting : [...room.holders.keys(), ...waiting]
  const evicted = request.id === undefined ? present : present.filter((id) => id === request.id)
  for (const id of evicted) {
    const holder = room.holders.get(id)
    if (holder !== undefined) {
      drop(room, id, holder)
      delay(room, holder, time.ms)
    }
    room.queue.delete(id)
    bury(room, id, { until: time.ms + TOMBSTONE_MS, evicted: true, reason: request.reason })
  }
  const wakes = [...before, ...settle(room, time)]
  const hinted = new Set(wakes.flatMap(({ tag, id }) => (tag === 'ticket' ? [id] : [])))
  return { answer: evicted, wakes: [...wakes, ...evicted.filter((id) => !hinted.has(id)).map(hint)] }
}

/** Whether a store may delete this room and keep only its last fence. Waiters that never came back are dropped here. */
export function isIdle(room: Room, time: StoreTime): boolean {
  // A room with a waiter is never idle. To admit the waiter here would lose its wake.
  for (let entry = room.queue.first; entry !== undefined; entry = entry.next)
    if (entry.value.rememberedUntil + LATE_MS > time.ms) return false
  if (room.nextExpiry <= time.ms) expire(room, time)
  const isIdle = room.holders.size === 0 && room.tombstones.size === 0 && room.closedUntil <= time.ms
  if (isIdle)
    for (let entry = room.queue.first; entry !== undefined; entry = entry.next) room.queue.delete(entry.id)
  return isIdle
}

/** A waiter that asks late keeps its place while its room exists. After this long no waiter is expected to come back. */
const LATE_MS = 10 * TOMBSTONE_MS
const NOBODY: readonly TicketWake[] = []

/** Clears what has expired and admits from the head of the queue. Returns the messages to the admitted, except to `asking`. */
function settle(room: Room, time: StoreTime, asking?: string): readonly TicketWake[] {
  if (room.nextExpiry <= time.ms) expire(room, time)
  let wakes: TicketWake[] | undefined
  for (let entry = room.queue.first; entry !== undefined; entry = entry.next) {
    const { id, value: waiter } = entry
    if (waiter.rememberedUntil <= time.ms) {
      room.queue.delete(id)
      continue
    }
    if (!admits(room, waiter.ticket, time)) break
    room.queue.delete(id)
    const holder = grant(room, waiter.ticket, time)
    if (id !== asking) {
      wakes ??= []
      wakes.push(isReached(room, waiter, time) ? deliver(holder, time) : hint(id))
    }
  }
  return wakes ?? NOBODY
}

function expire(room: Room, time: StoreTime): void {
  let next = Number.POSITIVE_INFINITY
  let lapsed = false
  for (const [id, holder] of room.holders) {
    if (holder.expiresAt <= time.ms) {
      drop(room, id, holder)
      // Lock-delay is for unfinished work, and only a confirmed ticket may have begun any.
      if (holder.state === 'held') delay(room, holder, holder.expiresAt)
      else if (holder.state === 'offered') lapsed = true
    } else next = Math.min(next, holder.expiresAt)
  }
  if (lapsed) dropSilent(room, time)
  for (const [id, tombstone] of room.tombstones) {
    if (tombstone.until <= time.ms) room.tombstones.delete(id)
    else next = Math.min(next, tombstone.until)
  }
  room.nextExpiry = next
}

/**
 * Called when an offer has lapsed. Drops the waiters at the head that have been silent for their own acceptance term. A
 * living waiter asks sooner (see {@link askAgain}), so all dead waiters in front cost one acceptance term together.
 */
function dropSilent(room: Room, time: StoreTime): void {
  for (let entry = room.queue.first; entry !== undefined; entry = entry.next) {
    const { heardAt, ticket } = entry.value
    if (heardAt + ticket.acceptMs > time.ms) return
    room.queue.delete(entry.id)
  }
}

function admits(room: Room, ticket: Ticket, time: StoreTime): boolean {
  return room.closedUntil <= time.ms && room.sum.admits(ticket)
}

/** Admits a ticket for the acceptance term only. If the ticket itself is asking, the same call confirms it. */
function grant(room: Room, ticket: Ticket, time: StoreTime): Holder {
  const fence = Math.max(room.lastFence + 1, time.us)
  const expiresAt = time.ms + ticket.acceptMs
  const holder: Holder = { ticket, fence, since: time.ms, state: 'offered', expiresAt, holdUntil: 0 }
  room.lastFence = fence
  room.holders.set(ticket.id, holder)
  room.sum.add(ticket)
  room.nextExpiry = Math.min(room.nextExpiry, holder.expiresAt)
  return holder
}

/**
 * Whether the message is the lease: the store heard of the waiter within its acceptance term, and its process takes the message. A
 * ticket with a minimum hold or a lock-delay confirms: both begin when its process is known to hold.
 */
function isReached(room: Room, { ticket, heardAt }: Waiter, time: StoreTime): boolean {
  const isPlain = ticket.minHoldMs === 0 && ticket.lockDelayMs === 0
  return isPlain && heardAt + ticket.acceptMs > time.ms && room.reaches(ticket.id)
}

function deliver(holder: Holder, time: StoreTime): TicketWake {
  const { fence } = confirm(holder, holder.ticket, time)
  return { tag: 'granted', id: holder.ticket.id, fence, storeMs: time.ms }
}

function hint(id: string): TicketWake {
  return { tag: 'ticket', id }
}

function reachesNobody(): boolean {
  return false
}

function confirm(holder: Holder, ticket: Ticket, time: StoreTime): { tag: 'held'; fence: bigint } {
  if (holder.state === 'offered') {
    holder.state = 'held'
    // Not `time.ms` for no minimum hold: if the clock were set back, that instant would lie ahead again.
    holder.holdUntil = ticket.minHoldMs > 0 ? time.ms + ticket.minHoldMs : 0
  }
  // Never sooner than an earlier answer promised: a request with a shorter ttl may arrive late.
  holder.expiresAt = Math.max(holder.expiresAt, time.ms + ticket.ttlMs, holder.holdUntil)
  return { tag: 'held', fence: BigInt(holder.fence) }
}

function find(
  room: Room,
  ticket: Ticket,
  time: StoreTime,
): Exclude<RenewAnswer, { tag: 'gone' }> | Gone | undefined {
  const holder = room.holders.get(ticket.id)
  if (holder !== undefined) return holder.state === 'leaving' ? GONE : confirm(holder, ticket, time)
  if (room.queue.has(ticket.id)) return queued(room, ticket, time)
  const tombstone = room.tombstones.get(ticket.id)
  if (tombstone === undefined) return undefined
  return tombstone.evicted ? { tag: 'gone', evicted: true, reason: tombstone.reason } : GONE
}

function queued(room: Room, ticket: Ticket, time: StoreTime): Extract<RenewAnswer, { tag: 'queued' }> {
  return { tag: 'queued', askAgainMs: askAgain(room, ticket, time), storeMs: time.ms }
}

function remember(room: Room, ticket: Ticket, time: StoreTime): void {
  const waiter = room.queue.get(ticket.id)
  if (waiter === undefined) return
  waiter.heardAt = time.ms
  waiter.rememberedUntil = time.ms + ticket.patienceMs
}

function depart(room: Room, id: string, time: StoreTime): ReleaseAnswer['was'] {
  if (room.queue.delete(id)) return 'queued'
  const holder = room.holders.get(id)
  if (holder === undefined || holder.state === 'leaving') return 'unknown'
  if (holder.holdUntil > time.ms) {
    holder.state = 'leaving'
    holder.expiresAt = holder.holdUntil
    room.nextExpiry = Math.min(room.nextExpiry, holder.expiresAt)
  } else drop(room, id, holder)
  return 'held'
}

export function drop(room: Room, id: string, holder: Holder): void {
  room.holders.delete(id)
  room.sum.subtract(holder.ticket, room.holders)
}

function delay(room: Room, { state, ticket: { lockDelayMs } }: Holder, from: number): void {
  if (state === 'held' && lockDelayMs > 0) room.closedUntil = Math.max(room.closedUntil, from + lockDelayMs)
}

function bury(room: Room, id: string, tombstone: Tombstone): void {
  room.tombstones.set(id, tombstone)
  room.nextExpiry = Math.min(room.nextExpiry, tombstone.until)
}

/**
 * After how many milliseconds a waiter should ask again if no wake comes. It must stay remembered. If its wake was lost, it
 * must find its offer within the acceptance term. Every waiter also asks at the next expiry, because all in front of it may
 * be dead. Behind the head it asks at most six times per acceptance term, because a short lease may be renewed for ever.
 */
function askAgain(room: Room, ticket: Ticket, time: StoreTime): number {
  const staying = Math.min(ticket.patienceMs / 3, (ticket.acceptMs * 2) / 3)
  // Nothing expires sooner, so there is no need to look at each holder.
  if (room.closedUntil <= time.ms && room.nextExpiry - time.ms >= staying) return Math.ceil(staying)
  const leastMs = room.queue.first?.id === ticket.id ? 0 : ticket.acceptMs / 6
  return Math.ceil(Math.min(staying, Math.max(leastMs, untilChange(room, time))))
}

/** Milliseconds until the passing of time alone may admit a ticket; at least 1, so that no client asks in a busy loop. */
function untilChange(room: Room, time: StoreTime): number {
  let change = room.closedUntil > time.ms ? room.closedUntil : Number.POSITIVE_INFINITY
  for (let entry = room.holders.first; entry !== undefined; entry = entry.next)
    change = Math.min(change, entry.value.expiresAt)
  return change === Number.POSITIVE_INFINITY ? 1 : Math.max(1, Math.ceil(change - time.ms))
}

function countAhead(room: Room, id: string): number {
  let ahead = 0
  for (const waiting of room.queue.keys()) {
    if (waiting === id) break
    ahead += 1
  }
  return ahead
}
