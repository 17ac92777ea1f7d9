/** One look at both clocks of this process. */
export interface Moment {
  readonly monotonicMs: number
  readonly wallMs: number
}

export function moment(): Moment {
  return { monotonicMs: performance.now(), wallMs: Date.now() }
}

/** Whichever clock says that more time has passed: the monotonic one stands still while a machine sleeps, the lease does not. */
export function elapsedMs(since: Moment): number {
  return Math.max(performance.now() - since.monotonicMs, Date.now() - since.wallMs)
}
