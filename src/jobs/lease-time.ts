/** One look at both clocks. */
export interface Instant {
  readonly monotonicMs: number
  readonly wallMs: number
}

export function now(): Instant {
  return { monotonicMs: performance.now(), wallMs: Date.now() }
}

/** The larger of what the two clocks say: the monotonic one stands still while a machine is suspended. */
export function elapsedMs(since: Instant): number {
  return Math.max(performance.now() - since.monotonicMs, Date.now() - since.wallMs)
}

/**
 * How much of a ttl may be used, counted from before the request was written: the database starts counting later. What is
 * left covers clocks of different rates (0.5 %) and a timer that fires late; the same as for every lease of Holdfast.
 */
export function usableMs(ttlMs: number): number {
  return ttlMs - ttlMs * 0.005 - Math.min(ttlMs / 20, 250)
}
