import { messageOf } from '../base/thrown.ts'

/** What a repeated question has answered last. Asked again on demand, and not before a rest after the last answer. */
export class SharedLook<T> {
  readonly #read: () => Promise<T>
  readonly #restMs: number
  #value: T | undefined
  #message: string | undefined
  #reading: Promise<void> | undefined
  #nextAt = 0
  /** When somebody wanted the answer last, by the monotonic clock. */
  askedAt: number = performance.now()

  constructor(read: () => Promise<T>, restMs: number) {
    // Also an error that is thrown at once ends a look later than it begins.
    this.#read = async () => read()
    this.#restMs = restMs
  }

  /** The last answer, and what went wrong since. Asks again if the rest is over. */
  get latest(): { readonly value: T | undefined; readonly message: string | undefined } {
    void this.ready()
    return { value: this.#value, message: this.#message }
  }

  /** Resolves once there is an answer or an error. */
  async ready(): Promise<void> {
    this.askedAt = performance.now()
    if (this.#reading === undefined && this.askedAt >= this.#nextAt) this.#reading = this.#ask()
    await this.#reading
  }

  /** Resolves with an answer to a question that is asked from now on. */
  async again(): Promise<void> {
    await this.#reading
    this.#reading ??= this.#ask()
    await this.#reading
  }

  async #ask(): Promise<void> {
    const startedAt = performance.now()
    try {
      this.#value = await this.#read()
      this.#message = undefined
    } catch (error) {
      this.#message = messageOf(error)
    } finally {
      const endedAt = performance.now()
      this.#nextAt = endedAt + Math.max(this.#restMs, 4 * (endedAt - startedAt))
      this.#reading = undefined
    }
  }
}
