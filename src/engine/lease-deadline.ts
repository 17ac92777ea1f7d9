import { elapsedMs, type Instant } from '../base/clock.ts'
import { usableMs } from '../base/validity.ts'

export interface LeaseOptions {
  readonly renew: boolean
  readonly maxHoldMs: number
  /** A ticket of our own beside a caller's key: no event tells of it. */
  readonly quiet?: boolean | undefined
}

/**
 * How long a lease may be used: until `askedAt + usable(ttl)` of the latest request that the store has confirmed, and not
 * beyond its `maxHold`. Every question takes the moment it is asked for, so that one look at the clocks serves several.
 *
 * What a lease is built on, and not a thing it has: as an object of its own it took 40 bytes more, and with ten thousand
 * leases to renew every object that has to be fetched from memory is felt.
 */
export class Term {
  readonly options: LeaseOptions
  /** The confirmed request that reaches furthest: before it was written, and what it may be used for from then on. */
  #askedAt: Instant
  #usableMs: number
  readonly #since: Instant

  constructor(askedAt: Instant, ttlMs: number, options: LeaseOptions) {
    this.options = options
    this.#askedAt = askedAt
    this.#usableMs = usableMs(ttlMs)
    this.#since = askedAt
  }

  /** How much earlier than planned it may be renewed. One that is not renewed is due at its end, and not before. */
  get slackMs(): number {
    return this.options.renew ? this.#usableMs / 10 : 0
  }

  confirm(askedAt: Instant, ttlMs: number): void {
    const usable = usableMs(ttlMs)
    // A late answer to an earlier request may prove less than what is known by now.
    if (askedAt.monotonicMs + usable <= this.#askedAt.monotonicMs + this.#usableMs) return
    this.#askedAt = askedAt
    this.#usableMs = usable
  }

  /** What is left of what the store has confirmed. */
  confirmedMs(at: Instant): number {
    return this.#usableMs - elapsedMs(this.#askedAt, at)
  }

  /** What the holder may use of it. */
  leftMs(at: Instant): number {
    return Math.min(this.confirmedMs(at), endOf(this.#since, this.options) - at.monotonicMs)
  }

  isOverAt(at: Instant): boolean {
    return this.leftMs(at) <= 0
  }

  /** The end on the monotonic clock. From `at`, by both clocks: on one alone it would be late by as long as the machine slept. */
  deadlineAt(at: Instant): number {
    return at.monotonicMs + this.leftMs(at)
  }

  /** Whether it was asked for before that moment of the monotonic clock, which is known: infinity is none. */
  isOlderThan(monotonicMs: number): boolean {
    return monotonicMs !== Number.POSITIVE_INFINITY && this.#since.monotonicMs <= monotonicMs
  }

  isUsedUp(at: Instant): boolean {
    return at.monotonicMs >= endOf(this.#since, this.options)
  }

  heldMs(at: Instant): number {
    return at.monotonicMs - this.#since.monotonicMs
  }
}

/** `maxHold` on the monotonic clock. One sum each time: split, its rest may be above 0 when its time has come. */
function endOf(since: Instant, { maxHoldMs }: LeaseOptions): number {
  return since.monotonicMs + maxHoldMs
}
