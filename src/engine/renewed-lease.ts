import { assert } from '../base/assert.ts'
import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import type { RenewAnswer, Ticket } from '../contract/store.ts'
import type { ClosedError, LeaseLostError } from '../errors.ts'
import type { EngineContext } from './engine-context.ts'
import { tellStoreError } from './events.ts'
import type { Exchange } from './instant.ts'
import { LeaseDeadline, type LeaseOptions } from './lease-deadline.ts'
import type { ListedLease } from './leases.ts'
import type { LockEvents } from './lock-events.ts'
import type { Renewable } from './renewable.ts'
import { lossOf } from './ticket-errors.ts'
import type { Bucket } from './timer-wheel.ts'

/**
 * The life of a lease.
 *
 * | from             | to         | when                                                                                  |
 * | ---------------- | ---------- | ------------------------------------------------------------------------------------- |
 * | –                | `held`     | the store has granted the ticket                                                      |
 * | `held`           | `jeopardy` | a renewal failed or is overdue, and less than half of the ttl is left                 |
 * | `jeopardy`       | `held`     | the store has confirmed a renewal                                                     |
 * | `held, jeopardy` | `lost`     | the deadline has passed, or the store says that the ticket is evicted or forgotten    |
 * | `held, jeopardy` | `released` | its holder releases it, or nobody was given it                                        |
 * | `held, jeopardy` | `detached` | its holder lets go of it, and it continues in another process                         |
 * | `released`       | `lost`     | its locks are closed; in the same call that has released it, and with a `ClosedError` |
 *
 * A lease is in the renewal loop exactly while it is `held` or in `jeopardy`. So an answer that arrives after its end is
 * dropped by the loop. Only `extend()` asks beside the loop, and has to look itself whether the lease ended meanwhile.
 */
export type LeasePhase =
  | { readonly tag: 'held' }
  /** The event `jeopardy` was told. */
  | { readonly tag: 'jeopardy' }
  | { readonly tag: 'lost'; readonly error: LeaseLostError | ClosedError }
  | { readonly tag: 'released' }
  | { readonly tag: 'detached' }

const HELD: LeasePhase = { tag: 'held' }
const JEOPARDY: LeasePhase = { tag: 'jeopardy' }
export const RELEASED: LeasePhase = { tag: 'released' }
export const DETACHED: LeasePhase = { tag: 'detached' }

/** The grant of the store, and the wishes of the caller for the lease. */
export interface GrantedTicket {
  readonly ticket: Ticket
  /** A number below 2^53 becomes a bigint when somebody asks for it. */
  readonly fence: bigint | number
  readonly askedAt: Instant
  readonly answeredAt: Instant
  readonly options: LeaseOptions
}

/** The half of a lease that the store decides: it is renewed until it ends, and lost if the store or the clocks say so. */
export abstract class RenewedLease extends LeaseDeadline implements ListedLease {
  // Declared and not defined, and private without `#`, for the reason that LeaseDeadline gives.
  declare ticket: Ticket
  /** In whole milliseconds, as all times of a {@link LeaseDeadline}. */
  declare dueAt: number
  declare bucket: Bucket<Renewable> | undefined
  declare previous: Renewable | undefined
  declare next: Renewable | undefined
  declare protected readonly context: EngineContext
  declare protected phase: LeasePhase
  /** The error of a renewal or an extension; the `cause` of a loss. */
  declare protected lastError: unknown
  declare protected controller: AbortController | undefined
  declare private fenceGiven: bigint | number
  /** Renewals in a row without an answer. */
  declare private attempts: number
  /** Somebody wants to know whether it was evicted, however long it has until its next renewal. */
  declare private checking: boolean

  constructor(context: EngineContext, { ticket, fence, askedAt, options }: GrantedTicket) {
    super(askedAt, ticket.ttlMs, options)
    this.context = context
    this.ticket = ticket
    this.fenceGiven = fence
    this.dueAt = 0
    this.bucket = undefined
    this.previous = undefined
    this.next = undefined
    this.phase = HELD
    this.lastError = undefined
    this.controller = undefined
    this.attempts = 0
    this.checking = false
  }

  /** Has it renewed from now on. Not in the constructor, which V8 inlines only while it is short. */
  begin(askedAt: Instant, answeredAt: Instant): void {
    this.dueAt = this.nextDue(askedAt, this.deadlineAt(answeredAt))
    this.context.leases.add(this, answeredAt.monotonicMs)
  }

  abstract close(error: ClosedError): Promise<void>

  get kind(): 'lease' {
    return 'lease'
  }

