import type { Abortable } from '../base/signal-watch.ts'
import type { Ticket } from '../contract/store.ts'
import type { HoldfastError } from '../errors.ts'
import type { ClockSample } from './granted-at.ts'
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
  /** Told of the wait. It detects deadlocks, for instance. */
  readonly watch: WaitWatch | undefined
}

/** Follows the place of one request in the queue. */
export interface WaitWatch {
  /**
   * Called whenever the store says that the ticket waits. `new`: it was put into the queue, for the first time or because
   * the store had forgotten it. An error that this returns ends the wait.
   *
   * `sample`: when the store was asked. Undefined if the store does not tell its time, if the ticket was asked for more than once,
   * and in the `localQueue` of a store.
   *
   * `wait`: ends the wait later, as the caller's signal would.
   */
  queued(place: 'new' | 'same', sample: ClockSample | undefined, wait: Abortable): HoldfastError | undefined
  /** The ticket does not wait any more, as far as is known. It may be put into the queue anew, and it may never have waited. */
  left(): void
}
