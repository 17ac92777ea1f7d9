import type { Instant } from '../base/instant.ts'
import type { Clock } from '../contract/clock.ts'

export { elapsedMs, type Instant, usableMs } from '../base/instant.ts'

/**
 * A question to the store: before it was written, and when its answer was there. Where the store answered in the same tick
 * that is one and the same look at the clocks.
 */
export interface Exchange {
  readonly askedAt: Instant
  readonly answeredAt: Instant
}

export function now(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() }
}
