import { TTL_RANGE } from '../base/duration.ts'
import type { Locks } from '../index.ts'
import { KnownRefusals } from './known-refusals.ts'
import type { RateLimiter } from './rate-limiter.ts'

export interface WindowSettings {
  readonly points: number
  readonly windowMs: number
}

/**
 * A rate limiter over the store of the locks: a log of what has begun, without a gap at its edges. Each point is a permit of a
 * semaphore that nobody renews and nobody gives back, so the store frees it one window after it was taken.
 */
export class WindowLimiter implements RateLimiter {
  readonly points: number
  readonly #locks: Locks
  readonly #name: string
  readonly #heldMs: number
  readonly #known = new KnownRefusals()
  /** The questions that are under way. Under load many calls are refused at once, and one answer is enough for them. */
  readonly #looks = new Map<string, Promise<TakenPoints>>()

  constructor(locks: Locks, name: string, { points, windowMs }: WindowSettings) {
    this.points = points
    this.#locks = locks
    this.#name = name
    // Stores count whole milliseconds, so a hold may end up to one millisecond early.
    this.#heldMs = Math.min(windowMs + 1, TTL_RANGE.mostMs)
  }

  /** How long such a call is refused, in milliseconds, if this process knows it. Undefined if only the store can say. */
  refusesMs(key: string, units: number): number | undefined {
    return this.#known.untilFreeMs(key, units)
  }

  async consume(key: string, units = 1): Promise<unknown> {
    if (this.refusesMs(key, units) === undefined) {
      // No name of a limit is empty, so this is nobody's slot.
      const window = this.#locks.semaphore(`:${this.#name}:${key}`, this.points)
      const point = await window.tryAcquire({ ...POINT, ttl: this.#heldMs, units })
      if (point !== null) return point.detach()
    }
    // As the limiters of rate-limiter-flexible refuse.
    return Promise.reject({ msBeforeNext: await this.#untilFreeMs(key, units) })
  }

  async #untilFreeMs(key: string, units: number): Promise<number> {
    const known = this.#known.untilFreeMs(key, units)
    if (known !== undefined) return known
    const { askedAt, ends } = await this.#look(key)
    const untilFreeMs = freeAfterMs(ends, { units, limit: this.points })
    if (untilFreeMs > 0) this.#known.add(key, { units, askedAt, untilFreeMs })
    return untilFreeMs
  }

  #look(key: string): Promise<TakenPoints> {
    const underWay = this.#looks.get(key)
    if (underWay !== undefined) return underWay
    const look = lookAt(this.#locks, `:${this.#name}:${key}`).finally(() => this.#looks.delete(key))
    this.#looks.set(key, look)
    return look
  }
}

/** Whatever the defaults of the locks are. */
const POINT = { renew: false, minHold: 0, lockDelay: 0 } as const

/** Which points are taken, those first that come back first. `askedAt` is on the clock of `performance.now()`. */
interface TakenPoints {
  readonly askedAt: number
  readonly ends: readonly (Taken & { readonly remainingMs: number })[]
}

/** `limit`: the number of points of the process that took them. In a deployment it may be another one than here. */
interface Taken {
  readonly units: number
  readonly limit: number
}

async function lookAt(locks: Locks, key: string): Promise<TakenPoints> {
  const askedAt = performance.now()
  const { holders = [] } = (await locks.peek(key)) ?? {}
  return { askedAt, ends: [...holders].sort((one, other) => one.remainingMs - other.remainingMs) }
}

/** How long it takes until the store admits it: until all points together fit into the limit of each process that has some of them. */
function freeAfterMs(ends: TakenPoints['ends'], asked: Taken): number {
  let { units, limit } = asked
  for (const end of [...ends].reverse()) {
    units += end.units
    limit = Math.min(limit, end.limit)
    if (units > limit) return end.remainingMs
  }
  return 0
}
