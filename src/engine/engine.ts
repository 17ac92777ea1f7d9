import { outsideOfCallers } from '../base/async-context.ts'
import { type Backoff, backoffMs } from '../base/backoff.ts'
import type { Instant } from '../base/clock.ts'
import { SignalWatch } from '../base/signal-watch.ts'
import type { Clock, Timer } from '../contract/clock.ts'
import type { Answer, ReleaseAnswer, RenewAnswer, Store, Ticket, Wake } from '../contract/store.ts'
import { ClosedError, isHoldfastError, StoreError } from '../errors.ts'
import { type AcquireRequest, Acquisition } from './acquisition.ts'
import { createEvents, type Events, tellStoreError } from './events.ts'
import { HeldLease } from './held-lease.ts'
import { now } from './instant.ts'
import { isLater } from './later.ts'
import type { LeaseOptions } from './lease-deadline.ts'
import type { StoreVerb } from './lock-events.ts'
import { GiveBack, type GiveBackOptions, Returning } from './pending-release.ts'
import { Keeper } from './renewal-loop.ts'

export interface EngineOptions {
  readonly clock: Clock
  /** A number from 0 to 1, to spread renewals and retries apart. */
  readonly chance: () => number
}

/**
 * What holds for every store, built once: asking, waiting, keeping, giving back. One engine looks after all tickets that
 * one process has in one store.
 */
export class Engine {
  readonly store: Store
  readonly clock: Clock
  readonly chance: () => number
  readonly keeper: Keeper
  readonly events: Events
  /** Everybody who waits, by ticket id, for the wakes. */
  readonly waiting: Map<string, Acquisition> = new Map()
  /**
   * Every lease by ticket id, to find the one that was evicted: a wake may be for somebody else, and walking over ten thousand
   * leases for it would be felt. Undefined in process, where such wakes are rare and an entry for each lease would be felt.
   */
  readonly leases: Map<string, HeldLease> | undefined
  readonly signals: SignalWatch = new SignalWatch()
  readonly returning: Returning = new Returning()
  readonly givingBack: Set<GiveBack> = new Set()
  /** Requests for several keys that have no answer yet. None of these rejects. */
  readonly takingAll: Set<Promise<void>> = new Set()
  /** Wakes flow since then, on the monotonic clock. */
  hearsSince: number = Number.POSITIVE_INFINITY
  /** How many wakes were for tickets that nobody here has: the grant of one may still be on its way. */
  strangers = 0
  #listening: 'no' | 'starting' | 'yes' = 'no'
  #unlisten: (() => void) | undefined
  #listenAgainAt = 0
  #closing: Promise<void> | undefined
  #isStoreClosed = false

  constructor(store: Store, options: EngineOptions) {
    this.store = store
    this.leases = store.inProcess === true ? undefined : new Map()
    this.clock = options.clock
    this.chance = options.chance
    this.events = createEvents({ store: store.name, clock: options.clock })
    this.keeper = new Keeper(store, options.clock, this.events)
  }

  now(): Instant {
    return now(this.clock, this.store)
  }

