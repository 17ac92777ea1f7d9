import type { RenewAnswer, Ticket } from '../contract/store.ts'
import { isHoldfastError, LeaseLostError, type LossReason } from '../errors.ts'
import { parseDuration, TTL_RANGE, terms } from './duration.ts'
import type { Engine } from './engine.ts'
import { elapsedMs, type Instant, now, usableMs } from './instant.ts'
import type { Kept } from './keeper.ts'
import type { Lease, LeaseJson, LeaseState } from './lease.ts'

export interface LeaseOptions {
  readonly renew: boolean
  readonly maxHoldMs: number
}

type State =
  | { readonly tag: 'held' }
  | { readonly tag: 'released' }
  | { readonly tag: 'lost'; readonly error: LeaseLostError }

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
  /** How many acquire requests of this ticket were never answered: one may still arrive, after the release. */
  doubts: number
  /** Told once, when the lease is over. */
  whenOver: ((lease: HeldLease) => void) | undefined
  readonly #engine: Engine
  readonly #renew: boolean
  /** Before the latest request that the store confirmed was written: the store counts from later. */
  #askedAt: Instant
  #usableMs: number
  /** `maxHold` on the monotonic clock. */
  readonly #endsAt: number
  #state: State = HELD
  #attempts = 0
  #lastError: unknown
  #controller: AbortController | undefined

  constructor(engine: Engine, ticket: Ticket, fence: bigint, askedAt: Instant, options: LeaseOptions) {
    this.#engine = engine
    this.ticket = ticket
    this.fence = fence
    this.doubts = 0
    this.#askedAt = askedAt
    this.#usableMs = usableMs(ticket.ttlMs)
    this.#renew = options.renew
    this.#endsAt = askedAt.monotonicMs + options.maxHoldMs
    this.dueAt = this.#nextDue()
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
    const remaining = this.#remaining()
    if (remaining <= 0) return 'lost'
    return this.#attempts > 1 && remaining < this.ticket.ttlMs / 2 ? 'jeopardy' : 'held'
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
    let last: unknown
    while (this.#state.tag === 'held') {
      const asked = this.ticket
      const askedAt = this.#asking()
      try {
        const answers = await this.#engine.withinAttempt(this.#engine.store.renew([asked]), this.#attemptMs())
        const answer = answers[0]
        if (answer !== undefined) this.answered(answer, askedAt, asked)
        this.assertHeld()
        this.#engine.keeper.keep(this)
        return
      } catch (error) {
        if (isHoldfastError(error, 'lease-lost') || isHoldfastError(error, 'store-refused')) throw error
        last = error
        await this.#engine.sleep(Math.max(1, Math.min(this.#engine.backoffMs(1), this.#remaining())))
        this.#expireIfOver()
      }
    }
    throw last
  }

  release(): Promise<void> {
    return this.releaseNow() ?? DONE
  }

  /** Returns `undefined` when the store answered at once: nobody has to wait then. */
  /** Its holder is done and did not release it: throws if it was lost meanwhile. */
  assertKept(): void {
    if (this.#state.tag !== 'released') this.assertHeld()
  }

  releaseNow(): Promise<void> | undefined {
    const state = this.#state
    // Expired by our clocks, but a renewal that arrived late may have kept it alive in the store.
    const mayBeKnown = state.tag === 'held' || (state.tag === 'lost' && state.error.reason === 'expired')
    if (!mayBeKnown) return undefined
    this.#end(RELEASED)
    return this.#engine.giveBack(this.ticket, { cancel: this.doubts > 0 })
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

  due(_at: Instant): boolean {
    this.#expireIfOver()
    if (this.#state.tag !== 'held' || !this.#renew) return false
    this.#attempts += 1
    // Due again without an answer in between means that this attempt is given up, and another one is made.
    this.dueAt = Math.min(this.#engine.clock.monotonicMs() + this.#attemptMs(), this.#deadlineAt())
    return true
  }

  answered(answer: RenewAnswer, askedAt: Instant, asked: Ticket): void {
    if (this.#state.tag !== 'held') return
    switch (answer.tag) {
      case 'held':
        this.#attempts = 0
        this.#lastError = undefined
        this.#moveDeadline(askedAt, asked)
        this.dueAt = this.#nextDue()
        this.#expireIfOver()
        return
      case 'gone':
        if (answer.evicted)
          this.#lose('evicted', `Somebody evicted it: ${answer.reason ?? 'no reason given'}.`)
        else this.#lose(...this.#whyGone())
        return
      case 'queued':
        // A store that says so has lost the grant and kept the wait: it was reset to an older state.
        this.#lose('store-reset', 'The store counts it among the waiters.')
        return
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

  #whyGone(): [LossReason, string] {
    return this.#remaining() <= 0
      ? ['expired', 'Its deadline passed before a renewal was confirmed.']
      : [
          'store-reset',
          'The store no longer knew it before its time: it was restarted or flushed, or its clock jumped.',
        ]
  }

  #moveDeadline(askedAt: Instant, asked: Ticket): void {
    // A late answer to an earlier request proves less than what is known by now.
    if (askedAt.monotonicMs < this.#askedAt.monotonicMs) return
    this.#askedAt = askedAt
    this.#usableMs = usableMs(asked.ttlMs)
  }

  /** A request with a shorter ttl counts from when it is written: its answer may be lost, and its effect not. */
  #asking(): Instant {
    const askedAt = now(this.#engine.clock)
    const shorter = usableMs(this.ticket.ttlMs)
    if (shorter < this.#usableMs - elapsedMs(this.#askedAt, askedAt)) {
      this.#askedAt = askedAt
      this.#usableMs = shorter
    }
    return askedAt
  }

  #remaining(): number {
    const at = now(this.#engine.clock)
    return Math.min(this.#usableMs - elapsedMs(this.#askedAt, at), this.#endsAt - at.monotonicMs)
  }

  #deadlineAt(): number {
    return Math.min(this.#askedAt.monotonicMs + this.#usableMs, this.#endsAt)
  }

  #nextDue(): number {
    if (!this.#renew) return this.#deadlineAt()
    const third = (this.ticket.ttlMs / 3) * (0.9 + this.#engine.chance() * 0.2)
    return Math.min(this.#askedAt.monotonicMs + third, this.#deadlineAt())
  }

  /** One attempt gets half of what is left, so several fit in before the deadline. */
  #attemptMs(): number {
    return Math.max(MIN_ATTEMPT_MS, Math.min(this.#remaining() / 2, this.#engine.attemptMs(1)))
  }

  #expireIfOver(): void {
    if (this.#state.tag !== 'held' || this.#remaining() > 0) return
    const stuck = this.#engine.clock.monotonicMs() >= this.#endsAt
    this.#lose(
      'expired',
      stuck ? 'It was held for its whole `maxHold`.' : 'Its deadline passed before a renewal was confirmed.',
    )
  }

  #lose(reason: LossReason, why: string): void {
    const error = lossOf(this.ticket, reason, why, this.#lastError)
    this.#end({ tag: 'lost', error })
    this.#controller?.abort(error)
  }

  #end(state: State): void {
    this.#state = state
    this.#engine.keeper.drop(this)
    this.whenOver?.(this)
  }
}

const MIN_ATTEMPT_MS = 10
const DONE: Promise<void> = Promise.resolve()

function lossOf(ticket: Ticket, reason: LossReason, why: string, cause?: unknown): LeaseLostError {
  return new LeaseLostError(
    `The lease on ${JSON.stringify(ticket.key)} is over. ${why} Stop writing: others may hold the key.`,
    { key: ticket.key, reason, cause },
  )
}
