/**
 * Chooses the fences that tickets propose when they ask for votes; rule 3 in quorum.ts. If a quorum votes with the proposed
 * fence, no claim is needed. A proposal is a little above the time of the servers, as their answers to the last claims tell it.
 * It is only a guess: a server that cannot use it gives a fence of its own.
 */
export class Proposals {
  /** How far the time of the servers is ahead of our monotonic clock, in µs. Undefined until a server has told its time. */
  #aheadUs: number | undefined
  #learnedAt = Number.NEGATIVE_INFINITY
  #last = 0

  /** The next proposal. Undefined: propose nothing, so that a claim is needed, whose answer tells the time of the servers. */
  next(): number | undefined {
    const now = performance.now()
    if (this.#aheadUs === undefined || now - this.#learnedAt > LEARN_AGAIN_MS) return undefined
    this.#last = Math.max(this.#last + 1, Math.round(now * 1000 + this.#aheadUs + MARGIN_US))
    return this.#last
  }

  /** The servers told this time in answer to a claim that was sent at `askedAt`, on our monotonic clock. */
  learn(serverUs: number, askedAt: number): void {
    const aheadUs = serverUs - askedAt * 1000
    const before = this.#aheadUs ?? aheadUs
    // The quickest answer is the most exact. A slow one would put the proposals of this process ahead of those of all others,
    // which would have to claim theirs.
    this.#aheadUs = aheadUs < before ? aheadUs : before + (aheadUs - before) / 4
    this.#learnedAt = performance.now()
  }
}

/** What a request for votes says of the fence. `unfenced`: the lease has none, so a server need not count one. */
export type Proposal = number | 'unfenced'

/** How much longer than the last claim the next request may take to reach the servers. */
const MARGIN_US = 5000
/** After so long a claim is used to learn the time again: one claim in a second costs little. */
const LEARN_AGAIN_MS = 1000
