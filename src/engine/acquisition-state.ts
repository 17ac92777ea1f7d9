import type { HeldLease } from './held-lease.ts'

/** The states of an {@link Acquisition}, where the transitions between them are listed. */
export type AcquisitionState = Asking | Waiting | Over

/** The store has not said yet that the ticket waits, or has forgotten it. */
export interface Asking {
  readonly tag: 'asking'
  /** Acquire requests in a row without an answer that counts. */
  attempts: number
  /** Whether the latest of them has neither an answer nor failed. */
  silent: boolean
  lastError: unknown
}

/** The ticket is in the queue. Its renewals keep it there, and confirm an offer. */
export interface Waiting {
  readonly tag: 'waiting'
  /** How many others the store last said were before it. */
  readonly ahead: number | undefined
  /** Renewals in a row without an answer. */
  attempts: number
  /** When it was renewed last, on the monotonic clock. */
  lastAskedAt: number
  askAgainAt: number
  /** How much sooner than `askAgainAt` it may be renewed, to share a request with others. */
  slackMs: number
  lastError: unknown
}

/** It has ended. */
export interface Over {
  readonly tag: 'over'
  /** What the caller was given. */
  readonly lease: HeldLease | undefined
}

export function newAsking(): Asking {
  return { tag: 'asking', attempts: 0, silent: false, lastError: undefined }
}

export function newWaiting(ahead: number | undefined): Waiting {
  return {
    tag: 'waiting',
    ahead,
    attempts: 0,
    lastAskedAt: 0,
    askAgainAt: 0,
    slackMs: 0,
    lastError: undefined,
  }
}

/** Whether the store does not answer, so that nobody knows whether the key is still taken. */
export function isSilent({ attempts, lastAskedAt, lastError }: Waiting, at: number): boolean {
  if (lastError !== undefined || attempts > 1) return true
  return attempts === 1 && at - lastAskedAt > SILENCE_MS
}

/** A request that is unanswered for this long says that the store is silent, and not that the key is taken. */
export const SILENCE_MS = 500
