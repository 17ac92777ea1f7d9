import { checkOptions, parseFunction } from '../../base/arguments.ts'
import { elapsedMs, type Instant, now, paused, systemClock } from '../../base/clock.ts'
import {
  type Duration,
  type DurationRange,
  parseDuration,
  TTL_RANGE,
  WAIT_RANGE,
} from '../../base/duration.ts'
import { usableMs } from '../../base/validity.ts'
import { LeaseLostError } from '../../errors.ts'
import type { WorkerLease, WorkerLock } from '../lock.ts'

/** A lock as functions. `Held` is what `acquire` gives to the others: a token, a row, a handle. */
export interface LockCallbacks<Held> {
  /** Asks once for the lock. Resolves with null if it is taken. */
  readonly acquire: (signal: AbortSignal) => Promise<Held | null>
  /**
   * Prolongs the lock by `ttl`, if it is still held. Resolves with false if it is lost. If it throws, it is called again, until
   * the deadline of the lock. The signal aborts when the lock is lost or about to be released. If you then stop asking, throw: with false
   * the lock would count as lost, and not be released.
   */
  readonly renew: (held: NonNullable<Held>, signal: AbortSignal) => Promise<boolean>
  /** Gives the lock back. Not called for a lock that is lost, or that expires while a running `renew` is awaited. */
  readonly release: (held: NonNullable<Held>) => unknown
  /** How long the lock is held without a renewal. `renew` is called after each third of it. */
  readonly ttl: Duration
  /** How long to wait before `acquire` is called again for a lock that is taken. Default: 1 s. */
  readonly pollInterval?: Duration | undefined
}

/**
 * A lock for {@link lockWorkerMachine}, made of the functions that you have: `acquire`, `renew` and `release`. It renews the
 * lock, and its lease is lost when `renew` says so, or at the deadline. It has no queue and no fence, unless yours has one.
 *
 * ```ts
 * import { callbackLock, lockWorkerMachine } from 'holdfast/worker/machine'
 * import { createActor } from 'xstate'
 *
 * let holder: string | undefined
 * const lock = callbackLock({
 *   ttl: '10s',
 *   acquire: async () => (holder === undefined ? (holder = 'me') : null),
 *   renew: async (name) => holder === name,
 *   release: async () => (holder = undefined),
 * })
 * const actor = createActor(lockWorkerMachine, {
 *   input: {
 *     lock,
 *     start: () => console.log('works'),
 *     stop: (reason) => console.log('works no more:', reason),
 *     grace: '10s',
 *     backoff: '1s',
 *     maxBackoff: '30s',
 *     chance: Math.random,
 *   },
 * })
 * actor.start()
 * actor.send({ type: 'start' })
 * ```
 *
 * @throws {InvalidArgumentError} when a function or a duration is not what it should be.
 */
export function callbackLock<Held>(callbacks: LockCallbacks<Held>): WorkerLock {
  checkOptions(callbacks, NAMES)
  const settings: CallbackSettings<Held> = {
    acquire: parseFunction('acquire', callbacks.acquire),
    renew: parseFunction('renew', callbacks.renew),
    release: parseFunction('release', callbacks.release),
    ttlMs: parseDuration('ttl', callbacks.ttl, TTL_RANGE),
  }
  const pollMs = parseDuration('pollInterval', callbacks.pollInterval ?? 1000, POLL_RANGE)

  /** Settles when the last request has left nothing behind. */
  let left: Promise<unknown> = Promise.resolve()

  function tryAcquire(signal: AbortSignal): Promise<WorkerLease | null> {
    const answer = ask(signal)
    // Before the machine releases such a lease, whose second release would not wait for the first.
    left = answer.then((lease) => (signal.aborted ? lease?.release() : undefined)).catch(() => {})
    return answer
  }

  async function ask(signal: AbortSignal): Promise<CallbackLease<Held> | null> {
    const asked = now(systemClock)
    const held = await settings.acquire(signal)
    return held === null || held === undefined ? null : new CallbackLease(settings, held, asked)
  }

  async function acquire(signal: AbortSignal): Promise<WorkerLease> {
    for (;;) {
      signal.throwIfAborted()
      const lease = await tryAcquire(signal)
      if (lease !== null) return lease
      // A part of the pause is random, so that many processes do not ask at the same moment.
      await paused(systemClock, pollMs * (0.75 + Math.random() / 2), signal)
    }
  }

  return { tryAcquire, acquire, left: () => left }
}

