import {
  type AcquireAnswer,
  GONE,
  type LocalWaiter,
  type ReleaseAnswer,
  type ReleaseRequest,
  type RenewAnswer,
  type Ticket,
} from '../contract/store.ts'
import { drop, type Room, type StoreTime } from './room.ts'

/**
 * All that there is to know of a key that one confirmed ticket holds at most, that nobody waits for except in this process, and that
 * has neither a minimum hold, nor a lock-delay, nor tombstones. Nearly every key is like that at any time.
 *
 * The functions below do to such a key what the verbs of a {@link Room} do, or return undefined and change nothing: then it
 * takes a room. Tests compare both on random histories. A lone key takes a third of the memory of a room and of its holder, so a
 * million leases stop the process for that much less when the garbage collector looks at them.
 */
export class Lone {
  /** The ticket that holds. */
  ticket: Ticket | undefined = undefined
  /** The last fence given. It is that of the ticket, if one holds. */
  fence: number
  /** When the ticket was admitted, and when it expires. */
  since = 0
  expiresAt = 0
  /** Those who wait in this process. Undefined: none. If some wait, a ticket holds. */
  queue: LoneQueue | undefined = undefined

  constructor(lastFence: number) {
    this.fence = lastFence
  }
}

/** The waiters of a lone key, as the linked list that they are themselves. */
export class LoneQueue {
  first: LocalWaiter
  last: LocalWaiter
  size = 1

  constructor(only: LocalWaiter) {
    this.first = only
    this.last = only
  }
}

export function acquireLone(lone: Lone, ticket: Ticket, { ms, us }: StoreTime): AcquireAnswer | undefined {
  const { ticket: holder } = lone
  if (holder !== undefined && lone.expiresAt > ms) {
    if (holder.id !== ticket.id) {
      // A ticket that never waits must not move those who do into a room.
      if (ticket.patienceMs > 0 || !isExclusive(holder)) return undefined
      return { tag: 'busy', retryMs: Math.max(1, Math.ceil(lone.expiresAt - ms)) }
    }
    confirm(lone, ticket, ms)
  } else {
    if (lone.queue !== undefined) return undefined
    if (holder !== undefined && !isPlain(holder)) return undefined
    if (!isPlain(ticket) || ticket.units > ticket.limit) return undefined
    enter(lone, ticket, ms, us)
  }
  return { tag: 'held', fence: BigInt(lone.fence) }
}

/** {@link acquireLone} for a key that nobody holds. */
export function enterLone(lone: Lone, ticket: Ticket, ms: number, us: number): boolean {
  if (lone.ticket !== undefined || !isPlain(ticket) || ticket.units > ticket.limit) return false
  enter(lone, ticket, ms, us)
  return true
}

export function renewLone(lone: Lone, ticket: Ticket, { ms }: StoreTime): RenewAnswer | undefined {
  const { ticket: holder } = lone
  if (holder === undefined) return GONE
  if (lone.expiresAt <= ms) {
    if (!isPlain(holder) || lone.queue !== undefined) return undefined
    lone.ticket = undefined
    return GONE
  }
  if (holder.id !== ticket.id) return isQueued(lone, ticket.id) ? undefined : GONE
  confirm(lone, ticket, ms)
  return { tag: 'held', fence: BigInt(lone.fence) }
}

/** If it returns {@link HELD} and the key has a queue, call {@link admitNext}. */
export function releaseLone(
  lone: Lone,
  { id, cancel }: ReleaseRequest,
  { ms }: StoreTime,
): ReleaseAnswer | undefined {
  const { ticket: holder } = lone
  if (cancel) return undefined
  if (holder === undefined) return UNKNOWN
  if (lone.expiresAt <= ms) {
    if (!isPlain(holder) || lone.queue !== undefined) return undefined
    lone.ticket = undefined
    return UNKNOWN
  }
  if (holder.id !== id) return isQueued(lone, id) ? undefined : UNKNOWN
  lone.ticket = undefined
  return HELD
}

/** Puts a waiter to the end of the queue. Returns false and changes nothing if nobody holds, or if that takes a room. */
export function enterQueue(lone: Lone, waiter: LocalWaiter, ms: number): boolean {
  const { ticket: holder, queue } = lone
  const { ticket } = waiter
  if (holder === undefined || lone.expiresAt <= ms || !isExclusive(ticket) || !isPlain(ticket)) return false
  waiter.since = ms
  if (queue === undefined) {
    if (!isExclusive(holder) || !isPlain(holder)) return false
    lone.queue = new LoneQueue(waiter)
    return true
  }
  waiter.ahead = queue.size
  waiter.before = queue.last
  queue.last.behind = waiter
  queue.last = waiter
  queue.size += 1
  return true
}

