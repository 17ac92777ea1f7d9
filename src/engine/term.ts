import { elapsedMs, type Instant, usableMs } from './instant.ts'

interface Hold {
  readonly maxHoldMs: number
}

/**
 * How long a lease may be used: until `askedAt + usable(ttl)` of the latest request that the store has confirmed, and not
 * beyond its `maxHold`. Every question takes the moment it is asked for, so that one look at the clocks serves several.
 */
export class Term {
  /** The confirmed request that reaches furthest: before it was written, and what it may be used for from then on. */
  #askedAt: Instant
  #usableMs: number
  readonly #since: Instant
  readonly #hold: Hold

  constructor(askedAt: Instant, ttlMs: number, hold: Hold) {
    this.#askedAt = askedAt
    this.#usableMs = usableMs(ttlMs)
    this.#since = askedAt
    this.#hold = hold
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
  remainingMs(at: Instant): number {
    return Math.min(this.confirmedMs(at), this.#endsAt - at.monotonicMs)
  }

  /** The end on the monotonic clock. From `at`, by both clocks: on one alone it would be late by as long as the machine slept. */
  deadlineAt(at: Instant): number {
    return at.monotonicMs + this.remainingMs(at)
  }

  isUsedUp(at: Instant): boolean {
    return at.monotonicMs >= this.#endsAt
  }

  heldMs(at: Instant): number {
    return at.monotonicMs - this.#since.monotonicMs
  }

  /** `maxHold` on the monotonic clock. One sum each time: split, its rest may be above 0 when its time has come. */
  get #endsAt(): number {
    return this.#since.monotonicMs + this.#hold.maxHoldMs
  }
}
