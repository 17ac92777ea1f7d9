/**
 * Proposes fences to the servers. If a majority votes with the proposed fence, no claim is needed. A proposal is a little above
 * the servers' time, as their answers to the last claims show it. It is only a guess: a server that cannot agree gives a fence
 * of its own.
 */
export class Proposals {
  /** How far the servers' time is ahead of our monotonic clock, in µs. Undefined until one of them has said what time it has. */
  #aheadUs: number | undefined
  #learnedAt = Number.NEGATIVE_INFINITY
  #last = 0

  /** Undefined: let it be claimed, to learn what time it is. */
  next(): number | undefined {
    const now = performance.now()
    if (this.#aheadUs === undefined || now - this.#learnedAt > LEARN_AGAIN_MS) return undefined
    this.#last = Math.max(this.#last + 1, Math.round(now * 1000 + this.#aheadUs + MARGIN_US))
    return this.#last
  }

  /** What time servers had when they answered a question that was asked then, on our monotonic clock. */
  learn(serverUs: number, askedAt: number): void {
    const aheadUs = serverUs - askedAt * 1000
    const before = this.#aheadUs ?? aheadUs
    // The quickest answer tells it best. After a slow one the fences of this process would be ahead of those of all others, which
    // then had to claim theirs.
    this.#aheadUs = aheadUs < before ? aheadUs : before + (aheadUs - before) / 4
    this.#learnedAt = performance.now()
  }
}

/** How much longer than last time a question may take to reach the servers. */
const MARGIN_US = 5000
/** A claim now and then is not felt. */
const LEARN_AGAIN_MS = 1000
