import type { AcquireAnswer, ReleaseAnswer, ReleaseRequest, Ticket } from '../../contract/store.ts'

/** Somebody who waits for the answer to one request. */
export interface Pending<Asked, Answer> {
  readonly asked: Asked
  readonly resolve: (answer: Answer) => void
  readonly reject: (error: unknown) => void
}

/** What goes together in one call; never empty. */
export type Batch<Asked, Answer> = readonly [Pending<Asked, Answer>, ...Pending<Asked, Answer>[]]

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

  renewals(tickets: readonly Ticket[]): readonly (readonly [Ticket, ...Ticket[]])[] {
    const batches: (readonly [Ticket, ...Ticket[]])[] = []
    let rest = [...tickets]
    while (rest.length > 0) {
      const batch = takeRun(rest, sameTerms, MOST_RENEWALS)
      batches.push(batch)
      rest = rest.slice(batch.length)
    }
    return batches
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
        const batch = takeRun(
          this.#releases,
          (one, other) => one.asked.cancel === other.asked.cancel,
          MOST_TOGETHER,
        )
        this.#releases.splice(0, batch.length)
        this.#track(this.#calls.release(batch))
      } else if (this.#acquires.length > 0) {
        const batch = takeRun(
          this.#acquires,
          (one, other) => sameTerms(one.asked, other.asked),
          MOST_TOGETHER,
        )
        this.#acquires.splice(0, batch.length)
        this.#track(this.#calls.acquire(batch))
      } else return
    }
  }

  #track(call: Promise<void>): void {
    this.#running += 1
    void call.finally(() => {
      this.#running -= 1
      this.#send()
    })
  }
}

/** The neighbours at the front of a list (which is not empty) that go together. */
function takeRun<T>(
  items: readonly T[],
  same: (one: T, other: T) => boolean,
  most: number,
): readonly [T, ...T[]] {
  const [first, ...others] = items.slice(0, most) as [T, ...T[]]
  const end = others.findIndex((other) => !same(first, other))
  return [first, ...(end < 0 ? others : others.slice(0, end))]
}

function sameTerms(one: Ticket, other: Ticket): boolean {
  return (
    one.ttlMs === other.ttlMs &&
    one.units === other.units &&
    one.limit === other.limit &&
    one.patienceMs === other.patienceMs &&
    one.acceptMs === other.acceptMs &&
    one.minHoldMs === other.minHoldMs &&
    one.lockDelayMs === other.lockDelayMs &&
    one.owner === other.owner
  )
}

/** Enough that a call waits for the disk once for many, and few enough that others do not notice it. */
const MOST_TOGETHER = 100
/** Renewals are not in a hurry, and cheaper the more of them go together. */
const MOST_RENEWALS = 500
