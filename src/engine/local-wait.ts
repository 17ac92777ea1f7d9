import { assert } from '../base/assert.ts'
import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import type { Abortable } from '../base/signal-watch.ts'
import type { LocalQueue, LocalWaiter, Ticket } from '../contract/store.ts'
import type { HoldfastError } from '../errors.ts'
import { type GivingUp, reasonOf, tellAcquired, tellGivenUp } from './acquire-events.ts'
import type { AcquireRequest } from './acquire-request.ts'
import { Acquisition } from './acquisition.ts'
import { newWaiting, newWaitOutcome, type Waiting, type WaitOutcome } from './acquisition-state.ts'
import type { EngineContext } from './engine-context.ts'
import { type HeldLease, newLease } from './held-lease.ts'
import type { Renewable } from './renewable.ts'
import { fullOf } from './ticket-errors.ts'
import type { Bucket } from './timer-wheel.ts'
import { WaitLimits } from './wait-limits.ts'

/**
 * A call that waits in the {@link LocalQueue} of a store in this process. The store calls it with its lease, in the call that
 * released the key. It is in the renewal loop only if its wait has an end.
 *
 * It is a short form of an {@link Acquisition}, with what such a wait needs. If the ticket has to be renewed after all, an
 * Acquisition goes on in its place.
 */
export class LocalWait implements LocalWaiter, Renewable, Abortable {
  readonly ticket: Ticket
  ahead = 0
  since = 0
  before: LocalWaiter | undefined
  behind: LocalWaiter | undefined
  dueAt: number = Number.POSITIVE_INFINITY
  bucket: Bucket<Renewable> | undefined
  previous: Renewable | undefined
  next: Renewable | undefined
  /** Of the engine that it belongs to. */
  readonly context: EngineContext
  readonly #request: AcquireRequest
  readonly #startedAt: number
  readonly #outcome: WaitOutcome = newWaitOutcome()
  /** Made for a wait with an end. */
  #limits: WaitLimits | undefined
  #isOver = false

  constructor(context: EngineContext, request: AcquireRequest, startedAt: number) {
    this.context = context
    this.#request = request
    this.#startedAt = startedAt
    this.ticket = request.ticket
  }

  get promise(): Promise<HeldLease | null> {
    return this.#outcome.promise
  }

  get kind(): 'local wait' {
    return 'local wait'
  }

  get awaited(): boolean {
    return true
  }

  get slackMs(): number {
    return 0
  }

  /** Enters the queue. Returns false and does nothing if the store wants to be asked instead. */
  begin(queue: LocalQueue): boolean {
    const { context, ticket } = this
    const { signal, waitMs, maxWaiting } = this.#request
    const now = this.#startedAt
    const leftMs = queue.enter(this, now)
    if (leftMs === undefined) return false
    context.localWaits.begin(queue, ticket, leftMs, now)
    if (waitMs !== Number.POSITIVE_INFINITY) {
      this.#limits = new WaitLimits(this.#request, now)
      this.dueAt = this.#limits.nextOf(this.#waiting())
      context.renewals.schedule(this, now)
    }
    if (signal !== undefined) context.signals.add(signal, this)
    if (maxWaiting !== undefined && this.ahead >= maxWaiting)
      this.giveUp(fullOf(ticket, this.ahead, maxWaiting))
    // A listener to `requested` may have aborted it.
    else if (signal?.aborted === true) this.abort(signal.reason)
    else {
      // A listener may do anything: it may release the key.
      context.events.queued.tell(this.#request, { ahead: this.ahead })
      const deadlock = this.#isOver ? undefined : this.#request.watch?.queued('new', undefined, this)
      if (deadlock !== undefined) this.giveUp(deadlock)
    }
    return true
  }

  granted(fence: number, atMs: number): void {
    const { context, ticket } = this
    const at = { monotonicMs: atMs, wallMs: atMs }
    const options = this.#request.lease
    const lease = newLease(context, { ticket, fence, askedAt: at, answeredAt: at, options })
    this.#end(atMs + this.ticket.ttlMs)
    if (context.events.acquired.isHeard) context.localWaits.tellSoon(() => this.#tell(lease, atMs))
    else this.#outcome.resolve(lease)
  }

  enrolled(): void {
    const begun = { outcome: this.#outcome, ahead: this.ahead }
    // The signal is watched by the one before the other leaves: it may be aborting at this moment.
    new Acquisition(this.context, this.#request, this.#startedAt, begun)
    this.#end()
  }

  due(at: Instant): boolean {
    const limits = this.#limits
    assert(limits !== undefined && !this.#isOver, 'a wait without an end, or one that is over, is due')
    const state = this.#waiting()
    if (at.monotonicMs >= limits.endOf(state)) {
      this.giveUp(limits.errorOf(state, this.context))
      return false
    }
    if (limits.takeLook(at)) this.context.holders.begin(this.ticket.key)
    this.dueAt = limits.nextOf(state)
    return false
  }

  answered(): void {
    assert(false, 'a local wait is renewed')
  }

  unanswered(): void {
    assert(false, 'a local wait is renewed')
  }

  /** The caller's signal. */
  abort(reason: unknown): void {
    outsideOfCallers(() => this.#giveUp(reason, 'aborted'))
  }

  giveUp(error: HoldfastError): void {
    this.#giveUp(error, reasonOf(error))
  }

  #giveUp(error: unknown, reason: GivingUp['reason']): void {
    // Several reasons may come in one tick. The first one counts.
    if (this.#isOver) return
    const { context, ahead } = this
    context.store.localQueue?.leave(this)
    this.#end()
    this.#outcome.reject(error)
    const waitedMs = context.clock.monotonicMs() - this.#startedAt
    tellGivenUp(context.events, this.#request, { error, reason, waitedMs, ahead })
  }

  #tell(lease: HeldLease, atMs: number): void {
    const { clock, events } = this.context
    const now = clock.monotonicMs()
    this.#outcome.resolve(lease)
    const waited = { queued: true, wokenMs: now - atMs }
    tellAcquired(events, this.#request, lease.fence, now - this.#startedAt, waited)
  }

  #waiting(): Waiting {
    return newWaiting(this.ahead, undefined)
  }

  #end(heldUntil?: number): void {
    assert(!this.#isOver, 'a wait ends twice')
    this.#isOver = true
    const { context, ticket } = this
    const { signal, watch } = this.#request
    watch?.left()
    if (signal !== undefined) context.signals.remove(signal, this)
    if (this.#limits !== undefined) context.renewals.remove(this)
    context.localWaits.end(ticket, heldUntil)
  }
}
