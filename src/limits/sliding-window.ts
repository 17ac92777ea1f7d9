import { TTL_RANGE } from '../base/duration.ts'
import type { Locks } from '../index.ts'
import type { RateLimiter } from './rate-limiter.ts'

export interface WindowSettings {
  readonly points: number
  readonly windowMs: number
}

/**
 * A rate limiter over the store of the locks: a log of what has begun, without a gap at its edges. Each point is a permit of a
 * semaphore that nobody renews and nobody gives back, so the store frees it one window after it was taken.
 */
export function slidingWindow(locks: Locks, name: string, { points, windowMs }: WindowSettings): RateLimiter {
  // Stores count whole milliseconds, so a hold may end up to one millisecond early.
  const heldMs = Math.min(windowMs + 1, TTL_RANGE.mostMs)
  return {
    points,
    async consume(key, units = 1) {
      // No name of a limit is empty, so this is nobody's slot.
      const window = locks.semaphore(`:${name}:${key}`, points)
      const point = await window.tryAcquire({ ...POINT, ttl: heldMs, units })
      if (point !== null) return point.detach()
      // As the limiters of rate-limiter-flexible refuse.
      return Promise.reject({ msBeforeNext: await untilFree(locks, window.key, points - units) })
    },
  }
}

/** Whatever the defaults of the locks are. */
const POINT = { renew: false, minHold: 0, lockDelay: 0 } as const

/** How long it takes until no more than `most` points are taken. */
async function untilFree(locks: Locks, key: string, most: number): Promise<number> {
  const { holders = [] } = (await locks.peek(key)) ?? {}
  let taken = holders.reduce((sum, { units }) => sum + units, 0)
  const inOrder = [...holders].sort((one, other) => one.remainingMs - other.remainingMs)
  for (const { units, remainingMs } of inOrder) {
    taken -= units
    if (taken <= most) return remainingMs
  }
  return 0
}