  get awaited(): boolean {
    return false
  }

  /**
   * How much earlier than planned it may be renewed. Without renewal it is due at its end, and not before. While an answer is
   * on its way, no other round may ask once more. After a failure it is less than a third of the pause.
   */
  get slackMs(): number {
    if (!this.options.renew) return 0
    const usual = this.usableMs / 10
    if (this.attempts === 0) return usual
    return this.checking ? Math.min(usual, SLACK_OF_RETRY_MS * this.attempts) : 0
  }

  get key(): string {
    return this.ticket.key
  }

  get fence(): bigint {
    if (typeof this.fenceGiven === 'number') this.fenceGiven = BigInt(this.fenceGiven)
    return this.fenceGiven
  }

  get id(): string {
    return this.ticket.id
  }

  /** Whether somebody has its signal. */
  get isWatched(): boolean {
    return this.controller !== undefined
  }

  /**
   * A lease with `renew: false` only checks for eviction. The check uses the remaining ttl, so it does not prolong the
   * lease beyond its deadline if this process dies.
   */
  get renewRequest(): Ticket {
    if (this.options.renew) return this.ticket
    const ttlMs = Math.max(1, Math.floor(this.leftMs(this.now())))
    return { ...this.ticket, ttlMs, acceptMs: Math.min(ttlMs, this.ticket.acceptMs) }
  }

  /** Asks the store now: the lease may have been evicted, or the store reset. Without effect once the lease is over. */
  check(): void {
    this.checking = true
    this.context.renewals.askNow(this)
  }

  due(at: Instant): boolean {
    assert(this.isLive, 'a lease that is over is due')
    // Worked out once, here and where the answer comes: with thousands of leases each call more is felt.
    const leftMs = this.leftMs(at)
    if (leftMs <= 0) {
      this.expireIfOver(at)
      return false
    }
    const deadlineAt = at.monotonicMs + leftMs
    if (!this.options.renew) {
      const asks = this.checking
      this.checking = false
      this.dueAt = Math.ceil(deadlineAt)
      if (asks) this.attempts += 1
      return asks
    }
    this.checking = false
    // If it is due again without an answer in between, that attempt is given up and another one is made.
    this.attempts += 1
    this.dueAt = Math.ceil(Math.min(at.monotonicMs + this.attemptMs(leftMs), deadlineAt))
    this.tellJeopardy(at)
    return true
  }

  answered(answer: RenewAnswer, asked: Ticket, when: Exchange, { extending }: Purpose = RENEWING): void {
    assert(this.isLive, 'a lease that is over is renewed')
    this.attempts = 0
    switch (answer.tag) {
      case 'held':
        // The same id under another fence is a new grant: the store had lost ours, and a late request was let in again.
        if (answer.fence !== this.fence) return this.lose('store-reset', STORE_RESET)
        // Without renewal only `extend()` may move the deadline; a check for eviction may not.
        if (!this.options.renew && !extending) return
        this.lastError = undefined
        this.confirm(when, asked.ttlMs)
        return this.renewed(when)
      case 'gone':
        if (answer.evicted)
          return this.lose(
            'evicted',
            `Somebody evicted it: ${answer.reason ?? 'no reason given'}.`,
            answer.reason,
          )
        return this.isOverAt(when.answeredAt)
          ? this.lose('expired', EXPIRED)
          : this.lose('store-reset', STORE_RESET)
      case 'queued':
        // The store has lost the grant and kept the wait: it was reset to an older state.
        return this.lose('store-reset', STORE_RESET)
      default:
        answer satisfies never
    }
  }

  unanswered(error: unknown): void {
    assert(this.isLive, 'a lease that is over is renewed')
    // An answer about other leases of the same batch says nothing about this one.
    this.lastError = error ?? this.lastError
    // Without renewal the request was a check for eviction, and is made again.
    this.checking = true
    const at = this.now()
    const leftMs = this.leftMs(at)
    const pauseMs = Math.min(this.context.backoffMs(this.attempts), this.attemptMs(leftMs))
    this.dueAt = Math.ceil(at.monotonicMs + Math.min(pauseMs, leftMs))
    this.tellJeopardy(at)
  }

  protected get isLive(): boolean {
    const { tag } = this.phase
    return tag === 'held' || tag === 'jeopardy'
  }

  protected now(): Instant {
    return this.context.now()
  }

  protected get subject(): { readonly ticket: Ticket; readonly lease: LeaseOptions } {
    return { ticket: this.ticket, lease: this.options }
  }

