/**
 * The part of a limiter that a limit uses. Each limiter of the `rate-limiter-flexible` package has it. `consume`
 * resolves when it has taken the points. It rejects with an `Error` if its store failed, and with an object that has
 * `msBeforeNext` if there are too few points.
 */
export interface RateLimiter {
  /** Takes points of this key. Default of `points`: 1. */
  consume(key: string, points?: number): Promise<unknown>
  /** How many there are in a window, where the limiter says. */
  readonly points?: number
}
