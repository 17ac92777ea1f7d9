import { type Backoff, backoffMs } from '../../base/backoff.ts'
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
    if (this.#pending.size >= MOST) return
    this.#pending.set(id, { request: { key, id, cancel: true }, until, dueAt: 0, failures: 0 })
  }

  /** How long until one of them is due, in milliseconds. Infinity if all are under way. */
  get dueInMs(): number {
    let dueAt = Number.POSITIVE_INFINITY
    for (const pending of this.#pending.values()) dueAt = Math.min(dueAt, pending.dueAt)
    return Math.max(0, dueAt - performance.now())
  }

  /** Sends those that are due. `all`: also the others, because the server is back. */
  send({ all = false }: { readonly all?: boolean } = {}): void {
    this.#dropOver()
    const now = performance.now()
    for (const [id, pending] of this.#pending) {
      if (!all && pending.dueAt > now) continue
      // Until it has failed.
      pending.dueAt = Number.POSITIVE_INFINITY
      Promise.resolve(this.#release(pending.request)).then(
        () => {
          if (this.#pending.get(id) === pending) this.#pending.delete(id)
        },
        () => {
          pending.failures += 1
          pending.dueAt = performance.now() + backoffMs(AGAIN, pending.failures)
          this.#onFailed()
        },
      )
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
  /** When to send it, on the clock of `performance.now()`. */
  dueAt: number
  failures: number
}

/** A server that refuses one release may go on to refuse it, for instance because its memory is full. */
const AGAIN: Backoff = { firstMs: 100, longestMs: 5000, jitter: 0.5 }

/** Releases beyond so many are dropped: those votes end with their ttl. */
const MOST = 10_000
