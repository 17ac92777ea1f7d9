import {
  type AcquireAnswer,
  type Gone,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type RoomView,
  type Ticket,
  TOMBSTONE_MS,
} from '../contract/store.ts'
import { Sum } from './law.ts'
import { Roster } from './roster.ts'

/**
 * The executable specification of a room: the state of one key, and what each verb does to it.
 *
 * The functions read no clock and do no I/O: the same room, ticket and time always give the same answer and the same
 * next room. They change the room in place, because the memory store runs them as they are (copying it made an
 * uncontended cycle several times slower). SQL and Lua stores are compared with them step by step on random histories.
 *
 * Every verb has the same shape: first `settle` (drop what has expired, admit who is next), then act, then settle again
 * if the act made room. `offered` names the tickets that were admitted on the way and have to be woken.
 */
export interface Room {
  readonly holders: Roster<Holder>
  /** In order of arrival. */
  readonly queue: Roster<Waiter>
  readonly tombstones: Roster<Tombstone>
  readonly sum: Sum
  /** The last fence given, in µs since 1970; the next one is larger. */
  lastFence: number
  /** Lock-delay: nobody is admitted before this. 0: there was none. */
  closedUntil: number
  /** Nothing expires before this, so most calls need not look. May be too early, never too late. */
  nextExpiry: number
}

export interface Holder {
  readonly ticket: Ticket
  readonly fence: number
  readonly since: number
  state: 'held' | 'offered' | 'leaving'
  expiresAt: number
  /** The minimum hold: set when confirmed. 0: none. */
  holdUntil: number
}

export interface Waiter {
  readonly ticket: Ticket
  readonly since: number
  /** When it asked last: when it came, or was renewed. */
  heardAt: number
  /** Forgotten, when it is the head's turn, unless it was heard of until then. */
  rememberedUntil: number
}

export interface Tombstone {
  readonly until: number
  readonly evicted: boolean
  readonly reason: string
}

/** A store's time: `ms` decides expiry, `us` (µs since 1970) is the floor of fences. Two, since a store may own two clocks. */
export interface StoreTime {
  readonly ms: number
  readonly us: number
}

export interface Outcome<A> {
  readonly answer: A
  readonly offered: readonly string[]
}

export function openRoom(fenceFloor: number): Room {
  return {
    holders: new Roster(),
    queue: new Roster(),
    tombstones: new Roster(),
    sum: new Sum(),
    lastFence: fenceFloor,
    closedUntil: 0,
    nextExpiry: Number.POSITIVE_INFINITY,
  }
}

export function acquire(room: Room, ticket: Ticket, time: StoreTime): Outcome<AcquireAnswer> {
  // Heard of before anything is dropped: a waiter that comes back late keeps its place, if it still has it.
  remember(room, ticket, time)
  const offered = settle(room, time, ticket.id)
  const known = find(room, ticket, time)
  if (known?.tag === 'queued') return { answer: { ...known, ahead: countAhead(room, ticket.id) }, offered }
  if (known !== undefined) return { answer: known, offered }
  if (room.queue.size === 0 && admits(room, ticket, time)) {
    const holder = grant(room, ticket, time)
    return { answer: confirm(holder, ticket, time), offered }
  }
  if (ticket.patienceMs === 0) return { answer: { tag: 'busy', retryMs: untilChange(room, time) }, offered }
  const rememberedUntil = time.ms + ticket.patienceMs
  room.queue.set(ticket.id, { ticket, since: time.ms, heardAt: time.ms, rememberedUntil })
  const ahead = room.queue.size - 1
  return { answer: { tag: 'queued', ahead, askAgainMs: askAgain(room, ticket, time) }, offered }
}

export function renew(room: Room, ticket: Ticket, time: StoreTime): Outcome<RenewAnswer> {
  remember(room, ticket, time)
  const offered = settle(room, time, ticket.id)
  return { answer: find(room, ticket, time) ?? GONE, offered }
}

export function release(room: Room, request: ReleaseRequest, time: StoreTime): Outcome<ReleaseAnswer> {
  const offeredBefore = settle(room, time)
  const was = depart(room, request.id, time)
  if (request.cancel) bury(room, request.id, { until: time.ms + TOMBSTONE_MS, evicted: false, reason: '' })
  const offeredAfter = was === 'unknown' ? NOBODY : settle(room, time)
  if (offeredBefore.length === 0) return { answer: { was }, offered: offeredAfter }
  // A ticket that this very call admitted and removed again need not hear of it.
  const offered = [...offeredBefore, ...offeredAfter].filter((id) => id !== request.id)
  return { answer: { was }, offered }
}

/**
 * Takes back an offer of which the store knows that nobody heard: the process of the waiter is gone. A ticket that was confirmed
 * meanwhile is not touched.
 */
export function withdrawOffer(room: Room, id: string, time: StoreTime): Outcome<undefined> {
  const offered = settle(room, time)
  const holder = room.holders.get(id)
  if (holder?.state !== 'offered') return { answer: undefined, offered }
  drop(room, id, holder)
  return { answer: undefined, offered: [...offered, ...settle(room, time)].filter((other) => other !== id) }
}

/** `offered` includes the evicted ids: their processes have to hear of it, too. */
export function evict(
  room: Room,
  request: { readonly id: string | undefined; readonly reason: string },
  time: StoreTime,
): Outcome<readonly string[]> {
  const before = settle(room, time)
  const present = [...room.holders.keys(), ...room.queue.keys()]
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
  return { answer: evicted, offered: [...new Set([...before, ...settle(room, time), ...evicted])] }
}

