/**
 * Which fences to propose to the servers, so that most of them agree on one while they vote and none has to be claimed: a little
 * above the time they have, as far as their last answers tell. Only a guess: a server that cannot agree gives a fence of its own.
 */
export class Proposals {
  /** How far the servers' time is ahead of our monotonic clock, in µs. Undefined until one of them has said what time it has. */
  #aheadUs: number | undefined
  #last = 0

  next(): number | undefined {
    if (this.#aheadUs === undefined) return undefined
    this.#last = Math.max(this.#last + 1, Math.round(performance.now() * 1000 + this.#aheadUs))
    return this.#last
  }

  /** What time servers had when they answered a question that was asked then, on our monotonic clock. */
  learn(serverUs: number, askedAt: number): void {
    this.#aheadUs = serverUs - askedAt * 1000 + MARGIN_US
  }
}

/** How much later than last time a question may reach the servers. */
const MARGIN_US = 5000
