import { LONGEST_MS } from '../base/duration.ts'
import type { HoldOptions, Locks } from '../index.ts'
import type { WorkerLease, WorkerLock } from './lock.ts'

/** A key of Holdfast's own locks, as the machine asks for it. */
export class KeyLock implements WorkerLock {
  readonly #locks: Locks
  readonly #key: string
  readonly #options: Omit<HoldOptions, 'signal'>
  #left: Promise<unknown> = Promise.resolve()

  constructor(locks: Locks, key: string, options: Omit<HoldOptions, 'signal'>) {
    this.#locks = locks
    this.#key = key
    // Also over locks with `renew: false`: a term lasts for as long as the work.
    this.#options = { ...options, renew: true }
  }

  tryAcquire(signal: AbortSignal): Promise<WorkerLease | null> {
    // A worker outlives a restart of the store, so this asks again also while no server is there.
    const options = { ...this.#options, signal, storeTimeout: ANSWER_MS }
    return this.#ask(signal, () => this.#locks.tryAcquire(this.#key, options))
  }

  acquire(signal: AbortSignal): Promise<WorkerLease> {
    const options = {
      ...this.#options,
      signal,
      wait: Number.POSITIVE_INFINITY,
      maxWaiting: Number.POSITIVE_INFINITY,
      storeTimeout: LONGEST_MS,
    }
    return this.#ask(signal, () => this.#locks.acquire(this.#key, options))
  }

  left(): Promise<unknown> {
    return this.#left
  }

  /**
   * An aborted acquire gives its place back in the background, and the process may end before that is done. A place that is
   * left behind costs the others the acceptance term, and on etcd the whole ttl. So this evicts the ticket by its id, which
   * can be awaited.
   */
  #ask<T extends WorkerLease | null>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
    let id: string | undefined
    const stopListening = this.#locks.on('requested', (request) => {
      id ??= request.id
    })
    const answer = ask()
    stopListening()
    const leave = async () => {
      if (signal.aborted && id !== undefined)
        await this.#locks.evict(this.#key, id, { reason: 'The worker was stopped.' })
    }
    // If the ticket was granted just as it was aborted, the acquire releases it. This only awaits that release.
    const giveBack = (lease: T) => (signal.aborted ? lease?.release() : undefined)
    this.#left = answer.then(giveBack, leave).catch(() => {})
    return answer
  }
}

/** How long a store may take to say whether the key is free. After that the worker tells of trouble, and asks again. */
const ANSWER_MS = 5000
