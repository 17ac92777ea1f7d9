import type { Ticket } from '../contract/store.ts'
import type { HoldfastError } from '../errors.ts'
import type { LeaseOptions } from './lease-deadline.ts'

export interface AcquireRequest {
  readonly ticket: Ticket
  /** How long to wait in all. 0: never wait, and `null` is the answer if the key is busy. */
  readonly waitMs: number
  /**
   * How long the store may give no answer. Default: as long as the caller waits. For a caller that does not wait: 5 s, and not at all if
   * no server is there.
   */
  readonly storeTimeoutMs?: number | undefined
  /** How many may wait for the key, this request included. Default: no limit. */
  readonly maxWaiting?: number | undefined
  readonly signal: AbortSignal | undefined
  readonly lease: LeaseOptions
  /** When the call began, on the monotonic clock, if it began before this key was asked for. For messages. */
  readonly startedAtMs?: number | undefined
  /**
   * Called whenever the store says that the ticket waits. `new`: it was put into the queue, for the first time or because
   * the store had forgotten it. An error that it returns ends the wait. For the detection of deadlocks.
   */
  readonly whileQueued: ((place: 'new' | 'same') => HoldfastError | undefined) | undefined
}
