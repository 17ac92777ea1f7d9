import { TTL_RANGE } from '../base/duration.ts'
import type { InspectedHolder, Locks } from '../index.ts'
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

  /** `abandoned`: gives a point back that the store may still give, because the caller does not wait for it any more. */
  async consume(key: string, units = 1, abandoned?: AbortSignal): Promise<unknown> {
    if (this.refusesMs(key, units) === undefined) {
      // No name of a limit is empty, so this is nobody's slot.
      const window = this.#locks.semaphore(`:${this.#name}:${key}`, this.points)
      const point = await window.tryAcquire({ ...POINT, ttl: this.#heldMs, units, signal: abandoned })
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
    const look = this.#ask(`:${this.#name}:${key}`).finally(() => this.#looks.delete(key))
    this.#looks.set(key, look)
    return look
  }

  async #ask(windowKey: string): Promise<TakenPoints> {
    const askedAt = performance.now()
    const { holders = [] } = (await this.#locks.peek(windowKey)) ?? {}
    const ends = holders.map(({ units, limit, ...times }) => ({ units, limit, leftMs: this.#leftMs(times) }))
    return { askedAt, ends: ends.sort((one, other) => one.leftMs - other.leftMs) }
  }

  /**
   * How long a point is still gone. etcd does not know this of the points of another process, because all tickets of a process share a lease
   * that is renewed. So the age of the point counts, too. On etcd it depends on clocks, but a wrong clock lets nothing through: the
   * call only asks the store too early. A point may then seem older than the window. If so, the next call asks after the
   * excess has passed once more, so the pauses grow.
   */
  #leftMs({ heldMs, remainingMs }: Pick<InspectedHolder, 'heldMs' | 'remainingMs'>): number {
    return Math.min(remainingMs, Math.abs(this.#heldMs - heldMs))
  }
}

/** Whatever the defaults of the locks are. */
const POINT = { renew: false, minHold: 0, lockDelay: 0 } as const

/** Which points are taken, those first that come back first. `askedAt` is on the clock of `performance.now()`. */
interface TakenPoints {
  readonly askedAt: number
  readonly ends: readonly (Taken & { readonly leftMs: number })[]
}

/** `limit`: the number of points of the process that took them. In a deployment it may be another one than here. */
interface Taken {
  readonly units: number
  readonly limit: number
}

/** How long it takes until the store admits it: until all points together fit into the limit of each process that has some of them. */
function freeAfterMs(ends: TakenPoints['ends'], asked: Taken): number {
  let { units, limit } = asked
  for (const end of [...ends].reverse()) {
    units += end.units
    limit = Math.min(limit, end.limit)
    if (units > limit) return end.leftMs
  }
  return 0
}
