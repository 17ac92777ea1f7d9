import type { ReleaseAnswer, RenewAnswer, Ticket } from '../contract/store.ts'
import { isHoldfastError } from '../errors.ts'
import type { Engine } from './engine.ts'
import type { Instant } from './instant.ts'
import type { Kept, Links } from './keeper.ts'

/**
 * Returns a ticket to its store, and repeats it until the store has answered or would have forgotten the ticket by
 * itself. Runs without the caller and its signal: who gives up has often been aborted, and must not leave a ghost.
 */
export class GiveBack implements Kept {
  readonly ticket: Ticket
  readonly slackMs = 0
  readonly awaited = false
  dueAt = 0
  links: Links | undefined
  /** Settles when the store has answered or nothing is left to give back. Never rejects. */
  readonly done: Promise<void>
  readonly #engine: Engine
  readonly #cancel: boolean
  readonly #until: number
  #attempts = 0
  #finish: () => void = () => {}

  constructor(engine: Engine, ticket: Ticket, options: { readonly cancel: boolean }) {
    this.#engine = engine
    this.ticket = ticket
    this.#cancel = options.cancel
    this.#until = engine.clock.monotonicMs() + Math.max(ticket.ttlMs, ticket.patienceMs, ticket.minHoldMs)
    this.done = new Promise((resolve) => {
      this.#finish = resolve
    })
  }

  /** Returns whether the store answered at once, so that nobody has to wait. */
  start(): boolean {
    const answer = this.#send()
    if (answer !== undefined && !(answer instanceof Promise)) return true
    this.#engine.keeper.keep(this)
    return false
  }

  due(at: Instant): boolean {
    if (at.monotonicMs >= this.#until) this.#end()
    else void this.#send()
    return false
  }

  answered(_answer: RenewAnswer): void {}

  unanswered(_error: unknown): void {}

  #send(): ReleaseAnswer | Promise<ReleaseAnswer> | undefined {
    this.#attempts += 1
    this.dueAt = this.#engine.clock.monotonicMs() + this.#engine.attemptMs(this.#attempts)
    try {
      const answer = this.#engine.store.release({
        key: this.ticket.key,
        id: this.ticket.id,
        cancel: this.#cancel,
      })
      if (answer instanceof Promise) {
        answer.then(
          () => this.#end(),
          (error: unknown) => this.#retry(error),
        )
      } else this.#end()
      return answer
    } catch (error) {
      this.#retry(error)
      return undefined
    }
  }

  #retry(error: unknown): void {
    // A definite no will not become a yes, and the ticket runs out by itself.
    if (isHoldfastError(error, 'store-refused')) return this.#end()
    this.dueAt = this.#engine.clock.monotonicMs() + this.#engine.backoffMs(this.#attempts)
    if (this.links !== undefined) this.#engine.keeper.keep(this)
  }

  #end(): void {
    this.#engine.keeper.drop(this)
    this.#finish()
  }
}