/** What people see of a room. Changes nothing, so what has expired is left out here and not removed. */
export function view(room: Room, key: string, time: StoreTime): RoomView {
  const holders = [...room.holders].filter(([, holder]) => holder.expiresAt > time.ms)
  const queue = [...room.queue].filter(([, waiter]) => waiter.rememberedUntil > time.ms)
  return {
    key,
    holders: holders.map(([id, holder]) => ({
      id,
      units: holder.ticket.units,
      limit: holder.ticket.limit,
      fence: BigInt(holder.fence),
      owner: holder.ticket.owner,
      heldMs: time.ms - holder.since,
      remainingMs: holder.expiresAt - time.ms,
      state: holder.state,
    })),
    queue: queue.map(([id, waiter]) => ({
      id,
      units: waiter.ticket.units,
      limit: waiter.ticket.limit,
      owner: waiter.ticket.owner,
      waitedMs: time.ms - waiter.since,
    })),
    closedMs: Math.max(0, closedUntil(room, time) - time.ms),
  }
}

/** With the lock-delay of holders that have expired and that nobody has cleared yet. */
function closedUntil(room: Room, time: StoreTime): number {
  let until = room.closedUntil
  for (const { state, expiresAt, ticket } of room.holders.values()) {
    if (state === 'held' && expiresAt <= time.ms) until = Math.max(until, expiresAt + ticket.lockDelayMs)
  }
  return until
}

/** Whether nothing but the last fence would be lost with this room. Waiters that never came back are dropped with it. */
export function isIdle(room: Room, time: StoreTime): boolean {
  // Somebody who waits is never idle, and admitting them here would lose the wake they are owed.
  for (let entry = room.queue.first; entry !== undefined; entry = entry.next)
    if (entry.value.rememberedUntil + LATE_MS > time.ms) return false
  if (room.nextExpiry <= time.ms) expire(room, time)
  const isIdle = room.holders.size === 0 && room.tombstones.size === 0 && room.closedUntil <= time.ms
  if (isIdle)
    for (let entry = room.queue.first; entry !== undefined; entry = entry.next) room.queue.delete(entry.id)
  return isIdle
}

/** A waiter that is heard of late keeps its place while its room is there. After this long nobody comes back. */
const LATE_MS = 10 * TOMBSTONE_MS
const NOBODY: readonly string[] = []
const GONE: Gone = { tag: 'gone', evicted: false }

/** Clears what has expired and admits from the head of the queue. Returns who was admitted, but for `asking` itself. */
function settle(room: Room, time: StoreTime, asking?: string): readonly string[] {
  if (room.nextExpiry <= time.ms) expire(room, time)
  let offered: string[] | undefined
  for (let entry = room.queue.first; entry !== undefined; entry = entry.next) {
    const { id, value: waiter } = entry
    if (waiter.rememberedUntil <= time.ms) {
      room.queue.delete(id)
      continue
    }
    if (!admits(room, waiter.ticket, time)) break
    room.queue.delete(id)
    grant(room, waiter.ticket, time)
    if (id !== asking) {
      offered ??= []
      offered.push(id)
    }
  }
  return offered ?? NOBODY
}

function expire(room: Room, time: StoreTime): void {
  let next = Number.POSITIVE_INFINITY
  let lapsed = false
  for (const [id, holder] of room.holders) {
    if (holder.expiresAt <= time.ms) {
      drop(room, id, holder)
      // Only a ticket that was confirmed may leave unfinished work behind.
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
 * An offer that lapses also lapses for the waiters right behind it that have been silent for an acceptance term of their own.
 * A living waiter asks sooner (see {@link askAgain}), so all the dead in front cost one acceptance term together.
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

/** Admits a ticket for the acceptance term only; whoever asks for itself confirms in the same step. */
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

function confirm(holder: Holder, ticket: Ticket, time: StoreTime): { tag: 'held'; fence: bigint } {
  if (holder.state === 'offered') {
    holder.state = 'held'
    // No minimum is no instant: one that is over would lie ahead again after the clock was set back.
    holder.holdUntil = ticket.minHoldMs > 0 ? time.ms + ticket.minHoldMs : 0
  }
  // Never sooner than promised before: a request with a shorter ttl may arrive late.
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
  if (room.queue.has(ticket.id)) return { tag: 'queued', askAgainMs: askAgain(room, ticket, time) }
  const tombstone = room.tombstones.get(ticket.id)
  if (tombstone === undefined) return undefined
  return tombstone.evicted ? { tag: 'gone', evicted: true, reason: tombstone.reason } : GONE
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

function drop(room: Room, id: string, holder: Holder): void {
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
 * When a waiter should ask again if nobody wakes it: in time to stay remembered, and to find an offer before its acceptance
 * term is over, should its wake be lost. The head also watches for the next expiry. So do the others, because all in front of
 * them may be dead; but no more often than six times in an acceptance term, because a short lease may be renewed for ever.
 */
function askAgain(room: Room, ticket: Ticket, time: StoreTime): number {
  const staying = Math.min(ticket.patienceMs / 3, (ticket.acceptMs * 2) / 3)
  // Nothing expires before: no need to look at each holder.
  if (room.closedUntil <= time.ms && room.nextExpiry - time.ms >= staying) return Math.ceil(staying)
  const leastMs = room.queue.first?.id === ticket.id ? 0 : ticket.acceptMs / 6
  return Math.ceil(Math.min(staying, Math.max(leastMs, untilChange(room, time))))
}

/** How long until the store's clock alone may let somebody in; at least 1 ms, so that nobody spins. */
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
