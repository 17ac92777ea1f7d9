import { outsideOfCallers } from '../base/async-context.ts'
import type { SignalWatch } from '../base/signal-watch.ts'
import type { Clock } from '../contract/clock.ts'
import type { AcquireAnswer, Answer, Store, Ticket } from '../contract/store.ts'
import { acquireAll } from './acquire-all.ts'
import { tellAcquired, tellRequested } from './acquire-events.ts'
import type { AcquireRequest } from './acquire-request.ts'
import { Acquisition } from './acquisition.ts'
import { type AdoptRequest, adopt, type NotAdopted } from './adopt.ts'
import { type AskOptions, EngineContext, type EngineOptions } from './engine-context.ts'
import type { Events } from './events.ts'
import { type HeldLease, newLease } from './held-lease.ts'
import { isLater } from './later.ts'
import type { LeaseOptions } from './lease-deadline.ts'
import { LocalWait } from './local-wait.ts'
import type { StoreVerb } from './lock-events.ts'
import { closedDuring, closedError } from './ticket-errors.ts'
import type { PendingAcquisition } from './wakes.ts'

/**
 * Everything that is the same for every store, built once: asking, waiting, renewing, losing, releasing. An engine
 * looks after all tickets that a process has in a store.
 *
 * This is what the primitives see of it. Inside, an `Acquisition` becomes a `HeldLease`, and both share an
 * `EngineContext`: the store, the clocks, the renewal loop, the wakes and the pending releases.
 */
export class Engine {
  readonly store: Store
  readonly clock: Clock
  readonly chance: () => number
  readonly events: Events
  readonly signals: SignalWatch
  /** Each ends a call that waits without a ticket. `close()` calls them. */
  readonly onlookers: Set<() => void> = new Set()
  readonly #context: EngineContext
  /** Requests for several keys that have no answer yet. None of these rejects. */
  readonly #takingAll = new Set<Promise<void>>()
  #closing: Promise<void> | undefined

  constructor(store: Store, options: EngineOptions) {
    const context = new EngineContext(store, options)
    this.#context = context
    this.store = store
    this.clock = context.clock
    this.chance = context.chance
    this.events = context.events
    this.signals = context.signals
  }

  /** The waiting acquisitions, in no order. */
  get waiting(): readonly PendingAcquisition[] {
    return this.#context.wakes.listWaiters()
  }

  /** How much it looks after, to see that nothing is left behind. */
  get counts(): EngineCounts {
    const { leases, renewals, wakes } = this.#context
    const waiting = this.waiting.length + this.#context.localWaits.size
    return { waiting, hearing: wakes.size, leases: leases.list().length, scheduled: renewals.size }
  }

