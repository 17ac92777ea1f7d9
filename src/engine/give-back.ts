import type { ReleaseAnswer, Ticket } from '../contract/store.ts'
import { isHoldfastError } from '../errors.ts'
import type { Engine } from './engine.ts'
import type { Instant } from './instant.ts'
import type { Kept } from './keeper.ts'
import { isLater } from './later.ts'

export interface GiveBackOptions {
  readonly cancel: boolean
  /** What is left of a term that was longer than the ticket's ttl is now. */
  readonly termMs?: number
}

/**
 * Returns a ticket to its store, and repeats it until the store has answered or would have forgotten the ticket by
 * itself. Runs without the caller and its signal: who gives up has often been aborted, and must not leave a ghost.
 */
export class GiveBack implements Kept {
  readonly ticket: Ticket
  readonly slackMs = 0
  dueAt = 0
  kept = false
  previous: Kept | undefined
  next: Kept | undefined
  /** Settles when the store has answered or nothing is left to give back. Never rejects. */
  readonly done: Promise<void>
  readonly #engine: Engine
  readonly #cancel: boolean
  readonly #until: number
  #attempts = 0
  #finish: () => void = () => {}

  /** `reply` belongs to the first request, which is already on its way. */
  constructor(
    engine: Engine,
    ticket: Ticket,
    options: GiveBackOptions & { readonly reply: Promise<ReleaseAnswer> },
  ) {
    this.#engine = engine
    this.ticket = ticket
    this.#cancel = options.cancel
    const { termMs = 0 } = options
    this.#until =
      engine.clock.monotonicMs() + Math.max(termMs, ticket.ttlMs, ticket.patienceMs, ticket.minHoldMs)
    this.done = new Promise((resolve) => {
      this.#finish = resolve
    })
    this.#expect(options.reply)
  }

  get awaited(): boolean {
    return false
  }

  due(at: Instant): boolean {
    if (at.monotonicMs >= this.#until) this.#end()
    else this.#expect(this.#engine.askRelease(this.ticket, { cancel: this.#cancel }))
    return false
  }

  answered(): void {}

  unanswered(): void {}

  #expect(reply: ReleaseAnswer | Promise<ReleaseAnswer>): void {
    if (!isLater(reply)) {
      this.#end()
      return
    }
    this.#attempts += 1
    this.#setDue(this.#engine.attemptMs(this.#attempts))
    reply.then(
      () => this.#end(),
      (error: unknown) => this.#failed(error),
    )
  }

  #failed(error: unknown): void {
    // A definite no will not become a yes, and the ticket runs out by itself.
    if (isHoldfastError(error, 'store-refused')) this.#end()
    else if (this.kept) this.#setDue(this.#engine.backoffMs(this.#attempts))
  }

  #setDue(pauseMs: number): void {
    this.dueAt = this.#engine.clock.monotonicMs() + pauseMs
    this.#engine.keeper.keep(this)
  }

  #end(): void {
    this.#engine.keeper.drop(this)
    this.#finish()
  }
}
