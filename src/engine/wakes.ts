import { outsideOfCallers } from '../base/async-context.ts'
import type { Clock } from '../contract/clock.ts'
import type { Granted, Store, Wake } from '../contract/store.ts'
import type { HoldfastError } from '../errors.ts'
import { type Events, tellStoreError } from './events.ts'
import { isLater } from './later.ts'
import type { Leases, ListedLease } from './leases.ts'
import type { Renewable } from './renewable.ts'
import type { RenewalLoop } from './renewal-loop.ts'
import { TicketIndex } from './ticket-index.ts'

/** A member that waits for a key. */
export interface PendingAcquisition extends Renewable {
  readonly kind: 'waiter'
  /** Asking the store again is worth it. */
  wake(): void
  /** The store says that the ticket holds. */
  granted(granted: Granted): void
  /** Ends the wait: its promise rejects with the error, and its ticket is released. */
  giveUp(error: HoldfastError): void
}

/** The part of the engine that the wakes use. */
export interface WakesContext {
  readonly store: Store
  readonly clock: Clock
  readonly events: Events
  readonly renewals: RenewalLoop
  readonly leases: Leases
  /** Whether `close()` was called. */
  readonly isClosing: boolean
}

/** The wakes of one store: one subscription, begun when something first waits, and who hears each wake. */
export class Wakes {
  readonly #context: WakesContext
  readonly #waiters = new TicketIndex<PendingAcquisition>()
  #flowingSince = Number.POSITIVE_INFINITY
  #strangers = 0
  #state: 'none' | 'starting' | 'flowing' = 'none'
  #unlisten: (() => void) | undefined
  #startAgainAt = 0
  #wakesAll: 'no' | 'yes' | 'once more' = 'no'

  constructor(context: WakesContext) {
    this.#context = context
  }

  /** How many waits are told of messages. */
  get size(): number {
    return this.#waiters.size
  }

  /** All who wait. A copy, because what is done with one may end the wait of others. */
  listWaiters(): PendingAcquisition[] {
    return this.#context.renewals.list(isWaiter) as PendingAcquisition[]
  }

  /** When wakes began to flow, on the monotonic clock. `Infinity`: they do not. */
  get flowingSince(): number {
    return this.#flowingSince
  }

  /**
   * How many wakes were for tickets that nothing here waits with or holds. If it grows while a grant is on its way, one of
   * these wakes may have told of the eviction of the granted ticket.
   */
  get strangers(): number {
    return this.#strangers
  }

  add(waiter: PendingAcquisition): void {
    this.#waiters.add(waiter)
  }

  remove(waiter: PendingAcquisition): void {
    this.#waiters.remove(waiter)
  }

  /** Subscribes, once. If the store cannot deliver wakes, waiters ask at the times that the store names. */
  start(): void {
    const { store, clock } = this.#context
    if (this.#state !== 'none' || store.listen === undefined) return
    if (clock.monotonicMs() < this.#startAgainAt) return
    this.#state = 'starting'
    try {
      const begun = outsideOfCallers(() => store.listen?.((wake) => this.#deliver(wake)))
      if (!isLater(begun)) this.#started(begun)
      else
        Promise.resolve(begun)
          .then((unlisten) => this.#startedLate(unlisten))
          .catch((error: unknown) => this.#failed(error))
    } catch (error) {
      this.#failed(error)
    }
  }

  stop(): void {
    try {
      this.#unlisten?.()
    } catch {
      // The store is closed next, whether it wants to be quiet or not.
    }
  }

  #started(unlisten: (() => void) | undefined): void {
    if (this.#context.isClosing) return unlisten?.()
    this.#state = 'flowing'
    this.#flowingSince = this.#context.clock.monotonicMs()
    this.#unlisten = unlisten
  }

  #startedLate(unlisten: (() => void) | undefined): void {
    this.#started(unlisten)
    // A wake that was sent before this moment is lost: an offer, or an eviction.
    this.#wakeAll((lease) => lease.isWatched)
  }

  /** Wakes all who wait, then checks leases. Spread over turns of the event loop, because 100,000 take some 70 ms. */
  #wakeAll(which: (lease: ListedLease) => boolean): void {
    if (this.#wakesAll !== 'no') {
      this.#wakesAll = 'once more'
      return
    }
    this.#wakesAll = 'yes'
    const steps = this.#wakeEach(which)
    this.#context.renewals.spread({ step: () => steps.next().done !== true })
  }

  *#wakeEach(which: (lease: ListedLease) => boolean): Generator<void, void, void> {
    let count = 0
    for (const waiter of this.#waiters.list()) {
      // Its wait may have ended since the list was made.
      if (waiter.bucket !== undefined) waiter.wake()
      count += 1
      if (count % STEP === 0) yield
    }
    // Listed only now: a wait that was not woken in time may have become a lease.
    for (const lease of this.#context.leases.listQuickly()) {
      if (which(lease)) lease.check()
      count += 1
      if (count % STEP === 0) yield
    }
    const onceMore = this.#wakesAll === 'once more'
    this.#wakesAll = 'no'
    if (onceMore) this.#wakeAll(() => true)
  }

  /** Only the wakes are missing. If the store itself is at fault, every other request shows it. */
  #failed(error: unknown): void {
    this.#state = 'none'
    this.#startAgainAt = this.#context.clock.monotonicMs() + START_AGAIN_MS
    tellStoreError(this.#context.events, { verb: 'listen', error })
  }

  #deliver(wake: Wake): void {
    const { leases } = this.#context
    switch (wake.tag) {
      case 'ticket': {
        const waiter = this.#waiters.find(wake.id)
        if (waiter !== undefined) return waiter.wake()
        // Nothing waits under this id, so it may be a lease that was evicted.
        const lease = leases.find(wake.id)
        if (lease === undefined) this.#strangers += 1
        else lease.check()
        return
      }
      case 'granted':
        // If nothing waits under this id, it has the lease already, or its release is on its way.
        return this.#waiters.find(wake.id)?.granted(wake)
      case 'all':
        return this.#wakeAll(() => true)
      default:
        wake satisfies never
    }
  }
}

const START_AGAIN_MS = 5000
/** How many are woken between two looks at the clock. */
const STEP = 64

function isWaiter(one: Renewable): one is PendingAcquisition {
  return one.kind === 'waiter'
}