export function leaveQueue(lone: Lone, waiter: LocalWaiter): void {
  const { queue } = lone
  const { before, behind } = waiter
  if (queue === undefined || (before === undefined && queue.first !== waiter)) return
  waiter.before = undefined
  waiter.behind = undefined
  queue.size -= 1
  if (before !== undefined) before.behind = behind
  else if (behind !== undefined) queue.first = behind
  else {
    lone.queue = undefined
    return
  }
  if (behind !== undefined) behind.before = before
  else if (before !== undefined) queue.last = before
}

/** The ticket that held is gone: the head of the queue holds. Returns it, and whoever calls this tells it. */
export function admitNext(lone: Lone, ms: number, us: number): LocalWaiter | undefined {
  const { queue } = lone
  if (queue === undefined) return undefined
  const { first } = queue
  const { behind } = first
  if (behind === undefined) lone.queue = undefined
  else {
    queue.first = behind
    queue.size -= 1
    behind.before = undefined
    first.behind = undefined
  }
  enter(lone, first.ticket, ms, us)
  return first
}

export function queueOf({ queue }: Lone): LocalWaiter[] {
  const waiters: LocalWaiter[] = []
  for (let waiter = queue?.first; waiter !== undefined; waiter = waiter.behind) waiters.push(waiter)
  return waiters
}

/** Makes an empty room the one of such a key. Its waiters are remembered as if they had asked at this moment. */
export function fillLone(room: Room, lone: Lone, ms: number): void {
  const { ticket, fence, since, expiresAt } = lone
  room.lastFence = fence
  for (const waiter of queueOf(lone)) {
    const rememberedUntil = ms + waiter.ticket.patienceMs
    room.queue.set(waiter.ticket.id, {
      ticket: waiter.ticket,
      since: waiter.since,
      heardAt: ms,
      rememberedUntil,
    })
  }
  if (ticket === undefined) return
  room.holders.set(ticket.id, { ticket, fence, since, state: 'held', expiresAt, holdUntil: 0 })
  room.sum.add(ticket)
  room.nextExpiry = expiresAt
}

/** Whether a {@link Lone} can say all that the room knows. */
export function isLone({ holders, queue, tombstones, closedUntil, lastFence }: Room): boolean {
  if (queue.size > 0 || tombstones.size > 0 || closedUntil !== 0 || holders.size > 1) return false
  const holder = holders.first?.value
  if (holder === undefined) return true
  return holder.state === 'held' && holder.holdUntil === 0 && holder.fence === lastFence
}

/** Takes out of such a room, or of an idle one, what is to be kept of it. The room is as good as new then. */
export function emptyLone(room: Room, lone: Lone): void {
  const holder = room.holders.first?.value
  lone.fence = room.lastFence
  lone.ticket = holder?.ticket
  if (holder !== undefined) {
    lone.since = holder.since
    lone.expiresAt = holder.expiresAt
    drop(room, holder.ticket.id, holder)
  }
  room.closedUntil = 0
  room.nextExpiry = Number.POSITIVE_INFINITY
}

/** Whether a minimum hold or a lock-delay has anything to say about the ticket. */
export function isPlain({ minHoldMs, lockDelayMs }: Ticket): boolean {
  return minHoldMs === 0 && lockDelayMs === 0
}

/** Whether the ticket admits no other beside it. */
function isExclusive({ units, limit }: Ticket): boolean {
  return units === limit
}

function isQueued({ queue }: Lone, id: string): boolean {
  for (let waiter = queue?.first; waiter !== undefined; waiter = waiter.behind)
    if (waiter.ticket.id === id) return true
  return false
}

function enter(lone: Lone, ticket: Ticket, ms: number, us: number): void {
  lone.ticket = ticket
  lone.fence = Math.max(lone.fence + 1, us)
  lone.since = ms
  lone.expiresAt = ms + Math.max(ticket.acceptMs, ticket.ttlMs)
}

/** Never sooner than an earlier answer promised: a request with a shorter ttl may arrive late. */
function confirm(lone: Lone, { ttlMs }: Ticket, ms: number): void {
  lone.expiresAt = Math.max(lone.expiresAt, ms + ttlMs)
}

const HELD: ReleaseAnswer = { was: 'held' }
const UNKNOWN: ReleaseAnswer = { was: 'unknown' }