  /**
   * Asks for a key. Answers in the same tick when the store does; `null` when the caller does not want to wait and the
   * key is busy. Rejects (never throws) with the errors of the public `acquire`.
   */
  acquire(request: AcquireRequest): HeldLease | null | Promise<HeldLease | null> {
    if (this.#closing !== undefined) return Promise.reject(closedError(request.ticket.key))
    if (request.signal?.aborted === true) return Promise.reject(request.signal.reason)
    const { events } = this
    if (events.requested.isHeard)
      events.requested.tell(request, { waitMs: request.waitMs, ttlMs: request.ticket.ttlMs })
    const askedAt = this.now()
    try {
      const answer = this.store.acquire(request.ticket, askedAt.monotonicMs)
      if (isLater(answer)) {
        const acquisition = new Acquisition(this, request, askedAt)
        acquisition.expect(answer, askedAt)
        return acquisition.promise
      }
      if (answer.tag === 'held') {
        const when = { askedAt, answeredAt: askedAt }
        const lease = new HeldLease(this, request.ticket, answer.fence, when, request.lease)
        if (events.acquired.isHeard)
          events.acquired.tell(request, {
            fence: answer.fence,
            waitedMs: 0,
            queued: false,
            wokenMs: undefined,
          })
        return lease
      }
      if (answer.tag === 'busy' && request.ticket.patienceMs === 0) {
        events.busy.tell(request, {})
        return null
      }
      const acquisition = new Acquisition(this, request, askedAt)
      acquisition.settle(answer, { askedAt, answeredAt: askedAt })
      return acquisition.promise
    } catch (error) {
      const acquisition = new Acquisition(this, request, askedAt)
      acquisition.expect(Promise.reject(error), askedAt)
      return acquisition.promise
    }
  }

  /** @throws {ClosedError} when it takes no new work. */
  assertOpen(key: string): void {
    if (this.#closing !== undefined) throw closedError(key)
  }

  /** Takes over a ticket that is held already, or says what the store knows of it instead. */
  async adopt(
    ticket: Ticket,
    options: LeaseOptions,
  ): Promise<HeldLease | Exclude<RenewAnswer, { tag: 'held' }>> {
    const askedAt = this.now()
    const [answer] = await this.ask('renew', () => this.store.renew([ticket]), this.attemptMs(1), ticket.key)
    this.assertOpen(ticket.key)
    if (answer?.tag === 'held')
      return new HeldLease(this, ticket, answer.fence, { askedAt, answeredAt: this.now() }, options)
    return answer ?? { tag: 'gone', evicted: false }
  }

  /**
   * Returns a ticket, in the background if the store does not answer. The promise settles with the answer, or after one
   * attempt's time without it; `undefined` when the answer is there already.
   */
  giveBack(ticket: Ticket, options: GiveBackOptions): Promise<void> | undefined {
    const reply = this.askRelease(ticket, options)
    if (!isLater(reply)) return undefined
    const giveBack = new GiveBack(this, ticket, { ...options, reply })
    this.givingBack.add(giveBack)
    if (this.#closing === undefined) return giveBack.told
    // Nobody may be left to tell: the keeper stops.
    return this.#atMost(giveBack.told, this.attemptMs(1))
  }

  /** One release request; a failure is a rejection, also where the store throws at once. */
  askRelease(
    { key, id }: Ticket,
    { cancel, atMs }: { readonly cancel: boolean; readonly atMs?: number },
  ): ReleaseAnswer | Promise<ReleaseAnswer> {
    try {
      return this.store.release({ key, id, cancel }, atMs)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Starts the wakes, once; when the store cannot deliver them, waiters ask at the times the store names. */
  listen(): void {
    if (this.#listening !== 'no' || this.store.listen === undefined) return
    if (this.clock.monotonicMs() < this.#listenAgainAt) return
    this.#listening = 'starting'
    try {
      const begun = outsideOfCallers(() => this.store.listen?.((wake) => this.#wake(wake)))
      if (!isLater(begun)) this.#hears(begun)
      else
        Promise.resolve(begun)
          .then((unlisten) => this.#hearsLate(unlisten))
          .catch((error: unknown) => this.#hearsNothing(error))
    } catch (error) {
      this.#hearsNothing(error)
    }
  }

  #hears(unlisten: (() => void) | undefined): void {
    if (this.#closing !== undefined) return unlisten?.()
    this.#listening = 'yes'
    this.hearsSince = this.clock.monotonicMs()
    this.#unlisten = unlisten
  }

  #hearsLate(unlisten: (() => void) | undefined): void {
    this.#hears(unlisten)
    // Whatever was sent before this moment is lost: an offer, or an eviction.
    for (const waiting of this.waiting.values()) waiting.wake()
    for (const lease of this.#leases()) if (lease.isWatched) lease.check()
  }

  /** Only the wakes are missing; what is wrong with the store shows in every other request. */
  #hearsNothing(error: unknown): void {
    this.#listening = 'no'
    this.#listenAgainAt = this.clock.monotonicMs() + LISTEN_AGAIN_MS
    tellStoreError(this.events, { verb: 'listen', error })
  }

  /**
   * Takes no new work, rejects who waits, gives back what is held, and closes the store. Bounded: what a silent store
   * does not take back runs out by itself.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    // One tick later, so that #closing is set before anybody is told.
    await undefined
    const released = outsideOfCallers(() => {
      for (const waiting of [...this.waiting.values()]) waiting.giveUp(closedError(waiting.ticket.key))
      return this.#leases().map((lease) => lease.close(closedError(lease.key)))
    })
    await Promise.all(released)
    if (this.takingAll.size > 0) await this.#atMost(Promise.all(this.takingAll), this.attemptMs(1))
    const left = Promise.all([...this.givingBack].map((giveBack) => giveBack.untilDone()))
    await this.#atMost(left, this.attemptMs(1))
    for (const giveBack of this.givingBack) giveBack.tell()
    this.keeper.stop()
    try {
      this.#unlisten?.()
    } catch {
      // The store is closed next, whether it wants to be quiet or not.
    }
    this.#isStoreClosed = true
    await this.#atMost(this.store.close(), this.attemptMs(1))
  }

  /** How long the n-th attempt in a row may take before another one is made. */
  attemptMs(attempts: number): number {
    return Math.min(ATTEMPT_MS * 2 ** (Math.max(1, attempts) - 1), LONGEST_ATTEMPT_MS)
  }

  /** The pause after the n-th failure in a row. */
  backoffMs(attempts: number): number {
    return backoffMs(PAUSES, attempts, this.chance)
  }

  /**
   * The answer to one request. Whatever goes wrong is a {@link StoreError}, also that it takes longer than the limit.
   *
   * @throws {ClosedError} when the engine is closed.
   */
  async ask<T>(verb: StoreVerb, request: () => Answer<T>, limitMs: number, key?: string): Promise<T> {
    if (this.#closing !== undefined) throw closedError(key)
    let timer: Timer | undefined
    const late = new Promise<never>((_, reject) => {
      const message = `The ${this.store.name} store did not answer within ${Math.round(limitMs)} ms. Check that it runs and can be reached.`
      timer = this.clock.startTimer(limitMs, () =>
        reject(new StoreError('store-unavailable', message, { key })),
      )
      timer.keepAlive(true)
    })
    try {
      return await Promise.race([request(), late])
    } catch (error) {
      // It was on its way when the store was closed: no failure of the store, and in no words of its own.
      if (this.#isStoreClosed) throw closedError(key)
      if (!isHoldfastError(error, 'invalid-argument')) tellStoreError(this.events, { verb, error, key })
      if (isHoldfastError(error)) throw error
      throw new StoreError('store-unavailable', `The ${this.store.name} store failed.`, { key, cause: error })
    } finally {
      timer?.stop()
    }
  }

  sleep(durationMs: number): Promise<void> {
    return new Promise((resolve) => {
      this.clock.startTimer(durationMs, resolve).keepAlive(true)
    })
  }

  #atMost(done: Promise<unknown>, limitMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.clock.startTimer(limitMs, resolve)
      timer.keepAlive(true)
      void done.then(() => resolve(), reject).finally(() => timer.stop())
    })
  }

  #wake(wake: Wake): void {
    switch (wake.tag) {
      case 'ticket': {
        const waiting = this.waiting.get(wake.id)
        if (waiting !== undefined) return waiting.wake()
        // Nobody waits under this id, so it may be a lease that was evicted.
        const lease = this.#leaseOf(wake.id)
        if (lease === undefined) this.strangers += 1
        else lease.check()
        return
      }
      case 'all':
        for (const waiting of this.waiting.values()) waiting.wake()
        for (const lease of this.#leases()) lease.check()
        return
      default:
        wake satisfies never
    }
  }

  #leaseOf(id: string): HeldLease | undefined {
    if (this.leases !== undefined) return this.leases.get(id)
    return this.keeper.find((kept) => kept instanceof HeldLease && kept.id === id) as HeldLease | undefined
  }

  #leases(): HeldLease[] {
    return this.keeper.list((kept) => kept instanceof HeldLease) as HeldLease[]
  }
}

const ATTEMPT_MS = 2000
const LONGEST_ATTEMPT_MS = 15_000
const PAUSES: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0.5 }
const LISTEN_AGAIN_MS = 5000

function closedError(key?: string): ClosedError {
  return new ClosedError(
    'Expected open locks, got locks that were closed. Make new ones with createLocks(…).',
    { key },
  )
}
