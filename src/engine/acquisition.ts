import { assert } from '../base/assert.ts'
import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import type { Abortable } from '../base/signal-watch.ts'
import type { AcquireAnswer, Granted, RenewAnswer, Ticket } from '../contract/store.ts'
import { type HoldfastError, isHoldfastError } from '../errors.ts'
import { type GivingUp, reasonOf, tellAcquired, tellGivenUp } from './acquire-events.ts'
import type { AcquireRequest } from './acquire-request.ts'
import {
  type AcquisitionState,
  askAgainAfter,
  type BegunWait,
  countAttempt,
  lastNewsOf,
  newAsking,
  newWaiting,
  newWaitOutcome,
  nextAttemptAt,
  type Over,
  pauseAfter,
  type WaitOutcome,
} from './acquisition-state.ts'
import type { EngineContext } from './engine-context.ts'
import { tellStoreError } from './events.ts'
import { grantedAt, isTakenAtOnce, type QueuedAnswer, sampleOf } from './granted-at.ts'
import { type HeldLease, newLease } from './held-lease.ts'
import type { Exchange } from './instant.ts'
import { isLater } from './later.ts'
import { isUsedUp } from './lease-deadline.ts'
import type { Renewable } from './renewable.ts'
import { evictionOf, fullOf, invalidAnswer } from './ticket-errors.ts'
import type { Bucket } from './timer-wheel.ts'
import { WaitLimits } from './wait-limits.ts'
import type { PendingAcquisition } from './wakes.ts'

/**
 * The life of one attempt to hold a key that the store did not settle in the same tick. Its states are {@link AcquisitionState}.
 *
 * Nothing leads out of `over`, but answers may still arrive. A late answer to an acquire request may be a grant, which is
 * released at once; a late answer to a renewal never gets here. If an attempt ends without a lease, its ticket is released
 * in the background. So a late grant is neither delivered nor left behind.
 */
export class Acquisition implements PendingAcquisition, Abortable {
  readonly ticket: Ticket
  readonly promise: Promise<HeldLease | null>
  dueAt: number = Number.POSITIVE_INFINITY
  bucket: Bucket<Renewable> | undefined
  previous: Renewable | undefined
  next: Renewable | undefined
  readonly #context: EngineContext
  readonly #request: AcquireRequest
  readonly #startedAt: number
  readonly #limits: WaitLimits
  readonly #outcome: WaitOutcome
  #state: AcquisitionState
  /** Acquire requests without an answer, in any state. */
  #openRequests = 0
  /** Renewals without an answer, in any state. */
  #openRenewals = 0
  /** A wake came, and the store was not asked since. */
  #woken = false
  /** The first wake since the store last said that the ticket waits. */
  #wokenAt: number | undefined
  /** A wake came while a request was open, so what the store answers may be older than what the wake is about. */
  #overtaken = false
  /** Whether the ticket was asked for more than once. Then it may have waited twice, and a message may be about the first wait. */
  #askedAgain = false
  /** The event `queued` was told. */
  #queued: boolean

  /** `startedAt`: on the monotonic clock. `begun`: a wait that goes on with this attempt. */
  constructor(context: EngineContext, request: AcquireRequest, startedAt: number, begun?: BegunWait) {
    this.#context = context
    this.#request = request
    this.ticket = request.ticket
    this.#startedAt = startedAt
    this.#limits = new WaitLimits(request, startedAt)
    this.#state = begun === undefined ? newAsking(startedAt) : newWaiting(begun.ahead, undefined)
    this.#queued = begun !== undefined
    this.#outcome = begun?.outcome ?? newWaitOutcome()
    this.promise = this.#outcome.promise
    if (request.signal !== undefined) context.signals.add(request.signal, this)
    context.wakes.add(this)
    context.renewals.schedule(this, startedAt)
    // The store enrolled the ticket in a call of another. It is asked after that call, and the signal speaks for itself.
    if (begun !== undefined) {
      context.wakes.start()
      this.#askSoon()
    }
    // It may have aborted while the store was asked.
    else if (request.signal?.aborted === true) this.abort(request.signal.reason)
  }

  get kind(): 'waiter' {
    return 'waiter'
  }

  get awaited(): boolean {
    return true
  }

  get slackMs(): number {
    return this.#state.tag === 'waiting' ? this.#state.slackMs : 0
  }

