import { explained } from '../../../base/explained.ts'

/** Asks for what is slow to read, such as counts: again only after a rest of twenty times as long as the last answer took. */
export class SeldomLook<T> {
  readonly #ask: () => Promise<T>
  readonly #onAnswer: () => void
  #latest: T | undefined
  #problem: string | undefined
  #isAsking = false
  #isStale = false
  #restsUntil = 0

  constructor(ask: () => Promise<T>, onAnswer: () => void) {
    this.#ask = ask
    this.#onAnswer = onAnswer
  }

  /** The last answer. `undefined`: none has come. */
  get latest(): T | undefined {
    return this.#latest
  }

  /** Why the last question has no answer. `undefined`: it has one, or none was asked. */
  get problem(): string | undefined {
    return this.#problem
  }

  /** Asks if the rest is over. */
  look(): void {
    if (!this.#isAsking && performance.now() >= this.#restsUntil) void this.#answer()
  }

  /** Asks without a rest, because something has changed. */
  lookNow(): void {
    this.#restsUntil = 0
    this.#isStale = this.#isAsking
    this.look()
  }

  async #answer(): Promise<void> {
    this.#isAsking = true
    const begun = performance.now()
    try {
      this.#latest = await this.#ask()
      this.#problem = undefined
    } catch (error) {
      // The last answer stays.
      this.#problem = explained(error)
    }
    this.#isAsking = false
    this.#restsUntil = performance.now() + RESTS * (performance.now() - begun)
    this.#onAnswer()
    if (!this.#isStale) return
    this.#isStale = false
    this.lookNow()
  }
}

const RESTS = 20
