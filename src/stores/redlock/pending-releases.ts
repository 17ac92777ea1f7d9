import type { Answer, ReleaseAnswer, ReleaseRequest } from '../../contract/store.ts'

/** The releases that a server could not be told. Each one is kept only as long as its ticket could have a vote there. */
export class Debts {
  readonly #release: (request: ReleaseRequest) => Answer<ReleaseAnswer>
  readonly #onUnpaid: () => void
  readonly #open = new Map<string, Debt>()

  constructor(release: (request: ReleaseRequest) => Answer<ReleaseAnswer>, onUnpaid: () => void) {
    this.#release = release
    this.#onUnpaid = onUnpaid
  }

  get isEmpty(): boolean {
    this.#dropOver()
    return this.#open.size === 0
  }

  add({ key, id }: ReleaseRequest, forMs: number): void {
    const until = performance.now() + forMs
    if (this.#open.size >= MOST) this.#dropOver()
    // With a tombstone, as the request that is to be undone may arrive after this one, on a connection that was given up.
    if (this.#open.size < MOST) this.#open.set(id, { request: { key, id, cancel: true }, until })
  }

  pay(): void {
    this.#dropOver()
    for (const [id, debt] of this.#open) {
      Promise.resolve(this.#release(debt.request)).then(() => {
        if (this.#open.get(id) === debt) this.#open.delete(id)
      }, this.#onUnpaid)
    }
  }

  forget(): void {
    this.#open.clear()
  }

  #dropOver(): void {
    const now = performance.now()
    for (const [id, { until }] of this.#open) if (until <= now) this.#open.delete(id)
  }
}

interface Debt {
  readonly request: ReleaseRequest
  readonly until: number
}

/** Beyond that the votes are left to run out. */
const MOST = 10_000