  /** Acquire requests without an answer. At the end of the lease, one of them may arrive later than the release. */
  get openRequests(): number {
    return this.#openRequests
  }

  /** Takes the reply to an acquire request that is on its way. */
  expect(reply: Promise<AcquireAnswer>, askedAt: Instant): void {
    this.#openRequests += 1
    // It may be over: the caller's signal may have aborted while the first request was written.
    if (this.#state.tag === 'asking') {
      this.#state.attempts += 1
      this.#state.silent = true
      this.#setDue(askedAt.monotonicMs + this.#context.attemptMs(this.#state.attempts), askedAt.monotonicMs)
    }
    Promise.resolve(reply).then(
      (answer) => {
        this.#openRequests -= 1
        this.#heard()
        this.settle(answer, { askedAt, answeredAt: this.#context.now() })
      },
      (error: unknown) => this.#failed(error),
    )
  }

  /** What the store said to an acquire request. */
  settle(answer: AcquireAnswer, when: Exchange): void {
    if (typeof answer !== 'object' || answer === null) return this.#failed(invalidAnswer())
    if (this.#state.tag === 'over') return this.#settleLate(this.#state, answer)
    switch (answer.tag) {
      case 'held':
        return this.#deliver(answer.fence, when)
      case 'queued':
        if (this.ticket.patienceMs === 0) return this.#refused()
        return this.#wait('new', answer.ahead, answer, when)
      case 'busy':
        if (this.ticket.patienceMs === 0) return this.#refused()
        return this.#failed(new Error('The store said `busy` to a ticket that is willing to wait.'))
      case 'gone':
        return this.giveUp(evictionOf(this.ticket, answer.reason))
      default:
        answer satisfies never
        return this.#failed(invalidAnswer())
    }
  }

  wake(): void {
    // Of two messages in one tick, the second may tell of an eviction that came after the grant.
    if (this.#state.tag === 'waiting' && this.#state.granted !== undefined) this.#overtaken = true
    this.#askSoon()
  }

  granted(granted: Granted): void {
    // Without a sample of the store's clock nobody knows when the grant was. It asks.
    if (this.#state.tag === 'waiting') this.#state.granted = granted
    const atOnce = this.#openRenewals === 0 && isTakenAtOnce(this.#context)
    if (!atOnce || !this.#takes(this.#context.now())) this.#askSoon()
  }

  due(at: Instant): boolean {
    const state = this.#state
    assert(state.tag !== 'over', 'a wait that is over is due')
    if (this.#takes(at)) return false
    const isOpen = state.tag === 'asking' || (this.#openRenewals > 0 && !this.#woken)
    if (isOpen && this.#limits.putsOff(this, state, at)) return false
    if (state.tag === 'asking' && state.silent) this.#tellStoreError(undefined)
    // A listener has ended it.
    if (this.#state !== state) return false
    if (at.monotonicMs >= this.#limits.endOf(state)) {
      // Its answer may have arrived in time, and wait for its turn.
      if (state.tag === 'waiting' && state.attempts > 0) this.#context.renewals.catchUp()
      const isOver = this.#state === state && at.monotonicMs >= this.#limits.endOf(state)
      if (isOver) this.giveUp(this.#limits.errorOf(state, this.#context))
      return false
    }
    if (state.tag === 'asking') {
      // The last request was not answered in its time, or failed and has paused long enough.
      this.#ask()
      return false
    }
    if (this.#limits.takeLook(at)) this.#context.holders.begin(this.ticket.key)
    if (!this.#woken && at.monotonicMs < state.askAgainAt - state.slackMs) {
      this.#setDue(state.askAgainAt)
      return false
    }
    this.#woken = false
    this.#openRenewals += 1
    this.#setDue(countAttempt(state, this.#context, { ticket: this.ticket, at }))
    return true
  }

  /** What the store said to a renewal, which keeps a waiter remembered and confirms an offer. */
  answered(answer: RenewAnswer, _asked: Ticket, when: Exchange): void {
    const state = this.#state
    assert(state.tag !== 'over', 'a wait that is over is renewed')
    this.#openRenewals -= 1
    // The ticket was forgotten meanwhile, and is asked for anew. What an older renewal found does not count.
    if (state.tag === 'asking') return
    state.lastError = undefined
    state.attempts = 0
    switch (answer.tag) {
      case 'held':
        return this.#deliver(answer.fence, when)
      case 'queued':
        return this.#wait('same', state.ahead, answer, when)
      case 'gone':
        if (answer.evicted) return this.giveUp(evictionOf(this.ticket, answer.reason))
        // Forgotten: this process was away for too long, or the store was reset. It goes to the end of the queue.
        return this.#askAnew()
      default:
        answer satisfies never
    }
  }

  unanswered(error: unknown): void {
    const state = this.#state
    assert(state.tag !== 'over', 'a wait that is over is renewed')
    this.#openRenewals -= 1
    if (state.tag === 'asking') return
    state.lastError = error
    if (isHoldfastError(error, 'store-refused')) return this.giveUp(error)
    this.#setDue(askAgainAfter(state, this.#context.backoffMs(state.attempts), this.#context.now()))
  }

  abort(reason: unknown): void {
    outsideOfCallers(() => this.#giveUp(reason, 'aborted'))
  }

  giveUp(error: HoldfastError): void {
    this.#giveUp(error, reasonOf(error))
  }

  /** Several reasons may come in one tick. The first one counts. */
  #giveUp(error: unknown, reason: GivingUp['reason']): void {
    const state = this.#state
    if (state.tag === 'over') return
    this.#end(undefined)
    this.#outcome.reject(error)
    const acquireMayFollow = this.#openRequests > 0 || (reason === 'aborted' && state.tag === 'asking')
    void this.#context.release(this.ticket, { cancel: acquireMayFollow })
    const waitedMs = this.#context.clock.monotonicMs() - this.#startedAt
    tellGivenUp(this.#context.events, this.#request, { error, reason, waitedMs, ...lastNewsOf(state) })
  }

  /** Busy, for a caller that does not wait. An earlier request may still arrive, and find the key free by then. */
  #refused(): void {
    this.#end(undefined)
    this.#outcome.resolve(null)
    this.#context.events.busy.tell(this.#request, {})
    if (this.#openRequests > 0) void this.#context.release(this.ticket, { cancel: true })
  }

  /** A late grant that nobody uses is released once more: the release of the ticket arrived before this request did. */
  #settleLate({ lease }: Over, answer: AcquireAnswer): void {
    const isUnused = lease === undefined || lease.isOverForGood
    if (answer.tag !== 'busy' && answer.tag !== 'gone' && isUnused)
      void this.#context.release(this.ticket, { cancel: this.#openRequests > 0 })
  }

  #askAnew(): void {
    this.#request.watch?.left()
    this.#state = newAsking(this.#context.clock.monotonicMs())
    this.#ask()
  }

  #ask(): void {
    this.#askedAgain = true
    const askedAt = this.#context.now()
    let answer: AcquireAnswer | Promise<AcquireAnswer>
    try {
      answer = this.#context.store.acquire(this.ticket)
    } catch (error) {
      answer = Promise.reject(error)
    }
    if (isLater(answer)) this.expect(answer, askedAt)
    else this.settle(answer, { askedAt, answeredAt: askedAt })
  }

  /** An acquire request has an answer, or has failed. */
  #heard(): void {
    if (this.#state.tag === 'asking') this.#state.silent = false
  }

  /** An acquire request failed. It may have arrived all the same, and the next one has the same id. */
  #failed(error: unknown): void {
    this.#heard()
    this.#tellStoreError(error)
    const state = this.#state
    if (state.tag !== 'asking') return
    state.lastError = error
    const attempt = { attempts: state.attempts, startedAt: this.#startedAt, request: this.#request }
    const again = nextAttemptAt(error, this.#context, attempt)
    if (again === undefined) return this.giveUp(error as HoldfastError)
    this.#setDue(again)
  }

  #deliver(fence: bigint, { askedAt, answeredAt }: Exchange): void {
    const { ticket } = this
    const options = this.#request.lease
    const lease = newLease(this.#context, { ticket, fence, askedAt, answeredAt, options })
    if (this.#openRequests > 0) lease.origin = this
    if (!lease.isOverAt(answeredAt)) {
      this.#end(lease)
      this.#outcome.resolve(lease)
      this.#tellAcquired(fence, answeredAt)
      // The wake may have been for an eviction that came after this grant.
      if (this.#overtaken) lease.check()
      return
    }
    // The answer took longer than the ttl, and proves nothing. Asking under the same id takes the lease anew.
    lease.forget()
    if (this.#state.tag === 'asking') this.#ask()
    else this.#askAnew()
  }

  /** Whether a message came that was the lease. If not, it was a hint, and the store is asked. */
  #takes(at: Instant): boolean {
    const state = this.#state
    if (state.tag !== 'waiting' || state.granted === undefined) return false
    const { granted, sample } = state
    state.granted = undefined
    const askedAt = grantedAt(granted, sample, at)
    if (askedAt === undefined || isUsedUp(this.ticket.ttlMs, askedAt, at)) return false
    // What the answer to an open question would have said is not heard any more.
    if (this.#openRenewals > 0) this.#overtaken = true
    this.#deliver(granted.fence, { askedAt, answeredAt: at })
    return true
  }

  #tellAcquired(fence: bigint, { monotonicMs }: Instant): void {
    const wokenMs = this.#wokenAt === undefined ? undefined : monotonicMs - this.#wokenAt
    const waitedMs = monotonicMs - this.#startedAt
    tellAcquired(this.#context.events, this.#request, fence, waitedMs, { queued: this.#queued, wokenMs })
  }

  #tellStoreError(error: unknown): void {
    tellStoreError(this.#context.events, { verb: 'acquire', error, key: this.ticket.key, id: this.ticket.id })
  }

  #wait(place: 'new' | 'same', ahead: number | undefined, answer: QueuedAnswer, when: Exchange): void {
    assert(this.#state.tag !== 'over', 'a wait that is over goes on')
    const state = newWaiting(ahead, this.#askedAgain ? undefined : sampleOf(answer, when.askedAt), when)
    // An answer to an earlier request may come late, after the ticket was let into the queue.
    const isEntering = this.#state.tag === 'asking'
    // A message that came before this answer is looked at with what this answer tells.
    if (this.#state.tag === 'waiting') state.granted = this.#state.granted
    this.#state = state
    const { maxWaiting = Number.POSITIVE_INFINITY, watch } = this.#request
    if (isEntering && ahead !== undefined && ahead >= maxWaiting)
      return this.giveUp(fullOf(this.ticket, ahead, maxWaiting))
    // Woken meanwhile, it asks once more below; only a wake after that one can be missed.
    this.#overtaken = (this.#openRenewals > 0 || state.granted !== undefined) && this.#overtaken
    if (!this.#woken) this.#wokenAt = undefined
    // Only now, so that a lock nobody waits for needs no subscription. And before a listener is told: it may release the key.
    this.#context.wakes.start()
    if (!this.#queued) {
      this.#queued = true
      this.#context.events.queued.tell(this.#request, { ahead: ahead ?? 0 })
    }
    const deadlock = this.#state === state ? watch?.queued(place, state.sample, this) : undefined
    if (deadlock !== undefined) return this.giveUp(deadlock)
    if (this.#state !== state) return
    if (when.answeredAt.monotonicMs >= this.#limits.endOf(state))
      return this.giveUp(this.#limits.errorOf(state, this.#context))
    this.#setDue(askAgainAfter(state, pauseAfter(answer), when.answeredAt))
    // It was woken while this answer was under way.
    if (this.#woken) this.#askSoon()
  }

  #askSoon(): void {
    assert(this.#state.tag !== 'over', 'a wait that is over is woken')
    this.#woken = true
    if (this.#context.events.acquired.isHeard) this.#wokenAt ??= this.#context.clock.monotonicMs()
    if (this.#state.tag === 'asking' || this.#openRenewals > 0) this.#overtaken = true
    if (this.#state.tag !== 'waiting') return
    this.dueAt = 0
    this.#context.renewals.askNow(this)
  }

  #setDue(at: number, now: number = this.#context.clock.monotonicMs()): void {
    const state = this.#state
    this.dueAt = state.tag === 'over' ? at : Math.max(now, Math.min(at, this.#limits.nextOf(state)))
    this.#context.renewals.schedule(this, now)
  }

  /** The one way to `over`. */
  #end(lease: HeldLease | undefined): void {
    assert(this.#state.tag !== 'over', 'a wait ends twice')
    this.#state = { tag: 'over', lease }
    this.#context.renewals.remove(this)
    this.#context.wakes.remove(this)
    this.#request.watch?.left()
    if (this.#request.signal !== undefined) this.#context.signals.remove(this.#request.signal, this)
  }
}
