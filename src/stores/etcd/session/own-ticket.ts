import type { Ticket } from '../../../contract/store.ts'
import type { Lease } from './leases.ts'

/** A ticket that this process keeps alive: its key is bound to one of our leases. */
export interface OwnTicket {
  /** As it was last asked for. */
  ticket: Ticket
  /** Its key in etcd. */
  readonly name: string
  readonly createRevision: number
  readonly fence: bigint
  /** Whoever finds another one has found that somebody else has taken it over, or removed it. */
  modRevision: number
  /** What its key is bound to: the lease of waiters until it is its turn, and then one that lasts for its term. */
  lease: Lease
  /** The one by which it holds, or will: kept alive while it waits, so that it can be promised its ttl at once. */
  readonly holdLease: Lease
  /** Bound to a lease that lasts for its minimum hold. */
  pinned: boolean
  /** By the wall clock, for people. */
  readonly at: number
  state: 'waiting' | 'offered' | 'held' | 'leaving' | 'ended'
  /** By the monotonic clock: the end of its ttl, of its acceptance term, or of its minimum hold after a release. */
  until: number
  rememberedUntil: number
  /** When it was asked about last. */
  heardAt: number
  /** The end of its minimum hold; 0 without one, before it was confirmed, and once it is over. */
  holdUntil: number
  heldSince: number
  /** When its room is looked at, to hear of an eviction, should it still be held. */
  attendAt: number
  /** An acquire of it may still be on its way. */
  isDoubtful: boolean
  /** Set while its key is being deleted. */
  ending: Promise<void> | undefined
  /** Questions about it that are under way: it is answered by these, and needs no wake. */
  questions: number
  /** The revision of its key when it was asked about last; the first time, the room is as new as the request before. */
  askedRevision: number
}

/** How long its key has to outlast its last sign of life. */
export function termMs({ ttlMs, lockDelayMs }: Ticket): number {
  return ttlMs + lockDelayMs
}
