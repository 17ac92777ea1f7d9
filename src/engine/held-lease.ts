import { parseDuration, TTL_RANGE } from '../base/duration.ts'
import type { RenewAnswer, Ticket } from '../contract/store.ts'
import { type ClosedError, isHoldfastError, LeaseLostError, type LossReason, StoreError } from '../errors.ts'
import { outsideOfCallers } from './async-context.ts'
import type { Engine } from './engine.ts'
import { elapsedMs, type Instant, now, usableMs } from './instant.ts'
import type { Kept } from './keeper.ts'
import type { Lease, LeaseJson, LeaseState } from './lease.ts'
import { terms } from './terms.ts'

export interface LeaseOptions {
  readonly renew: boolean
  readonly maxHoldMs: number
}

type State =
  | { readonly tag: 'held' }
  | { readonly tag: 'released' }
  | { readonly tag: 'lost'; readonly error: LeaseLostError | ClosedError }

const HELD: State = { tag: 'held' }
const RELEASED: State = { tag: 'released' }
/** Released as far as this process is concerned; somebody else goes on with it. */
const DETACHED: State = { tag: 'released' }

/**
 * A lease in the hands of the engine. What the caller sees of it is {@link Lease}.
 *
 * The deadline is `askedAt + usable(ttl)` of the latest request that the store confirmed; see `instant.ts`.
 */
export class HeldLease implements Lease, Kept {
  readonly fence: bigint
  ticket: Ticket
  readonly awaited = false
  dueAt: number
  kept = false
  previous: Kept | undefined
  next: Kept | undefined
  /** Calls that run under this lease, because they asked for its key again with `reentrant`. */
  inner: Set<Promise<unknown>> | undefined
  /** Set while acquire requests of this ticket are unanswered: one may still arrive, after the release. */
  origin: { readonly doubts: number } | undefined
  readonly #engine: Engine
  readonly #renew: boolean
  /** The confirmed request that reaches furthest: before it was written, and what it may be used for from then on. */
  #askedAt: Instant
  #usableMs: number
  /** `maxHold` on the monotonic clock. */
  readonly #endsAt: number
  #state: State = HELD
  #attempts = 0
  #lastError: unknown
  #controller: AbortController | undefined
  /** A question that is not about time: whether it was evicted. */
  #checking = false
  #givenBack: Promise<void> | undefined
  #extending = false

  constructor(engine: Engine, ticket: Ticket, fence: bigint, askedAt: Instant, options: LeaseOptions) {
    this.#engine = engine
    this.ticket = ticket
    this.fence = fence
    this.#askedAt = askedAt
    this.#usableMs = usableMs(ticket.ttlMs)
    this.#renew = options.renew
    this.#endsAt = askedAt.monotonicMs + options.maxHoldMs
    this.dueAt = this.#nextDue(askedAt)
    engine.keeper.keep(this)
  }

  get key(): string {
    return this.ticket.key
  }

  get id(): string {
    return this.ticket.id
  }

