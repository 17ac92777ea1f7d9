import { parseDuration, TTL_RANGE } from '../base/duration.ts'
import type { RenewAnswer, Ticket } from '../contract/store.ts'
import { type ClosedError, isHoldfastError, LeaseLostError, type LossReason } from '../errors.ts'
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
    if (this.#state.tag !== 'held') return this.#state.tag
    if (this.#remaining() <= 0) return 'lost'
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
    if (state.tag === 'released') throw lossOf(this.ticket, 'expired', 'It was released by its holder.')
  }

  async extend(ttl?: number | string): Promise<void> {
    this.assertHeld()
    if (ttl !== undefined) this.ticket = { ...this.ticket, ...terms(parseDuration('ttl', ttl, TTL_RANGE)) }
    const asked = this.ticket
    for (;;) {
      const askedAt = now(this.#engine.clock)
      try {
        const request = () => this.#engine.store.renew([asked])
        const [answer] = await this.#engine.ask(request, this.#attemptMs(), this.key)
        this.#extending = true
        if (answer !== undefined) this.answered(answer, askedAt, asked)
        this.#extending = false
        this.assertHeld()
        this.#engine.keeper.keep(this)
        return
      } catch (error) {
        if (!isHoldfastError(error, 'store-unavailable')) throw error
        this.#lastError = error
        await this.#engine.sleep(Math.max(1, Math.min(this.#engine.backoffMs(1), this.#remaining())))
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
    this.#givenBack = this.#engine.giveBack(this.ticket, { cancel: (this.origin?.doubts ?? 0) > 0 }) ?? DONE
    return this.#givenBack === DONE ? undefined : this.#givenBack
  }

  /** The engine closes: the key goes back, and whoever still works under the lease is told. */
  close(error: ClosedError): Promise<void> {
    const released = this.release()
    if (this.#state.tag === 'released') this.#state = { tag: 'lost', error }
    this.#controller?.abort(error)
    return released
  }

  /** Its holder is done and may have released it: throws if it was lost meanwhile. */
  assertKept(): void {
    if (this.#state.tag !== 'released') this.assertHeld()
  }

  detach(): LeaseJson {
    this.assertHeld()
    this.#end(RELEASED)
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
    if (this.#state.tag !== 'held' || !(this.#renew || this.#checking)) return false
    this.#checking = false
    if (!this.#renew) return true
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
        // Without renewal only extend() may move the deadline, and not a question whether it was evicted.
        if (!this.#renew && !this.#extending) return
        this.#attempts = 0
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
    this.dueAt = Math.min(
      this.#engine.clock.monotonicMs() + Math.min(this.#engine.backoffMs(this.#attempts), this.#attemptMs()),
      this.#deadlineAt(),
    )
  }

  /** Nobody has seen it yet, and it is over: as if it had not been. The ticket lives on. */
  forget(): void {
    this.#end(RELEASED)
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
    return Math.min(this.#askedAt.monotonicMs + this.#usableMs, this.#endsAt)
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
    this.#controller?.abort(error)
  }

  #end(state: State): void {
    this.#state = state
    this.#engine.keeper.drop(this)
  }
}

const MIN_ATTEMPT_MS = 10
const DONE: Promise<void> = Promise.resolve()
const EXPIRED = 'Its deadline passed before a renewal was confirmed.'
const STORE_RESET =
  'The store no longer knew it before its time: it was restarted or flushed, or its clock jumped.'

function lossOf(ticket: Ticket, reason: LossReason, why: string, cause?: unknown): LeaseLostError {
  return new LeaseLostError(
    `The lease on ${JSON.stringify(ticket.key)} is over. ${why} Stop writing: others may hold the key.`,
    { key: ticket.key, reason, cause },
  )
}
