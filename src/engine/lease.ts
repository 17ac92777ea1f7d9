import type { ClosedError, LeaseLostError } from '../errors.ts'

/**
 * `held`: renewed as planned · `jeopardy`: a renewal failed or is overdue, and less than half of the ttl is left; go on,
 * but start nothing long · `lost`: stop, others may hold the key · `released`: given back.
 */
export type LeaseState = 'held' | 'jeopardy' | 'lost' | 'released'

/** How a lease continues elsewhere; see `locks.adopt`. `fence` is a decimal string. */
export interface LeaseJson {
  readonly key: string
  readonly id: string
  readonly fence: string
  readonly units: number
  readonly limit: number
  readonly ttlMs: number
  /** Missing where an earlier version wrote it; then the default of who adopts it. So is `lockDelayMs`. */
  readonly minHoldMs?: number | undefined
  readonly lockDelayMs?: number | undefined
}

/**
 * A key, held until a deadline. It is renewed in the background until it is released or lost.
 *
 * The deadline counts from before the request was written, on the larger of the monotonic and the wall clock, so it is
 * never later than the store's own. A lease is advice to a process that may be paused at any instruction: pass `fence`
 * along with what you write, and let the resource refuse older ones.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 *
 * const locks = createLocks(memoryStore())
 * const lease = await locks.acquire('invoice:42', { ttl: '30s', wait: '5s' })
 * try {
 *   lease.assertHeld()
 * } finally {
 *   await lease.release()
 * }
 * ```
 */
export interface Lease extends AsyncDisposable {
  readonly key: string
  /** The ticket's id: random, and unique for ever. */
  readonly id: string
  /** The fencing token: larger than that of every holder of this key before it. */
  readonly fence: bigint
  readonly state: LeaseState
  /** Milliseconds until the deadline, if no renewal succeeds; 0 when it is over. */
  readonly remainingMs: number
  /**
   * Aborts when the lease is lost, at the deadline at the latest, even if the store hangs; its `reason` is the
   * {@link LeaseLostError}. It does not abort on release. A timer tells it, and timers are late when the event loop was
   * blocked: before a write that matters, call {@link assertHeld}.
   */
  readonly signal: AbortSignal
  /**
   * Throws unless the lease is held at this very moment, by the clocks and not by a timer.
   *
   * @throws {LeaseLostError} when it is lost, or was released; {@link ClosedError} when its locks were closed.
   */
  assertHeld(): void
  /**
   * Renews now, optionally with another ttl (milliseconds, or a duration string), which later renewals keep. A
   * shorter one counts once the present term is used up: what the store has promised it never takes back.
   *
   * @throws {InvalidArgumentError} when the ttl is none.
   * @throws {LeaseLostError} when it is lost or released.
   * @throws {StoreError} when the store does not answer before the deadline; the lease is then lost, too. Also when the
   * store refuses (`store-refused`); the lease is then held for as long as it was before.
   * @throws {ClosedError} when its locks are closed.
   */
  extend(ttl?: number | string): Promise<void>
  /**
   * Gives the key back; resolves once the store has answered. Safe to call twice, after a loss, and in `finally`: it
   * never rejects. When the store does not answer it resolves after about two seconds and goes on trying behind the
   * scenes until the ttl has passed, when the store forgets the lease by itself.
   */
  release(): Promise<void>
  /**
   * Lets go of the lease without giving it back: it is no longer renewed here, and continues where
   * `locks.adopt(json)` is called before the deadline. `release()` has no effect any more.
   *
   * @throws {LeaseLostError} when it is lost or released.
   */
  detach(): LeaseJson
  toJSON(): LeaseJson
}
