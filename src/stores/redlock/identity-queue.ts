import type { Answer } from '../../contract/store.ts'

/** Holds requests back until the server has told its identity. Then it sends them in the order in which they came. */
export class IdentityQueue {
  readonly #identify: () => Promise<void>
  readonly #waiting: HeldBackRequest[] = []

  constructor(identify: () => Promise<void>) {
    this.#identify = identify
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0
  }

  add<T>(send: () => Answer<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ send: () => resolve(new Promise<T>((answer) => answer(send()))), reject })
      if (this.#waiting.length > 1) return
      this.#identify().then(
        () => this.#sendAll(),
        (error: unknown) => {
          for (const waiting of this.#waiting.splice(0)) waiting.reject(error)
        },
      )
    })
  }

  async #sendAll(): Promise<void> {
    // More requests may come while these are sent.
    for (const { send } of this.#waiting) {
      send()
      // Each request in a tick of its own: of the requests of one tick the rooms send the releases first. Then the release of a
      // ticket would overtake its acquire, and the server would let the ticket in after all.
      await undefined
    }
    this.#waiting.length = 0
  }
}

interface HeldBackRequest {
  send(): void
  reject(error: unknown): void
}
