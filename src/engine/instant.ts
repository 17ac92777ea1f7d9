import type { Instant } from '../base/clock.ts'
import type { Clock } from '../contract/clock.ts'
import type { Store } from '../contract/store.ts'

/**
 * When a request to the store was made (before it was written), and when its answer arrived. If the store answered in the
 * same tick, both are one and the same look at the clocks.
 */
export interface Exchange {
  readonly askedAt: Instant
  readonly answeredAt: Instant
}

/**
 * Reads the clocks that matter for leases of a store. Memory that ends with this process has no use for the wall clock.
 */
export function now(clock: Clock, { inProcess }: Store): Instant {
  const monotonicMs = clock.monotonicMs()
  return { monotonicMs, wallMs: inProcess === true ? monotonicMs : clock.wallMs() }
}
