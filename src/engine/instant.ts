import type { Instant } from '../base/instant.ts'
import type { Clock } from '../contract/clock.ts'
import type { Store } from '../contract/store.ts'

export { elapsedMs, type Instant, usableMs } from '../base/instant.ts'

/**
 * A question to the store: before it was written, and when its answer was there. Where the store answered in the same tick
 * that is one and the same look at the clocks.
 */
export interface Exchange {
  readonly askedAt: Instant
  readonly answeredAt: Instant
}

/** One look at the clocks that matter for leases of a store. */
export function now(clock: Clock, { inProcess }: Store): Instant {
  const monotonicMs = clock.monotonicMs()
  return { monotonicMs, wallMs: inProcess === true ? monotonicMs : clock.wallMs() }
}