  /** It is renewed at a third of the ttl, so this little is left only if something is wrong. */
  protected isInJeopardy(at: Instant): boolean {
    return this.options.renew && this.confirmedMs(at) < this.ticket.ttlMs / 2
  }

  /** One attempt gets half of what is left, so several fit in before the deadline. */
  protected attemptMs(leftMs: number): number {
    return Math.max(MIN_ATTEMPT_MS, Math.min(leftMs / 2, this.context.attemptMs(1)))
  }

  protected expireIfOver(at: Instant): void {
    if (!this.isLive || !this.isOverAt(at)) return
    if (this.options.renew && !this.isUsedUp(at)) {
      // The answer that confirms it may have arrived in time, and wait for its turn.
      this.context.renewals.catchUp()
      if (!this.isLive || !this.isOverAt(this.now())) return
    }
    this.expire(at)
  }

  protected expire(at: Instant): void {
    this.lose('expired', this.isUsedUp(at) ? 'It was held for its whole `maxHold`.' : EXPIRED)
  }

  /** Aborts the signal. Outside of the caller's scope: a listener must not run inside the scope of another caller's keys. */
  protected tell(error: LeaseLostError | ClosedError): void {
    outsideOfCallers(() => this.controller?.abort(error))
  }

  /** The one way out of `held` and `jeopardy`. */
  protected end(phase: LeasePhase): void {
    assert(this.isLive, 'a lease ends twice')
    this.phase = phase
    this.context.leases.remove(this)
  }

  private tellJeopardy(at: Instant): void {
    if (this.phase.tag !== 'held' || !this.isInJeopardy(at)) return
    this.phase = JEOPARDY
    const remainingMs = Math.max(0, this.leftMs(at))
    const { jeopardy } = this.context.events
    jeopardy.tell(this.subject, { fence: this.fence, remainingMs, error: this.lastError })
  }

  private renewed({ askedAt, answeredAt }: Exchange): void {
    const remainingMs = this.leftMs(answeredAt)
    if (remainingMs <= 0) return this.expire(answeredAt)
    this.dueAt = this.nextDue(askedAt, answeredAt.monotonicMs + remainingMs)
    if (this.phase.tag === 'jeopardy' && !this.isInJeopardy(answeredAt)) this.phase = HELD
    const { renewed } = this.context.events
    if (!renewed.isHeard) return
    const tookMs = answeredAt.monotonicMs - askedAt.monotonicMs
    renewed.tell(this.subject, { fence: this.fence, remainingMs, tookMs })
  }

  private nextDue(askedAt: Instant, deadlineAt: number): number {
    if (!this.options.renew) return Math.ceil(deadlineAt)
    const third = (this.ticket.ttlMs / 3) * (0.9 + this.context.chance() * 0.2)
    return Math.ceil(Math.min(askedAt.monotonicMs + third, deadlineAt))
  }

  private lose(reason: LockEvents['lost']['reason'], why: string, evictedBecause?: string): void {
    const error = lossOf(this.ticket, why, { reason, evictedBecause, cause: this.lastError })
    const at = this.now()
    const heldMs = this.heldMs(at)
    // An error of a renewal was told when it came. Silence is certain only now. A loss that is noticed late is one of a process that stood still.
    const isSilent = this.attempts > 0 && this.lastError === undefined && -this.leftMs(at) < NOTICED_LATE_MS
    const isUnanswered = reason === 'expired' && isSilent && !this.isUsedUp(at)
    this.end({ tag: 'lost', error })
    this.tell(error)
    // Last, because a listener may do anything with the lease. The lease is over by now, and cannot end again.
    const { evicted, lost } = this.context.events
    outsideOfCallers(() => {
      if (isUnanswered)
        tellStoreError(this.context.events, { verb: 'renew', error: undefined, key: this.key, id: this.id })
      if (reason === 'evicted') evicted.tell(this.subject, { was: 'holder', reason: error.evictedBecause })
      lost.tell(this.subject, { fence: this.fence, reason, heldMs, error })
    })
  }
}

/** The purpose of a request to the store. */
interface Purpose {
  readonly extending: boolean
}

const RENEWING: Purpose = { extending: false }
export const EXTENDING: Purpose = { extending: true }
const MIN_ATTEMPT_MS = 10
/** A pause is at least 25 ms, and longer after each failure. */
const SLACK_OF_RETRY_MS = 8
/** A process that does not stand still notices the end of a lease within this time. */
const NOTICED_LATE_MS = 500
const EXPIRED = 'Its deadline passed before a renewal was confirmed.'
const STORE_RESET =
  'The store no longer knew it before its time: it was restarted or flushed, or its clock jumped.'
