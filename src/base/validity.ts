/**
 * How much of a ttl the holder may use, counted from before the request was written. Leases, claimed jobs, and the
 * votes of a redlock lease all follow this rule. The store starts counting later, so it frees the key later. The rest
 * of the ttl covers clocks that run at different rates (as docs/which-store.md assumes) and a timer that fires late.
 * Source: the Redlock validity time (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), with a
 * larger allowance.
 */
export function usableMs(ttlMs: number): number {
  return ttlMs - ttlMs * CLOCK_RATE_ERROR - Math.min(ttlMs / 20, MARGIN_MS)
}

/** The rates of two clocks differ by no more than this: 0.5 %. */
export const CLOCK_RATE_ERROR = 0.005
const MARGIN_MS = 250
