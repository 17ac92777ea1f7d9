import type { AcquireAnswer, ReleaseAnswer, ReleaseRequest, Ticket } from '../../contract/store.ts'

/** Somebody who waits for the answer to one request. */
export interface Pending<Asked, Answer> {
  readonly asked: Asked
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/** What goes together in one call. */
export type Batch<Asked, Answer> = readonly Pending<Asked, Answer>[]

/** Each resolves when everybody has got their answer, and never rejects. */
export interface Calls {
  acquire(batch: Batch<Ticket, AcquireAnswer>): Promise<void>
  release(batch: Batch<ReleaseRequest, ReleaseAnswer>): Promise<void>
}

/** Gathers requests of one tick, and those that come while as many calls run as may run at once. */
export class Lane {
  readonly #most: number
  readonly #calls: Calls
  #running = 0
  #isScheduled = false
  #releases: Pending<ReleaseRequest, ReleaseAnswer>[] = []
  /** Keys with more tickets than fit into the calls that run: the others come after them, also on a faster connection. */
  readonly #following = new Set<string>()
  #acquires: Pending<Ticket, AcquireAnswer>[] = []

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
      // Releases first: a key that is given back in the same tick is free for who asks for it.
      if (this.#releases.length > 0) {
        this.#track(this.#calls.release(this.#releases.splice(0, MOST_TOGETHER)))
      } else {
        const batch = this.#nextAcquires()
        if (batch.length === 0) return
        this.#track(this.#calls.acquire(batch), batch)
      }
    }
  }

  #nextAcquires(): Batch<Ticket, AcquireAnswer> {
    if (this.#acquires.length <= MOST_TOGETHER && this.#following.size === 0) return this.#acquires.splice(0)
    const batch: Pending<Ticket, AcquireAnswer>[] = []
    const later: Pending<Ticket, AcquireAnswer>[] = []
    for (const each of this.#acquires) {
      const fits = batch.length < MOST_TOGETHER && !this.#following.has(each.asked.key)
      ;(fits ? batch : later).push(each)
    }
    this.#acquires = later
    if (batch.length === MOST_TOGETHER) for (const { asked } of batch) this.#following.add(asked.key)
    return batch
  }

  #track(call: Promise<void>, batch: Batch<Ticket, AcquireAnswer> = []): void {
    this.#running += 1
    void call.finally(() => {
      this.#running -= 1
      if (batch.length === MOST_TOGETHER) for (const { asked } of batch) this.#following.delete(asked.key)
      this.#send()
    })
  }
}

/** Enough that a call waits for the disk once for many, and few enough that others do not notice it. */
const MOST_TOGETHER = 100
