export interface Backoff {
  /** The pause after the first failure. It doubles with each further failure in a row. */
  readonly firstMs: number
  readonly longestMs: number
  /**
   * Which part of the pause is random, from 0 (none) to 1 (all of it). If a server goes away, many processes fail at
   * the same moment. Without jitter they would come back at the same moment, too. (Brooker, Exponential backoff and
   * jitter, AWS Architecture Blog, 2015.)
   */
  readonly jitter: number
}

/** The pause after the n-th failure in a row; `failures` counts from 1. `chance` gives numbers from 0 to below 1. */
export function backoffMs(
  { firstMs, longestMs, jitter }: Backoff,
  failures: number,
  chance: () => number = Math.random,
): number {
  const doublings = Math.min(Math.max(0, failures - 1), MOST_DOUBLINGS)
  return Math.min(firstMs * 2 ** doublings, longestMs) * (1 - jitter + jitter * chance())
}

/** From 1 ms to more than 24 days, the longest duration there is. */
const MOST_DOUBLINGS = 31
