import type { Instant } from '../base/clock.ts'
import { CLOCK_RATE_ERROR } from '../base/validity.ts'
import type { Granted, RenewAnswer } from '../contract/store.ts'
import type { EngineContext } from './engine-context.ts'

/** What one answer tells about the store's clock: it showed `storeMs` at a moment that was not before `askedAt`. */
export interface ClockSample {
  readonly askedAt: Instant
  readonly storeMs: number
}

export type QueuedAnswer = Extract<RenewAnswer, { tag: 'queued' }>

/** Undefined if this store's messages are never leases. */
export function sampleOf({ storeMs }: QueuedAnswer, askedAt: Instant): ClockSample | undefined {
  return storeMs === undefined ? undefined : { askedAt, storeMs }
}

/**
 * The latest moment on our clocks that was surely not after the grant. The lease counts from there; {@link Granted} has the
 * argument. Undefined if the store has not told its time yet, or if the message is older than that answer: since then the store
 * has said that the ticket waits.
 *
 * The clocks stand still or jump: our monotonic clock while the machine is suspended, our wall clock and the store's clock when
 * somebody sets them. So no clock is ever taken to be beyond `arrivedAt`. Each of our clocks is carried on by itself, and the
 * lease is over as soon as one of them says so.
 */
export function grantedAt(
  { storeMs }: Granted,
  sample: ClockSample | undefined,
  arrivedAt: Instant,
): Instant | undefined {
  if (sample === undefined) return undefined
  const sinceMs = storeMs - sample.storeMs
  if (sinceMs < 0) return undefined
  const leastMs = sinceMs * (1 - CLOCK_RATE_ERROR)
  const { monotonicMs, wallMs } = sample.askedAt
  return {
    monotonicMs: Math.min(monotonicMs + leastMs, arrivedAt.monotonicMs),
    wallMs: Math.min(wallMs + leastMs, arrivedAt.wallMs),
  }
}

/**
 * Whether the message of a grant is taken where it comes, and not at the end of the tick. Within this process the end of the tick
 * would cost more than the rest of the hand-over. But a listener must not run inside of the release that sends the message.
 */
export function isTakenAtOnce({ store, events }: Pick<EngineContext, 'store' | 'events'>): boolean {
  return store.inProcess === true && !events.acquired.isHeard
}
