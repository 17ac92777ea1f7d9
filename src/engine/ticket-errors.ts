import type { Ticket } from '../contract/store.ts'
import {
  AcquireTimeoutError,
  ClosedError,
  isHoldfastError,
  type KeyHolder,
  LeaseLostError,
  type LossReason,
  QueueFullError,
  StoreError,
} from '../errors.ts'

/**
 * The key was not free in time. `ahead`: how many the store last said were before it. `isHeldHere`: these locks hold the key
 * themselves, perhaps by the call that waits for it.
 */
export function timeoutOf(
  ticket: Ticket,
  waitedMs: number,
  { ahead, isHeldHere, holder }: LastSeen,
): AcquireTimeoutError {
  const place = ahead === undefined ? '' : ` (last seen with ${ahead} ahead)`
  const advice = isHeldHere
    ? 'These locks hold it themselves, by a lease that was not released yet. If this call runs under that lease, pass the lease along instead. Otherwise wait longer with `wait`.'
    : 'Wait longer with `wait`, or use a try… call to go on without it.'
  return new AcquireTimeoutError(
    `${JSON.stringify(ticket.key)} was not free within ${waitedMs} ms${place}. ${advice}`,
    { key: ticket.key, waitedMs, ahead, holder },
  )
}

interface LastSeen {
  readonly ahead: number | undefined
  readonly isHeldHere: boolean
  readonly holder: KeyHolder | undefined
}

/** So many wait for the key already that this ticket may not. */
export function fullOf(ticket: Ticket, ahead: number, maxWaiting: number): QueueFullError {
  const wait = ahead === 1 ? '1 call waits' : `${ahead} calls wait`
  return new QueueFullError(
    `${JSON.stringify(ticket.key)} is held, and ${wait} for it already (\`maxWaiting\`: ${maxWaiting}). Try again later, or go on without it.`,
    { key: ticket.key },
  )
}

/** The time is over, and nobody knows whether the key was free. */
export function silenceOf({ key }: Ticket, store: string, waitedMs: number, cause: unknown): StoreError {
  // What the store itself said last is in the words of Holdfast, and says why.
  const why = isHoldfastError(cause)
    ? `${JSON.stringify(key)} was not acquired within ${waitedMs} ms. ${cause.message}`
    : `The ${store} store did not answer within ${waitedMs} ms, so ${JSON.stringify(key)} was not acquired. ${ADVICE}`
  return new StoreError('store-unavailable', why, { key, cause })
}

/** The store left the place of this ticket empty in its answer to a renewal. Nobody knows whether the ticket still holds. */
export function noAnswer({ key }: Ticket): StoreError {
  return new StoreError('store-unavailable', 'The store gave no answer to a renewal.', { key })
}

export const ADVICE =
  'Check that it runs and can be reached, and that it speaks TLS if this process does, and only then.'

export function evictionOf(ticket: Ticket, evictedBecause: string | undefined): LeaseLostError {
  return new LeaseLostError(
    `The ticket for ${JSON.stringify(ticket.key)} was evicted while it waited: ${evictedBecause ?? 'no reason given'}.`,
    { key: ticket.key, reason: 'evicted', evictedBecause },
  )
}

export function lossOf(
  ticket: Ticket,
  why: string,
  details: { reason: LossReason; evictedBecause: string | undefined; cause: unknown },
): LeaseLostError {
  return new LeaseLostError(
    `The lease on ${JSON.stringify(ticket.key)} is over. ${why} Stop writing: others may hold the key.`,
    { key: ticket.key, ...details },
  )
}

export function releasedOf(ticket: Ticket): LeaseLostError {
  const message = `The lease on ${JSON.stringify(ticket.key)} was released by its holder. Acquire the key again to go on.`
  return new LeaseLostError(message, { key: ticket.key, reason: 'released' })
}

/** The locks were closed under a call. */
export function closedDuring(key: string, what: 'held' | 'waited for' | 'observed'): ClosedError {
  const advice = what === 'held' ? 'Others may hold it now: stop writing. ' : ''
  return new ClosedError(
    `These locks were closed while ${JSON.stringify(key)} was ${what}. ${advice}Let all work end before close().`,
    { key },
  )
}

export function closedError(key?: string): ClosedError {
  return new ClosedError(
    'Expected open locks, got locks that were closed. Make new ones with createLocks(…).',
    { key },
  )
}

/** The store, or what stands in for one, said something that the contract does not know. */
export function invalidAnswer(): Error {
  return new Error('The store gave an invalid answer.')
}
