import { type Backoff, backoffMs } from '../base/backoff.ts'
import type { Instant } from '../base/clock.ts'
import { SignalWatch } from '../base/signal-watch.ts'
import type { Clock, Timer } from '../contract/clock.ts'
import type { Answer, Store, Ticket } from '../contract/store.ts'
import { isHoldfastError, StoreError } from '../errors.ts'
import { createEvents, type Events, tellStoreError } from './events.ts'
import { HolderLooks } from './holder-looks.ts'
import { now } from './instant.ts'
import { isLater } from './later.ts'
import { Leases } from './leases.ts'
import { LocalWaits } from './local-waits.ts'
import type { StoreVerb } from './lock-events.ts'
import { PendingRelease, type ReleaseOptions, requestRelease } from './pending-release.ts'
import { ReleaseRetry } from './release-retry.ts'
import { RenewalLoop } from './renewal-loop.ts'
import { ADVICE, closedError } from './ticket-errors.ts'
import { Wakes } from './wakes.ts'

export interface EngineOptions {
  readonly clock: Clock
  /** A number from 0 to 1, to spread renewals and retries apart. */
  readonly chance: () => number
}

export interface AskOptions {
  /** How long the answer may take. */
  readonly limitMs: number
  readonly key?: string | undefined
  /** Ends the wait for the answer. For a signal of its own: a user's signal belongs to {@link EngineContext.signals}. */
  readonly signal?: AbortSignal | undefined
}

/** The parts of an engine that its waiters and leases share. They know these parts, and not the engine. */
export class EngineContext {
  readonly store: Store
  readonly clock: Clock
  readonly chance: () => number
  readonly events: Events
  readonly renewals: RenewalLoop
  readonly leases: Leases
  readonly wakes: Wakes
  readonly holders: HolderLooks
  readonly localWaits: LocalWaits
  readonly releases: ReleaseRetry
  readonly signals: SignalWatch = new SignalWatch()
  #phase: 'open' | 'closing' | 'store closed' = 'open'

  constructor(store: Store, { clock, chance }: EngineOptions) {
    this.store = store
    this.clock = clock
    this.chance = chance
    this.events = createEvents({ store: store.name, clock })
    this.renewals = new RenewalLoop(store, clock, this.events)
    this.leases = new Leases(store, this.renewals)
    this.releases = new ReleaseRetry(this.renewals)
    this.wakes = new Wakes(this)
    this.holders = new HolderLooks(store, clock)
    this.localWaits = new LocalWaits(this.renewals)
  }

  now(): Instant {
    return now(this.clock, this.store)
  }

  get isClosing(): boolean {
    return this.#phase !== 'open'
  }

  /** From now on no new work is taken. */
  beginClosing(): void {
    this.#phase = 'closing'
  }

  closeStore(): Promise<void> {
    this.#phase = 'store closed'
    return this.store.close()
  }

  /** @throws {ClosedError} when no new work is taken. */
  assertOpen(key: string | undefined): void {
    if (this.isClosing) throw closedError(key)
  }

  /**
   * One request to the store. Whatever goes wrong is a {@link StoreError}, also if the answer takes longer than the limit.
   *
   * @throws {ClosedError} when no new work is taken; the reason of the signal.
   */
  async ask<T>(verb: StoreVerb, request: () => Answer<T>, { limitMs, key, signal }: AskOptions): Promise<T> {
    this.assertOpen(key)
    signal?.throwIfAborted()
    let timer: Timer | undefined
    let end = () => {}
    const late = new Promise<never>((_, reject) => {
      end = () => reject(signal?.reason)
      signal?.addEventListener('abort', end)
      const message = `The ${this.store.name} store did not answer within ${Math.round(limitMs)} ms. ${ADVICE}`
      timer = this.clock.startTimer(limitMs, () =>
        reject(new StoreError('store-unavailable', message, { key })),
      )
      timer.keepAlive(true)
    })
    try {
      return await Promise.race([request(), late])
    } catch (error) {
      if (signal?.aborted === true) throw signal.reason
      // The store was closed while it was asked. That is no failure of the store.
      if (this.#phase === 'store closed') throw closedError(key)
      if (!isHoldfastError(error, 'invalid-argument')) tellStoreError(this.events, { verb, error, key })
      if (isHoldfastError(error)) throw error
      throw new StoreError(
        'store-unavailable',
        `The ${this.store.name} store threw an error without an explanation; see its \`cause\`. The request may have had an effect.`,
        { key, cause: error },
      )
    } finally {
      timer?.stop()
      signal?.removeEventListener('abort', end)
    }
  }

  /**
   * Releases a ticket, in the background if the store does not answer. The promise resolves with the answer, or after one
   * attempt's time without it. Returns `undefined` if the store answers at once.
   */
  release(ticket: Ticket, options: ReleaseOptions): Promise<void> | undefined {
    const reply = requestRelease(this.store, ticket, options)
    if (!isLater(reply)) return undefined
    // Field by field. A spread here takes 1 µs, which is as long as nearly all else that the engine does for a lock.
    const { cancel, remainingMs, atMs } = options
    const { callerDone } = new PendingRelease(this, ticket, { cancel, remainingMs, atMs, reply })
    // `close()` stops the renewal loop, which would end this wait. So the wait gets a timer of its own.
    return this.isClosing ? this.atMost(callerDone, this.attemptMs(1)) : callerDone
  }

  /** How long the n-th attempt in a row may take before another one is made. `firstMs`: how long the first one may, if that is less. */
  attemptMs(attempts: number, firstMs: number = ATTEMPT_MS): number {
    return Math.min(Math.min(firstMs, ATTEMPT_MS) * 2 ** (Math.max(1, attempts) - 1), LONGEST_ATTEMPT_MS)
  }

  /** The pause after the n-th failure in a row. */
  backoffMs(attempts: number): number {
    return backoffMs(PAUSES, attempts, this.chance)
  }

  /** Resolves when `done` does, and at the latest after `limitMs`. */
  atMost(done: Promise<unknown>, limitMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const timer = this.clock.startTimer(limitMs, resolve)
      timer.keepAlive(true)
      void done.then(() => resolve(), reject).finally(() => timer.stop())
    })
  }
}

const ATTEMPT_MS = 2000
const LONGEST_ATTEMPT_MS = 15_000
const PAUSES: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0.5 }