  /**
   * Takes a free key of a store in this process, without a request. Returns undefined if the key is not free, or if a listener
   * has to be told of the request: then call {@link acquire}.
   */
  take(ticket: Ticket, options: LeaseOptions): HeldLease | undefined {
    const { store, clock, events, isClosing } = this.#context
    if (store.take === undefined || isClosing || events.requested.isHeard || events.acquired.isHeard)
      return undefined
    const monotonicMs = clock.monotonicMs()
    const fence = store.take(ticket, monotonicMs)
    if (fence === undefined) return undefined
    const at = { monotonicMs, wallMs: monotonicMs }
    return newLease(this.#context, { ticket, fence, askedAt: at, answeredAt: at, options })
  }

  /**
   * Asks for a key. Answers in the same tick when the store does; `null` when the caller does not want to wait and the
   * key is busy. Rejects (never throws) with the errors of the public `acquire`.
   */
  acquire(request: AcquireRequest): HeldLease | null | Promise<HeldLease | null> {
    const context = this.#context
    if (context.isClosing) return Promise.reject(closedError(request.ticket.key))
    if (request.signal?.aborted === true) return Promise.reject(request.signal.reason)
    tellRequested(context.events, request)
    const askedAt = context.now()
    const local = this.#waitLocally(request, askedAt.monotonicMs)
    if (local !== undefined) return local
    let answer: Answer<AcquireAnswer>
    try {
      answer = context.store.acquire(request.ticket, askedAt.monotonicMs)
    } catch (error) {
      answer = Promise.reject(error)
    }
    if (isLater(answer)) {
      const acquisition = new Acquisition(context, request, askedAt.monotonicMs)
      acquisition.expect(answer, askedAt)
      return acquisition.promise
    }
    const when = { askedAt, answeredAt: askedAt }
    if (answer?.tag === 'held') {
      const { ticket, lease: options } = request
      const granted = { ticket, fence: answer.fence, askedAt, answeredAt: askedAt, options }
      const lease = newLease(context, granted)
      tellAcquired(context.events, request, answer.fence, 0)
      return lease
    }
    if (answer?.tag === 'busy' && request.ticket.patienceMs === 0) {
      context.events.busy.tell(request, {})
      return null
    }
    const acquisition = new Acquisition(context, request, askedAt.monotonicMs)
    acquisition.settle(answer, when)
    return acquisition.promise
  }

  #waitLocally(request: AcquireRequest, now: number): Promise<HeldLease | null> | undefined {
    const { localQueue } = this.store
    if (localQueue === undefined || request.ticket.patienceMs === 0) return undefined
    const wait = new LocalWait(this.#context, request, now)
    return wait.begin(localQueue) ? wait.promise : undefined
  }

  /** See {@link acquireAll}. */
  async acquireAll(requests: readonly AcquireRequest[]): Promise<readonly HeldLease[] | undefined> {
    const taken = acquireAll(this.#context, requests)
    const settled = taken.then(
      () => {},
      () => {},
    )
    this.#takingAll.add(settled)
    try {
      return await taken
    } finally {
      this.#takingAll.delete(settled)
    }
  }

  /** Takes over a ticket that is held already, or says what became of it. */
  adopt(request: AdoptRequest): Promise<HeldLease | NotAdopted> {
    return adopt(this.#context, request)
  }

  /** See {@link EngineContext.ask}. */
  ask<T>(verb: StoreVerb, request: () => Answer<T>, options: AskOptions): Promise<T> {
    return this.#context.ask(verb, request, options)
  }

  attemptMs(attempts: number): number {
    return this.#context.attemptMs(attempts)
  }

  backoffMs(attempts: number): number {
    return this.#context.backoffMs(attempts)
  }

  /**
   * Takes no new work, rejects what waits, releases what is held, and closes the store. Bounded: what a silent store does
   * not take back runs out by itself.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    const context = this.#context
    context.beginClosing()
    // The close begins one tick later, so that a listener that calls `close()` again in answer to an event gets the
    // same promise.
    await undefined
    const released = outsideOfCallers(() => {
      context.localWaits.tellGrants()
      for (const end of this.onlookers) end()
      // The local waits first: a listener may turn one into a wait at the store, and those end below.
      for (const waiter of context.localWaits.list())
        if (waiter instanceof LocalWait && waiter.context === context)
          waiter.giveUp(closedDuring(waiter.ticket.key, 'waited for'))
      for (const waiter of this.waiting) waiter.giveUp(closedDuring(waiter.ticket.key, 'waited for'))
      // A listener of these ends may have released a key to another wait.
      context.localWaits.tellGrants()
      return context.leases.list().map((lease) => lease.close(closedDuring(lease.key, 'held')))
    })
    await Promise.all(released)
    const limitMs = context.attemptMs(1)
    if (this.#takingAll.size > 0) await context.atMost(Promise.all(this.#takingAll), limitMs)
    await context.atMost(context.releases.untilDone(), limitMs)
    context.releases.endCallersWaits()
    context.renewals.stop()
    context.wakes.stop()
    await context.atMost(context.closeStore(), limitMs)
  }
}

/** See {@link Engine.counts}. */
interface EngineCounts {
  readonly waiting: number
  /** Waits that messages of the store are delivered to. */
  readonly hearing: number
  readonly leases: number
  readonly scheduled: number
}
