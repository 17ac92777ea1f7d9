import type { Answer, ReleaseAnswer, ReleaseRequest } from '../../contract/store.ts'

/** The releases that one server has not answered. Each is kept only as long as its ticket could have a vote there. */
export class PendingReleases {
  readonly #release: (request: ReleaseRequest) => Answer<ReleaseAnswer>
  readonly #onFailed: () => void
  readonly #pending = new Map<string, QueuedRelease>()

  constructor(release: (request: ReleaseRequest) => Answer<ReleaseAnswer>, onFailed: () => void) {
    this.#release = release
    this.#onFailed = onFailed
  }

  get isEmpty(): boolean {
    this.#dropOver()
    return this.#pending.size === 0
  }

  add({ key, id }: ReleaseRequest, forMs: number): void {
    const until = performance.now() + forMs
    if (this.#pending.size >= MOST) this.#dropOver()
    // `cancel` leaves a tombstone: the acquire may arrive after this release, on a connection that was given up.
    if (this.#pending.size < MOST) this.#pending.set(id, { request: { key, id, cancel: true }, until })
  }

  send(): void {
    this.#dropOver()
    for (const [id, pending] of this.#pending) {
      Promise.resolve(this.#release(pending.request)).then(() => {
        if (this.#pending.get(id) === pending) this.#pending.delete(id)
      }, this.#onFailed)
    }
  }

  clear(): void {
    this.#pending.clear()
  }

  #dropOver(): void {
    const now = performance.now()
    for (const [id, { until }] of this.#pending) if (until <= now) this.#pending.delete(id)
  }
}

interface QueuedRelease {
  readonly request: ReleaseRequest
  readonly until: number
}

/** Releases beyond so many are dropped: those votes end with their ttl. */
const MOST = 10_000