  get state(): LeaseState {
    this.#expireIfOver()
    if (this.#state.tag !== 'held') return this.#state.tag
    // Renewed at a third of the ttl, so it is never this short while all goes well.
    return this.#renew && this.#termMs() < this.ticket.ttlMs / 2 ? 'jeopardy' : 'held'
  }

  get remainingMs(): number {
    return this.#state.tag === 'held' ? Math.max(0, this.#remaining()) : 0
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      this.#expireIfOver()
      if (this.#state.tag === 'lost') this.#controller.abort(this.#state.error)
      else if (this.#state.tag === 'held') {
        this.#engine.watched.set(this.id, this)
        this.#engine.keeper.watch()
        // Somebody wants to know, so an eviction should not have to wait for the next renewal.
        this.#engine.listen()
      }
    }
    return this.#controller.signal
  }

  assertHeld(): void {
    this.#expireIfOver()
    const state = this.#state
    if (state.tag === 'lost') throw state.error
    if (state.tag === 'released') throw releasedError(this.ticket)
  }

  async extend(ttl?: number | string): Promise<void> {
    this.assertHeld()
    const term = ttl === undefined ? {} : terms(parseDuration('ttl', ttl, TTL_RANGE))
    for (let attempts = 1; ; attempts += 1) {
      const asked = { ...this.ticket, ...term }
      const askedAt = now(this.#engine.clock)
      try {
        const [answer] = await this.#engine.ask(
          () => this.#engine.store.renew([asked]),
          this.#attemptMs(),
          this.key,
        )
        if (answer === undefined)
          throw new StoreError('store-unavailable', 'The store gave no answer to a renewal.')
        this.#extended(answer, askedAt, asked)
        this.assertHeld()
        return
      } catch (error) {
        if (!isHoldfastError(error, 'store-unavailable')) throw error
        this.#lastError = error
        await this.#engine.sleep(Math.max(1, Math.min(this.#engine.backoffMs(attempts), this.#remaining())))
        this.#expireIfOver()
        if (this.#state.tag === 'lost' && this.#state.error.code !== 'closed') throw error
        this.assertHeld()
      }
    }
  }

  release(): Promise<void> {
    return this.releaseNow() ?? DONE
  }

  /** Returns `undefined` when the store answered at once: nobody has to wait then. */
  releaseNow(): Promise<void> | undefined {
    this.#expireIfOver()
    const state = this.#state
    if (state.tag === 'released' || this.#givenBack !== undefined) return this.#givenBack
    if (state.tag === 'held') this.#end(RELEASED)
    // Lost by our clocks, but a request that arrived late may have kept it alive in the store.
    else if (isHoldfastError(state.error, 'closed') || (state.error as LeaseLostError).reason === 'evicted')
      return undefined
    this.#givenBack =
      this.#engine.giveBack(this.ticket, {
        cancel: (this.origin?.doubts ?? 0) > 0,
        termMs: this.#termMs(),
      }) ?? DONE
    return this.#givenBack === DONE ? undefined : this.#givenBack
  }

  /** The engine closes: the key goes back, and whoever still works under the lease is told. */
  close(error: ClosedError): Promise<void> {
    const released = this.release()
    if (this.#state.tag === 'released') this.#state = { tag: 'lost', error }
    this.#tell(error)
    return released
  }

  /** Nobody goes on with it, here or elsewhere: a grant of this ticket that comes now belongs to nobody. */
  get isGivenBack(): boolean {
    return this.#state.tag !== 'held' && this.#state !== DETACHED
  }

  /** Its holder is done and may have released it: throws if it was lost meanwhile. */
  assertKept(): void {
    if (this.#state.tag !== 'released') this.assertHeld()
  }

  detach(): LeaseJson {
    this.assertHeld()
    this.#end(DETACHED)
    return this.toJSON()
  }

  toJSON(): LeaseJson {
    const { key, id, units, limit, ttlMs } = this.ticket
    return { key, id, fence: String(this.fence), units, limit, ttlMs }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  get slackMs(): number {
    return this.#renew ? this.ticket.ttlMs / 10 : 0
  }

  /** Asks the store, whether it is due or not: it may have been evicted, or the store been reset. */
  check(): void {
    this.#checking = true
    this.#engine.keeper.hurry(this)
  }

  due(): boolean {
    this.#expireIfOver()
    if (this.#state.tag !== 'held') return false
    if (!this.#renew) {
      const asks = this.#checking
      this.#checking = false
      this.dueAt = this.#deadlineAt()
      if (asks) this.#attempts += 1
      return asks
    }
    this.#checking = false
    // Due again without an answer in between means that this attempt is given up, and another one is made.
    this.#attempts += 1
    this.dueAt = Math.min(this.#engine.clock.monotonicMs() + this.#attemptMs(), this.#deadlineAt())
    return true
  }

  answered(answer: RenewAnswer, askedAt: Instant, asked: Ticket): void {
    if (this.#state.tag !== 'held') return
    switch (answer.tag) {
      case 'held':
        // The same id under another fence is a new grant: the store had lost ours, and a late request was let in again.
        if (answer.fence !== this.fence) return this.#lose('store-reset', STORE_RESET)
        this.#attempts = 0
        // Without renewal only extend() may move the deadline, and not a question whether it was evicted.
        if (!this.#renew && !this.#extending) return
        this.#lastError = undefined
        this.#moveDeadline(askedAt, asked)
        this.dueAt = this.#nextDue(askedAt)
        return this.#expireIfOver()
      case 'gone':
        if (answer.evicted) {
          return this.#lose('evicted', `Somebody evicted it: ${answer.reason ?? 'no reason given'}.`)
        }
        return this.#remaining() <= 0
          ? this.#lose('expired', EXPIRED)
          : this.#lose('store-reset', STORE_RESET)
      case 'queued':
        // A store that says so has lost the grant and kept the wait: it was reset to an older state.
        return this.#lose('store-reset', STORE_RESET)
      default:
        answer satisfies never
    }
  }

  unanswered(error: unknown): void {
    this.#lastError = error
    // Without renewal it was a question about an eviction, which stays open.
    this.#checking = true
    this.dueAt = Math.min(
      this.#engine.clock.monotonicMs() + Math.min(this.#engine.backoffMs(this.#attempts), this.#attemptMs()),
      this.#deadlineAt(),
    )
  }

  /** Nobody has seen it yet, and it is over: as if it had not been. The ticket lives on. */
  forget(): void {
    this.#end(RELEASED)
  }

  #extended(answer: RenewAnswer, askedAt: Instant, asked: Ticket): void {
    if (this.#state.tag === 'held' && answer.tag === 'held') this.ticket = asked
    this.#extending = true
    this.answered(answer, askedAt, asked)
    this.#extending = false
    if (this.#state.tag === 'held') this.#engine.keeper.keep(this)
  }

  #moveDeadline(askedAt: Instant, asked: Ticket): void {
    const usable = usableMs(asked.ttlMs)
    // A late answer to an earlier request may prove less than what is known by now.
    if (askedAt.monotonicMs + usable <= this.#askedAt.monotonicMs + this.#usableMs) return
    this.#askedAt = askedAt
    this.#usableMs = usable
  }

  /** What is left of the term that the store has confirmed. */
  #termMs(): number {
    return this.#usableMs - elapsedMs(this.#askedAt, now(this.#engine.clock))
  }

  #remaining(): number {
    return Math.min(this.#termMs(), this.#endsAt - this.#engine.clock.monotonicMs())
  }

  #deadlineAt(): number {
    // From now, by both clocks: on the monotonic one alone it would be late by as long as the machine slept.
    return this.#engine.clock.monotonicMs() + this.#remaining()
  }

  #nextDue(askedAt: Instant): number {
    if (!this.#renew) return this.#deadlineAt()
    const third = (this.ticket.ttlMs / 3) * (0.9 + this.#engine.chance() * 0.2)
    return Math.min(askedAt.monotonicMs + third, this.#deadlineAt())
  }

  /** One attempt gets half of what is left, so several fit in before the deadline. */
  #attemptMs(): number {
    return Math.max(MIN_ATTEMPT_MS, Math.min(this.#remaining() / 2, this.#engine.attemptMs(1)))
  }

  #expireIfOver(): void {
    if (this.#state.tag !== 'held' || this.#remaining() > 0) return
    const stuck = this.#engine.clock.monotonicMs() >= this.#endsAt
    this.#lose('expired', stuck ? 'It was held for its whole `maxHold`.' : EXPIRED)
  }

  #lose(reason: LossReason, why: string): void {
    const error = lossOf(this.ticket, reason, why, this.#lastError)
    this.#end({ tag: 'lost', error })
    this.#tell(error)
  }

  /** Outside of who noticed it: a listener must not run inside the scope of keys that another caller holds. */
  #tell(error: LeaseLostError | ClosedError): void {
    outsideOfCallers(() => this.#controller?.abort(error))
  }

  #end(state: State): void {
    this.#state = state
    this.#engine.keeper.drop(this)
    if (this.#controller !== undefined) this.#engine.watched.delete(this.id)
  }
}

const MIN_ATTEMPT_MS = 10
const DONE: Promise<void> = Promise.resolve()
const EXPIRED = 'Its deadline passed before a renewal was confirmed.'
const STORE_RESET =
  'The store no longer knew it before its time: it was restarted or flushed, or its clock jumped.'

function releasedError(ticket: Ticket): LeaseLostError {
  const message = `The lease on ${JSON.stringify(ticket.key)} was released by its holder. Acquire the key again to go on.`
  return new LeaseLostError(message, { key: ticket.key, reason: 'expired' })
}

function lossOf(ticket: Ticket, reason: LossReason, why: string, cause?: unknown): LeaseLostError {
  return new LeaseLostError(
    `The lease on ${JSON.stringify(ticket.key)} is over. ${why} Stop writing: others may hold the key.`,
    { key: ticket.key, reason, cause },
  )
}

// What console.log shows: this lease, and not the engine's list of all others. Here, since a computed name in the class
// has no type that a declaration file could be written from.
Object.defineProperty(HeldLease.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: HeldLease): object {
    const { key, id, fence, state, remainingMs } = this
    return { key, id, fence, state, remainingMs }
  },
})