const POLL_RANGE: DurationRange = { ...WAIT_RANGE, leastMs: 10, endless: false }

const NAMES: ReadonlySet<string> = new Set<keyof LockCallbacks<unknown>>([
  'acquire',
  'renew',
  'release',
  'ttl',
  'pollInterval',
])

interface CallbackSettings<Held> extends Pick<LockCallbacks<Held>, 'acquire' | 'renew' | 'release'> {
  readonly ttlMs: number
}

type CallbackState =
  | { readonly tag: 'held' }
  | { readonly tag: 'jeopardy'; readonly cause: unknown }
  | { readonly tag: 'released' }
  | { readonly tag: 'lost'; readonly error: LeaseLostError }

class CallbackLease<Held> implements WorkerLease {
  readonly #settings: CallbackSettings<Held>
  readonly #held: NonNullable<Held>
  readonly #loss = new AbortController()
  /** Aborts when nothing has to be renewed any more. */
  readonly #end = new AbortController()
  readonly #renewing: Promise<void>
  #state: CallbackState = { tag: 'held' }
  /** Before the last request that was granted: the store counts from later on. */
  #since: Instant
  /** While a release waited for it, a renewal said that the lock is lost. */
  #isGone = false

  constructor(settings: CallbackSettings<Held>, held: NonNullable<Held>, since: Instant) {
    this.#settings = settings
    this.#held = held
    this.#since = since
    this.#renewing = this.#renew()
    void this.#watchDeadline()
  }

  get signal(): AbortSignal {
    return this.#loss.signal
  }

  get state(): CallbackState['tag'] {
    this.#look()
    return this.#state.tag
  }

  get remainingMs(): number {
    return Math.max(0, this.#leftMs())
  }

  assertHeld(): void {
    this.#look()
    if (this.#state.tag === 'lost') throw this.#state.error
  }

  async release(): Promise<void> {
    this.#look()
    if (!this.#isLive()) return
    this.detach()
    // A renewal that the store carries out after the release could take the lock again.
    await this.#renewing
    // The lock may be lost meanwhile, and somebody else may hold it under the same name.
    if (this.#isGone || this.#leftMs() <= 0) return
    await this.#settings.release(this.#held)
  }

  detach(): void {
    if (!this.#isLive()) return
    this.#state = { tag: 'released' }
    this.#end.abort()
  }

  #isLive(): boolean {
    return this.#state.tag === 'held' || this.#state.tag === 'jeopardy'
  }

  #leftMs(): number {
    return usableMs(this.#settings.ttlMs) - elapsedMs(this.#since, now(systemClock))
  }

  async #renew(): Promise<void> {
    const { ttlMs } = this.#settings
    for (let pauseMs = ttlMs / 3; ; pauseMs = this.#state.tag === 'held' ? ttlMs / 3 : ttlMs / 12) {
      await paused(systemClock, pauseMs, this.#end.signal)
      if (!this.#isLive()) return
      const asked = now(systemClock)
      try {
        const isHeld = await this.#settings.renew(this.#held, this.#end.signal)
        this.#look()
        // The release waits for this answer.
        if (this.#state.tag === 'released') {
          if (isHeld) this.#since = asked
          else this.#isGone = true
        }
        if (!this.#isLive()) return
        if (!isHeld) return this.#lose('The lock is held no more: `renew` said so.', undefined)
        this.#since = asked
        this.#state = { tag: 'held' }
      } catch (cause) {
        if (this.#isLive()) this.#state = { tag: 'jeopardy', cause }
      }
    }
  }

  async #watchDeadline(): Promise<void> {
    while (this.#isLive()) {
      await paused(systemClock, Math.max(1, this.#leftMs()), this.#end.signal)
      this.#look()
    }
  }

  /** The clocks decide, and not whether a timer has fired. */
  #look(): void {
    if (!this.#isLive() || this.#leftMs() > 0) return
    const cause = this.#state.tag === 'jeopardy' ? this.#state.cause : undefined
    this.#lose(`The lock was not renewed within its ttl of ${this.#settings.ttlMs} ms.`, cause)
  }

  #lose(message: string, cause: unknown): void {
    const error = new LeaseLostError(message, { reason: 'expired', cause })
    this.#state = { tag: 'lost', error }
    this.#end.abort()
    this.#loss.abort(error)
  }
}
