import type { Instant } from '../base/clock.ts'
import type { ReleaseAnswer, Ticket } from '../contract/store.ts'
import { isHoldfastError } from '../errors.ts'
import type { Engine } from './engine.ts'
import { tellStoreError } from './events.ts'
import { isLater } from './later.ts'
import type { Kept } from './renewal-loop.ts'

export interface GiveBackOptions {
  readonly cancel: boolean
  /** What is left of a term that was longer than the ticket's ttl is now. */
  readonly termMs?: number
  /** When it is asked first, on the monotonic clock. */
  readonly atMs?: number
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
  /** What its caller awaits: the answer, or the time of one attempt. Never rejects. */
  readonly told: Promise<void>
  readonly #engine: Engine
  readonly #cancel: boolean
  readonly #tellAt: number
  readonly #until: number
  #askAt = 0
  #attempts = 0
  #isTold = false
  /** Whether the latest request has neither an answer nor failed. */
  #silent = false
  #settle: () => void = nobodyAsked
  #finish: () => void = nobodyAsked

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
    const from = engine.clock.monotonicMs()
    this.#tellAt = from + engine.attemptMs(1)
    this.#until = from + Math.max(termMs, ticket.ttlMs, ticket.patienceMs, ticket.minHoldMs)
    this.told = new Promise((resolve) => {
      this.#settle = resolve
    })
    this.#expect(options.reply)
  }

  get awaited(): boolean {
    return !this.#isTold
  }

  /** Settles when the store has answered or nothing is left to give back. For the one who closes. Never rejects. */
  untilDone(): Promise<void> {
    return new Promise((resolve) => {
      this.#finish = resolve
    })
  }

  /** Lets its caller go, whatever is known. It is looked after no more, unless it is kept again. */
  tell(): void {
    this.#engine.keeper.drop(this)
    this.#isTold = true
    this.#settle()
  }

  due(at: Instant): boolean {
    if (at.monotonicMs >= this.#until) {
      this.#end()
      return false
    }
    if (at.monotonicMs >= this.#tellAt) {
      if (!this.#isTold && this.#silent) this.#tellFailure(undefined)
      this.tell()
    }
    // Only its caller was due, or another one that succeeded has had it ask a moment ago.
    if (at.monotonicMs < this.#askAt) this.#keep()
    else if (this.#engine.returning.admits(this, at)) this.again()
    else this.#setDue(this.#engine.backoffMs(LAST_PAUSE))
    return false
  }

  /** Asks once more. */
  again(): void {
    this.#expect(this.#engine.askRelease(this.ticket, { cancel: this.#cancel }))
  }

  answered(): void {}

  unanswered(): void {}

  #expect(reply: ReleaseAnswer | Promise<ReleaseAnswer>): void {
    if (!isLater(reply)) return this.#end()
    this.#attempts += 1
    this.#silent = true
    this.#setDue(this.#engine.attemptMs(this.#attempts))
    reply.then(
      () => this.#taken(),
      (error: unknown) => this.#failed(error),
    )
  }

  #taken(): void {
    this.#end()
    this.#engine.returning.succeeded()
  }

  #failed(error: unknown): void {
    this.#silent = false
    this.#tellFailure(error)
    // A definite no will not become a yes, and the ticket runs out by itself.
    if (isHoldfastError(error, 'store-refused')) return this.#end()
    const pauseMs = this.#engine.backoffMs(this.#attempts)
    this.#engine.returning.failed(this, this.#engine.clock.monotonicMs() + pauseMs)
    if (this.kept) this.#setDue(pauseMs)
  }

  #setDue(pauseMs: number): void {
    this.#askAt = this.#engine.clock.monotonicMs() + pauseMs
    this.#keep()
  }

  #keep(): void {
    this.dueAt = this.#isTold ? this.#askAt : Math.min(this.#askAt, this.#tellAt)
    this.#engine.keeper.keep(this)
  }

  #tellFailure(error: unknown): void {
    const { key, id } = this.ticket
    tellStoreError(this.#engine.events, { verb: 'release', error, key, id })
  }

  #end(): void {
    this.tell()
    this.#engine.returning.forget(this)
    this.#engine.givingBack.delete(this)
    this.#finish()
  }
}

function nobodyAsked(): void {}

/**
 * How many give-backs of one store are repeated at a time. While it is silent or fails, a few find out whether it is back;
 * then the others follow, as fast as it takes them. All at once they would be thousands of requests a second for a store
 * that is down (measured: 5,000 of them made 6,500), and as many that lie in its client for the moment it comes back.
 */
export class Returning {
  readonly #asking = new Set<GiveBack>()
  readonly #waiting = new Set<GiveBack>()
  #notBefore = 0

  /** Whether it may ask now. If not, it does when others have succeeded, or when it is due again. */
  admits(giveBack: GiveBack, at: Instant): boolean {
    if (this.#asking.has(giveBack)) return !this.#passOn(giveBack)
    if (this.#asking.size >= MOST_AT_A_TIME || at.monotonicMs < this.#notBefore) {
      this.#waiting.add(giveBack)
      return false
    }
    this.#waiting.delete(giveBack)
    this.#asking.add(giveBack)
    return true
  }

  succeeded(): void {
    this.#notBefore = 0
    while (this.#waiting.size > 0 && this.#asking.size < MOST_AT_A_TIME) this.#startNext()
  }

  /** Not answered in its time. It may be the only one that never is, so the next one has its turn, and it comes after all. */
  #passOn(giveBack: GiveBack): boolean {
    if (this.#waiting.size === 0) return false
    this.#asking.delete(giveBack)
    this.#startNext()
    this.#waiting.add(giveBack)
    return true
  }

  #startNext(): void {
    const [next] = this.#waiting
    if (next === undefined) return
    this.#waiting.delete(next)
    this.#asking.add(next)
    next.again()
  }

  failed(giveBack: GiveBack, notBefore: number): void {
    this.#asking.delete(giveBack)
    this.#notBefore = notBefore
  }

  forget(giveBack: GiveBack): void {
    this.#asking.delete(giveBack)
    this.#waiting.delete(giveBack)
  }
}

const MOST_AT_A_TIME = 32
/** The longest there is: nobody hurries who is told by others. */
const LAST_PAUSE = 10
