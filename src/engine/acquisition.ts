import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import type { Abortable } from '../base/signal-watch.ts'
import type { AcquireAnswer, RenewAnswer, Ticket } from '../contract/store.ts'
import {
  type HoldfastError,
  type HoldfastErrorCode,
  isHoldfastError,
  type LeaseLostError,
} from '../errors.ts'
import type { Engine } from './engine.ts'
import { tellStoreError } from './events.ts'
import { HeldLease } from './held-lease.ts'
import type { Exchange } from './instant.ts'
import { isLater } from './later.ts'
import type { LeaseOptions } from './lease-deadline.ts'
import type { Withdrawal } from './lock-events.ts'
import type { Kept } from './renewal-loop.ts'
import { evictionOf, silenceOf, timeoutOf } from './ticket-errors.ts'

export interface AcquireRequest {
  readonly ticket: Ticket
  /** How long to wait in all. 0: never wait; `null` is the answer when it is busy. */
  readonly waitMs: number
  readonly signal: AbortSignal | undefined
  readonly lease: LeaseOptions
  /** When the call began, on the monotonic clock, if this is not all of it. For messages. */
  readonly startedAtMs?: number | undefined
  /**
   * Called whenever the store says that the ticket waits, and whether it is in a new place: at first, and when the store
   * had forgotten it. An error ends the wait. For deadlock detection.
   */
  readonly whileQueued: ((place: 'new' | 'same') => HoldfastError | undefined) | undefined
}

/**
 * One attempt to hold a key that was not settled in the same tick. Two phases: it *asks* until the store has said
 * something (repeating the request under the same id when no answer comes), then it *waits*, which is a matter of the
 * keeper: it stays remembered, and asks when it is woken or when the store said that asking is useful.
 *
 * However it ends without a lease, the ticket is given back in the background, so a grant that comes late is neither
 * delivered nor leaked.
 */
export class Acquisition implements Kept, Abortable {
  readonly ticket: Ticket
  readonly promise: Promise<HeldLease | null>
  dueAt: number = Number.POSITIVE_INFINITY
  slackMs = 0
  kept = false
  previous: Kept | undefined
  next: Kept | undefined
  readonly #engine: Engine
  readonly #request: AcquireRequest
  readonly #startedAt: number
  /** When the caller's patience ends, on the monotonic clock. */
  readonly #until: number
  /** A wait shorter than a round trip still gets an answer: the key may be free. */
  readonly #answerUntil: number
  #resolve: (lease: HeldLease | null) => void = unset
  #reject: (error: unknown) => void = unset
  #phase: 'asking' | 'waiting' | 'over' = 'asking'
  #doubts = 0
  #lease: HeldLease | undefined
  #lastAskedAt = 0
  #attempts = 0
  /** Whether the latest acquire request has neither an answer nor failed. */
  #silent = false
  #askAgainAt = 0
  #woken = false
  /** The first wake since the store last said that it waits. */
  #wokenAt: number | undefined
  /** How many questions of a waiter have no answer. */
  #open = 0
  /** Woken while a question was open: what is answered may be older than what the wake was about. */
  #overtaken = false
  #queued = false
  #ahead: number | undefined
  #lastError: unknown

  constructor(engine: Engine, request: AcquireRequest, startedAt: Instant) {
    this.#engine = engine
    this.#request = request
    this.ticket = request.ticket
    this.#startedAt = startedAt.monotonicMs
    // Who does not want to wait for the key still wants to know: the store has a while to answer.
    this.#until = startedAt.monotonicMs + (request.waitMs > 0 ? request.waitMs : ANSWER_MS)
    this.#answerUntil = Math.max(this.#until, startedAt.monotonicMs + SILENCE_MS)
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    if (request.signal !== undefined) engine.signals.add(request.signal, this)
    engine.waiting.set(this.ticket.id, this)
    engine.keeper.keep(this)
    // It may have aborted while the store was asked.
    if (request.signal?.aborted === true) this.abort(request.signal.reason)
  }

  get awaited(): boolean {
    return true
  }

  /** Acquire requests without an answer so far. If one is left at the end, it may arrive later than the release. */
  get doubts(): number {
    return this.#doubts
  }

