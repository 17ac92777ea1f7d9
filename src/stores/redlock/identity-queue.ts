import type { Answer } from '../../contract/store.ts'

/** Requests to a server that has to say first who it is. They are sent in the order in which they came. */
export class UnprovenRequests {
  readonly #prove: () => Promise<void>
  readonly #waiting: Waiting[] = []

  constructor(prove: () => Promise<void>) {
    this.#prove = prove
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  add<T>(send: () => Answer<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ send: () => resolve(new Promise<T>((answer) => answer(send()))), reject })
      if (this.#waiting.length > 1) return
      this.#prove().then(
        () => this.#sendAll(),
        (error: unknown) => {
          for (const waiting of this.#waiting.splice(0)) waiting.reject(error)
        },
      )
    })
  }

  async #sendAll(): Promise<void> {
    // More may come while these are sent.
    for (const { send } of this.#waiting) {
      send()
      // Each for itself: of the requests of one tick the store sends the releases first, and a ticket that was given back before
      // the server could be asked about it would be let in after its release.
      await undefined
    }
    this.#waiting.length = 0
  }
}

interface Waiting {
  send(): void
  reject(error: unknown): void
}
