import type { Locks } from '../index.ts'

/** Which requests the store has not answered yet, neither with the lock nor with a place in its queue. */
export class Unanswered {
  readonly #locks: Locks
  /** The functions to call when the store has answered, by ticket id. */
  readonly #tickets = new Map<string, () => void>()
  readonly #open = new Set<Promise<void>>()
  #stopListening: (() => void) | undefined

  constructor(locks: Locks) {
    this.#locks = locks
  }

  /** Resolves when the store has answered all that was asked before this call. */
  async settled(): Promise<void> {
    await Promise.all(this.#open)
  }

  /** For one request that may wait in the queue of its lock. It is asked in this very call, or after that promise. */
  async track<T>(ask: () => Promise<T>, after?: Promise<unknown>): Promise<T> {
    this.#stopListening ??= this.#locks.on('queued', ({ id }) => this.#tickets.get(id)?.())
    let id: string | undefined
    let answered = () => {}
    const isAnswered = new Promise<void>((resolve) => {
      answered = resolve
    })
    this.#remember(isAnswered, () => id !== undefined && this.#tickets.delete(id))
    try {
      if (after !== undefined) await after
      const unhear = this.#locks.on('requested', (request) => {
        // Another listener may ask for a lock of its own meanwhile.
        if (id !== undefined) return
        id = request.id
        // At once, as a store in this process answers before the call returns.
        this.#tickets.set(request.id, answered)
      })
      let answer: Promise<T>
      try {
        answer = ask()
      } finally {
        unhear()
      }
      return await answer
    } finally {
      answered()
    }
  }

  /** For what does not wait in a queue. */
  add(answer: Promise<unknown>): void {
    const settled = answer.then(
      () => {},
      () => {},
    )
    this.#remember(settled, () => {})
  }

  #remember(isAnswered: Promise<void>, forget: () => void): void {
    this.#open.add(isAnswered)
    void isAnswered.then(() => {
      forget()
      this.#open.delete(isAnswered)
      if (this.#open.size > 0) return
      // Without unanswered requests there is no listener.
      this.#stopListening?.()
      this.#stopListening = undefined
    })
  }
}
