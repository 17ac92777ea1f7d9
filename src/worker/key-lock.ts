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
    this.#options = options
  }

  tryAcquire(signal: AbortSignal): Promise<WorkerLease | null> {
    return this.#ask(signal, () => this.#locks.tryAcquire(this.#key, { ...this.#options, signal }))
  }

  acquire(signal: AbortSignal): Promise<WorkerLease> {
    const options = { ...this.#options, signal, wait: Number.POSITIVE_INFINITY }
    return this.#ask(signal, () => this.#locks.acquire(this.#key, options))
  }

  left(): Promise<unknown> {
    return this.#left
  }

  /**
   * Locks that are aborted give their place back behind the back of the caller, who may end its process before that is done. A
   * place that is left behind costs the others the acceptance term, and on etcd all of the ttl. So it is taken away by its id, and
   * that is something to wait for.
   */
  #ask<T extends WorkerLease | null>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
    let id: string | undefined
    const deaf = this.#locks.on('requested', (request) => {
      id ??= request.id
    })
    const answer = ask()
    deaf()
    const leave = async () => {
      if (signal.aborted && id !== undefined)
        await this.#locks.evict(this.#key, id, { reason: 'The worker was stopped.' })
    }
    // Granted and aborted at once, it is released by who asked, and only the end of that is waited for here.
    const giveBack = (lease: T) => (signal.aborted ? lease?.release() : undefined)
    this.#left = answer.then(giveBack, leave).catch(() => {})
    return answer
  }
}
