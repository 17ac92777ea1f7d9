import type { AcquireAnswer, ReleaseAnswer, ReleaseRequest, Ticket } from '../../contract/store.ts'

/** A request that waits for its answer. */
export interface PendingRequest<Asked, Answer> {
  readonly asked: Asked
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/** The requests of one call. */
export type RequestBatch<Asked, Answer> = readonly PendingRequest<Asked, Answer>[]

/** Each resolves when all requests of the batch have their answers. Never rejects. */
export interface Calls {
  acquire(batch: RequestBatch<Ticket, AcquireAnswer>): Promise<void>
  release(batch: RequestBatch<ReleaseRequest, ReleaseAnswer>): Promise<void>
}

/** Gathers the requests of one tick into one call. While `most` calls run, gathers further requests for the next call. */
export class RequestBatches {
  readonly #most: number
  readonly #calls: Calls
  #running = 0
  #isScheduled = false
  #releases: PendingRequest<ReleaseRequest, ReleaseAnswer>[] = []
  /** Keys of full batches that are on their way: later tickets of these keys wait, so that no faster connection overtakes. */
  readonly #following = new Set<string>()
  #acquires: PendingRequest<Ticket, AcquireAnswer>[] = []

  constructor(most: number, calls: Calls) {
    this.#most = most
    this.#calls = calls
  }

  acquire(asked: Ticket): Promise<AcquireAnswer> {
    return new Promise((resolve, reject) => {
      this.#acquires.push({ asked, resolve, reject })
      this.#schedule()
    })
  }

  release(asked: ReleaseRequest): Promise<ReleaseAnswer> {
    return new Promise((resolve, reject) => {
      this.#releases.push({ asked, resolve, reject })
      this.#schedule()
    })
  }

  #schedule(): void {
    if (this.#isScheduled || this.#running >= this.#most) return
    this.#isScheduled = true
    queueMicrotask(() => {
      this.#isScheduled = false
      this.#send()
    })
  }

  #send(): void {
    while (this.#running < this.#most) {
      // Releases first: a key that is released in the same tick is free for the acquires.
      if (this.#releases.length > 0) {
        this.#track(this.#calls.release(this.#releases.splice(0, MOST_TOGETHER)))
      } else {
        const batch = this.#nextAcquires()
        if (batch.length === 0) return
        this.#track(this.#calls.acquire(batch), batch)
      }
    }
  }

  #nextAcquires(): RequestBatch<Ticket, AcquireAnswer> {
    if (this.#acquires.length < MOST_TOGETHER && this.#following.size === 0) return this.#acquires.splice(0)
    const batch: PendingRequest<Ticket, AcquireAnswer>[] = []
    const later: PendingRequest<Ticket, AcquireAnswer>[] = []
    for (const each of this.#acquires) {
      const fits = batch.length < MOST_TOGETHER && !this.#following.has(each.asked.key)
      ;(fits ? batch : later).push(each)
    }
    this.#acquires = later
    if (batch.length === MOST_TOGETHER) for (const { asked } of batch) this.#following.add(asked.key)
    return batch
  }

  #track(call: Promise<void>, batch: RequestBatch<Ticket, AcquireAnswer> = []): void {
    this.#running += 1
    void call.finally(() => {
      this.#running -= 1
      if (batch.length === MOST_TOGETHER) for (const { asked } of batch) this.#following.delete(asked.key)
      this.#send()
    })
  }
}

/** Many, because a call waits for the disk once. Not more, so that other calls are not delayed noticeably. */
const MOST_TOGETHER = 100
