import type { Instant } from '../base/clock.ts'
import type { Renewable } from './renewable.ts'
import type { RenewalLoop } from './renewal-loop.ts'

/** A release that the store has not answered yet. It is in the renewal loop as long as the loop runs. */
export interface Retryable extends Renewable {
  readonly kind: 'release'
  /** Asks the store once more. */
  again(): void
  /** Resolves when the store has answered, or would have forgotten the ticket by itself. Never rejects. */
  untilDone(): Promise<void>
  /** Lets its caller go on without an answer. */
  endCallersWait(): void
}

/**
 * All releases that one store has not answered, and how many of them are repeated at a time. While the store is silent or
 * fails, a few of them find out whether it is back. Then the others follow, as fast as the store takes them. All at once
 * they would be thousands of requests a second for a store that is down (measured: 5,000 of them made 6,500), and as many
 * would lie in the store's client for the moment when it comes back.
 */
export class ReleaseRetry {
  readonly #renewals: RenewalLoop
  readonly #asking = new Set<Retryable>()
  readonly #waiting = new Set<Retryable>()
  #notBefore = 0

  constructor(renewals: RenewalLoop) {
    this.#renewals = renewals
  }

  /** Whether it may ask now. If not, it asks when others have succeeded, or when it is due again. */
  admits(release: Retryable, at: Instant): boolean {
    if (this.#asking.has(release)) return !this.#passOn(release)
    if (this.#asking.size >= MOST_AT_A_TIME || at.monotonicMs < this.#notBefore) {
      this.#waiting.add(release)
      return false
    }
    this.#waiting.delete(release)
    this.#asking.add(release)
    return true
  }

  /** The store has answered one, so it is back: the others ask, too. */
  succeeded(): void {
    this.#notBefore = 0
    while (this.#waiting.size > 0 && this.#asking.size < MOST_AT_A_TIME) this.#startNext()
  }

  /** The store has refused or failed, and nobody asks before `notBefore` on the monotonic clock. */
  failed(release: Retryable, notBefore: number): void {
    this.#asking.delete(release)
    this.#notBefore = notBefore
  }

  remove(release: Retryable): void {
    this.#asking.delete(release)
    this.#waiting.delete(release)
  }

  /** For `close()`: resolves when every release of this moment is done. */
  async untilDone(): Promise<void> {
    await Promise.all(this.#list().map((release) => release.untilDone()))
  }

  /** For `close()`: no caller waits any longer. */
  endCallersWaits(): void {
    for (const release of this.#list()) release.endCallersWait()
  }

  #list(): Retryable[] {
    return this.#renewals.list(isRelease) as Retryable[]
  }

  /**
   * This release timed out. It may be the only one that is never answered, so the next one asks in its place, and it goes
   * to the back of the queue. Returns false if no other one waits.
   */
  #passOn(release: Retryable): boolean {
    if (this.#waiting.size === 0) return false
    this.#asking.delete(release)
    this.#startNext()
    this.#waiting.add(release)
    return true
  }

  #startNext(): void {
    const [next] = this.#waiting
    if (next === undefined) return
    this.#waiting.delete(next)
    this.#asking.add(next)
    next.again()
  }
}

const MOST_AT_A_TIME = 32

function isRelease(one: Renewable): one is Retryable {
  return one.kind === 'release'
}
