import { elapsedMs, type Instant, now, systemClock } from '../base/clock.ts'
import { usableMs } from '../base/validity.ts'

/** Until when this process may rely on the lease of a claimed job, by its own clocks. */
export class LeaseTime {
  readonly ttlMs: number
  #askedAt: Instant

  /** `askedAt`: before the claim was sent. */
  constructor(askedAt: Instant, ttlMs: number) {
    this.#askedAt = askedAt
    this.ttlMs = ttlMs
  }

  /** Not positive when the lease has ended. It reads the clocks, so it is right even if timers are late. */
  get remainingMs(): number {
    return usableMs(this.ttlMs) - elapsedMs(this.#askedAt, now(systemClock))
  }

  get isOver(): boolean {
    return this.remainingMs <= 0
  }

  renewed(askedAt: Instant): void {
    if (askedAt.monotonicMs > this.#askedAt.monotonicMs) this.#askedAt = askedAt
  }
}
