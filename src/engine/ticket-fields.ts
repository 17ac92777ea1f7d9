import type { Ticket } from '../contract/store.ts'

/** The fields of a ticket that follow from its ttl at any time, also when the ttl is changed. */
export function ttlFields(ttlMs: number): { ttlMs: number; acceptMs: number } {
  return { ttlMs, acceptMs: Math.min(ttlMs, ACCEPT_MS) }
}

/**
 * How long the store remembers a waiter that it does not hear of. A waiter asks three times as often. So with short leases
 * a waiter that became the head of the queue without hearing of it still watches the next expiry in time.
 */
export function patienceFor(ttlMs: number): number {
  return Math.min(Math.max(3 * ttlMs, SHORTEST_PATIENCE_MS), LONGEST_PATIENCE_MS)
}

/**
 * How long the first renewal of a waiter may take before it is sent again: as long as a waiter may be silent by the law. So one lost
 * renewal does not cost its place, also with a short ttl.
 */
export function firstRenewalMs({ acceptMs, patienceMs }: Pick<Ticket, 'acceptMs' | 'patienceMs'>): number {
  return Math.min(patienceMs / 3, (acceptMs * 2) / 3)
}

/**
 * A process that does not confirm an offer within this time is away; a garbage collection or a slow callback is shorter.
 * It is longer than a third of the patience, so an offer whose wake was lost is still found in time.
 */
const ACCEPT_MS = 3000
const SHORTEST_PATIENCE_MS = 1500
const LONGEST_PATIENCE_MS = 6000