  /** Takes the reply to the first request, which is already on its way. */
  expect(reply: Promise<AcquireAnswer>, askedAt: Instant): void {
    this.#doubts += 1
    this.#attempts += 1
    this.#silent = true
    this.#setDue(this.#engine.clock.monotonicMs() + this.#engine.attemptMs(this.#attempts))
    Promise.resolve(reply)
      .then((answer) => {
        this.#doubts -= 1
        this.#silent = false
        this.settle(answer, { askedAt, answeredAt: this.#engine.now() })
      })
      .catch((error: unknown) => this.#notAsked(error))
  }

  /** What the store said to an acquire. */
  settle(answer: AcquireAnswer, when: Exchange): void {
    if (this.#phase === 'over') return this.#settleLate(answer)
    switch (answer.tag) {
      case 'held':
        return this.#deliver(answer.fence, when)
      case 'queued':
        if (this.ticket.patienceMs === 0) return this.#refused()
        return this.#wait('new', answer.ahead, answer.askAgainMs, when.answeredAt)
      case 'busy':
        if (this.ticket.patienceMs === 0) return this.#refused()
        return this.#notAsked(new Error('The store said `busy` to a ticket that is willing to wait.'))
      case 'gone':
        return this.giveUp(evictionOf(this.ticket, answer.reason))
      default:
        answer satisfies never
        return this.#notAsked(new Error('The store gave an answer that is none.'))
    }
  }

  /** Not free, for somebody who does not wait. An earlier request may still arrive, and find the key free by then. */
  #refused(): void {
    this.#finish()
    this.#resolve(null)
    this.#engine.events.busy.tell(this.#request, {})
    if (this.#doubts > 0) void this.#engine.giveBack(this.ticket, { cancel: true })
  }

  /** An answer that nobody waits for. The give-back has ended before this request arrived, so it takes another one. */
  #settleLate(answer: AcquireAnswer): void {
    const unused = this.#lease === undefined || this.#lease.isGivenBack
    if (answer.tag !== 'busy' && answer.tag !== 'gone' && unused) {
      void this.#engine.giveBack(this.ticket, { cancel: this.#doubts > 0 })
    }
  }

  /** A wake: asking again is worth it. */
  wake(): void {
    this.#woken = true
    if (this.#engine.events.acquired.isHeard) this.#wokenAt ??= this.#engine.clock.monotonicMs()
    if (this.#phase === 'asking' || this.#open > 0) this.#overtaken = true
    if (this.#phase !== 'waiting') return
    this.dueAt = 0
    this.#engine.keeper.hurry(this)
  }

  due(at: Instant): boolean {
    if (this.#phase === 'asking' && this.#silent) this.#tellStoreError(undefined)
    if (at.monotonicMs >= this.#limit()) {
      this.giveUp(this.#outOfPatience())
      return false
    }
    if (this.#phase === 'asking') {
      // The last request was not answered in its time, or failed and has paused long enough.
      this.#ask()
      return false
    }
    if (!this.#woken && at.monotonicMs < this.#askAgainAt - this.slackMs) {
      this.#setDue(this.#askAgainAt)
      return false
    }
    this.#woken = false
    this.#attempts += 1
    this.#open += 1
    this.#lastAskedAt = at.monotonicMs
    this.#setAskAgain(this.#engine.attemptMs(this.#attempts), at)
    return true
  }

  /** What the store said to a renew, which keeps a waiter remembered and confirms an offer. */
  answered(answer: RenewAnswer, _asked: Ticket, when: Exchange): void {
    if (this.#phase !== 'waiting') return
    this.#open -= 1
    this.#lastError = undefined
    this.#attempts = 0
    switch (answer.tag) {
      case 'held':
        return this.#deliver(answer.fence, when)
      case 'queued':
        return this.#wait('same', this.#ahead, answer.askAgainMs, when.answeredAt)
      case 'gone':
        if (answer.evicted) return this.giveUp(evictionOf(this.ticket, answer.reason))
        // Forgotten: this process was away for too long, or the store was reset. Back to the end of the queue.
        this.#phase = 'asking'
        return this.#ask()
      default:
        answer satisfies never
    }
  }

  unanswered(error: unknown): void {
    if (this.#phase !== 'waiting') return
    this.#open -= 1
    this.#lastError = error
    if (isHoldfastError(error, 'store-refused')) return this.giveUp(error)
    this.#setAskAgain(this.#engine.backoffMs(this.#attempts), this.#engine.now())
  }

  /** The caller's signal. */
  abort(reason: unknown): void {
    outsideOfCallers(() => this.#giveUp(reason, 'aborted'))
  }

  giveUp(error: HoldfastError): void {
    this.#giveUp(error, WITHDRAWALS[error.code] ?? 'store')
  }

  #giveUp(error: unknown, reason: Withdrawal | 'timeout'): void {
    if (this.#phase === 'over') return
    this.#finish()
    this.#reject(error)
    void this.#engine.giveBack(this.ticket, { cancel: this.#doubts > 0 })
    const { evicted, timeout, withdrawn } = this.#engine.events
    const waitedMs = this.#engine.clock.monotonicMs() - this.#startedAt
    if (reason === 'timeout') return timeout.tell(this.#request, { waitedMs, ahead: this.#ahead })
    if (reason === 'evicted')
      evicted.tell(this.#request, { was: 'waiter', reason: (error as LeaseLostError).evictedBecause })
    withdrawn.tell(this.#request, { waitedMs, reason, error })
  }

  #ask(): void {
    const askedAt = this.#engine.now()
    try {
      const answer = this.#engine.store.acquire(this.ticket)
      if (isLater(answer)) this.expect(answer, askedAt)
      else this.settle(answer, { askedAt, answeredAt: askedAt })
    } catch (error) {
      this.#attempts += 1
      this.#doubts += 1
      this.#notAsked(error)
    }
  }

  /** An acquire failed: it may have arrived all the same, and the next one has the same id. */
  #notAsked(error: unknown): void {
    this.#silent = false
    this.#tellStoreError(error)
    if (this.#phase !== 'asking') return
    this.#lastError = error
    if (isHoldfastError(error, 'store-refused')) return this.giveUp(error)
    this.#setDue(this.#engine.clock.monotonicMs() + this.#engine.backoffMs(this.#attempts))
  }

  #deliver(fence: bigint, when: Exchange): void {
    const lease = new HeldLease(this.#engine, this.ticket, fence, when, this.#request.lease)
    if (this.#doubts > 0) lease.origin = this
    if (!lease.isOverAt(when.answeredAt)) {
      this.#lease = lease
      this.#finish()
      this.#resolve(lease)
      this.#tellAcquired(fence, when.answeredAt)
      // The wake may have been for an eviction that came after this grant.
      if (this.#overtaken) lease.check()
      return
    }
    // The answer took longer than the ttl: it proves nothing any more. Asking under the same id takes the lease anew.
    lease.forget()
    this.#phase = 'asking'
    this.#ask()
  }

  #tellAcquired(fence: bigint, { monotonicMs }: Instant): void {
    const { acquired } = this.#engine.events
    if (!acquired.isHeard) return
    acquired.tell(this.#request, {
      fence,
      waitedMs: monotonicMs - this.#startedAt,
      queued: this.#queued,
      wokenMs: this.#wokenAt === undefined ? undefined : monotonicMs - this.#wokenAt,
    })
  }

  #tellStoreError(error: unknown): void {
    const { key, id } = this.ticket
    tellStoreError(this.#engine.events, { verb: 'acquire', error, key, id })
  }

  #wait(place: 'new' | 'same', ahead: number | undefined, askAgainMs: number, at: Instant): void {
    this.#phase = 'waiting'
    this.#attempts = 0
    // Woken meanwhile, it asks once more below; only a wake after that one can be missed.
    this.#overtaken = this.#open > 0 && this.#overtaken
    this.#ahead = ahead
    this.#lastError = undefined
    if (!this.#woken) this.#wokenAt = undefined
    // Only now, so that a lock nobody waits for needs no subscription. It asks everything again once wakes flow. And before
    // anybody is told, as a listener may give the key back.
    this.#engine.listen()
    if (!this.#queued) {
      this.#queued = true
      this.#engine.events.queued.tell(this.#request, { ahead: ahead ?? 0 })
    }
    const deadlock = this.#request.whileQueued?.(place)
    if (deadlock !== undefined) return this.giveUp(deadlock)
    if (at.monotonicMs >= this.#until) return this.giveUp(this.#outOfPatience())
    // Whatever a store says, nobody asks without a pause.
    this.#setAskAgain(askAgainMs >= 1 ? askAgainMs : SILENCE_MS, at)
    // It was woken while this answer was under way.
    if (this.#woken) this.wake()
  }

  #setAskAgain(pauseMs: number, from: Instant): void {
    this.#askAgainAt = from.monotonicMs + pauseMs
    this.slackMs = Math.min(pauseMs / 4, LONGEST_SLACK_MS)
    this.#setDue(this.#askAgainAt)
  }

  #setDue(at: number): void {
    // Over before the reply to its first request was expected: the caller's signal aborted while that was written.
    if (this.#phase === 'over') return
    this.dueAt = Math.min(at, this.#limit())
    this.#engine.keeper.keep(this)
  }

  #limit(): number {
    return this.#phase === 'asking' ? this.#answerUntil : this.#until
  }

  #finish(): void {
    this.#phase = 'over'
    this.#engine.keeper.drop(this)
    this.#engine.waiting.delete(this.ticket.id)
    if (this.#request.signal !== undefined) this.#engine.signals.remove(this.#request.signal, this)
  }

  #outOfPatience(): HoldfastError {
    // Of several keys the caller has waited for all until now.
    const from = this.#request.startedAtMs ?? this.#startedAt
    const waitedMs = Math.round(this.#engine.clock.monotonicMs() - from)
    const silentMs = this.#attempts === 0 ? 0 : this.#engine.clock.monotonicMs() - this.#lastAskedAt
    if (
      this.#phase === 'asking' ||
      this.#lastError !== undefined ||
      this.#attempts > 1 ||
      silentMs > SILENCE_MS
    ) {
      return silenceOf(this.ticket, this.#engine.store.name, waitedMs, this.#lastError)
    }
    return timeoutOf(this.ticket, waitedMs, this.#ahead)
  }
}

/** What an error says of why its request ended; anything else is the store's. */
const WITHDRAWALS: { readonly [code in HoldfastErrorCode]?: Withdrawal | 'timeout' } = {
  'acquire-timeout': 'timeout',
  'lease-lost': 'evicted',
  deadlock: 'deadlock',
  closed: 'closed',
}

/** Stands for the two functions until the promise has handed them over, which it does at once. */
function unset(): void {}

/** How long a store may take to answer somebody who will not wait for the key. */
const ANSWER_MS = 5000
/** A request that is unanswered for this long says that the store is silent, and not that the key is taken. */
const SILENCE_MS = 500
/** How much earlier than necessary a waiter may be asked about, to share a request with others. */
const LONGEST_SLACK_MS = 500
