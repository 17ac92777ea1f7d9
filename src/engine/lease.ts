import type { Duration } from '../base/duration.ts'
import type { ClosedError, LeaseLostError } from '../errors.ts'

/**
 * `held`: renewed as planned · `jeopardy`: a renewal failed or is overdue, and less than half of the ttl is left; go on,
 * but start nothing long · `lost`: stop, others may hold the key · `released`: given back.
 */
export type LeaseState = 'held' | 'jeopardy' | 'lost' | 'released'

/** How a lease continues elsewhere; see `locks.adopt`. `fence` is a decimal string. */
export interface LeaseJson {
  /** The key that is held. */
  readonly key: string
  /** The id of the ticket, which the store knows. */
  readonly id: string
  /** The fencing token, as decimal digits, because JSON has no bigint. */
  readonly fence: string
  /** How much of the key the lease takes: 1, or the permits of a semaphore. */
  readonly units: number
  /** The largest sum of units that the lease tolerates: 1 for a mutex. */
  readonly limit: number
  /** How long the store keeps the key without a renewal. */
  readonly ttlMs: number
  /** What the store was told when the key was taken. The store keeps to that, also if it is missing here. */
  readonly minHoldMs?: number | undefined
  /** As `minHoldMs`. */
  readonly lockDelayMs?: number | undefined
}

/**
 * A key, held until a deadline. It is renewed in the background until it is released or lost.
 *
 * The deadline counts from before the request was written, on the larger of the monotonic and the wall clock. So it is
 * never later than the store's own. A lease is advice to a process that may be paused at any instruction. So pass
 * `fence` along with each write, and let the resource refuse older ones.
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
  /** The key that is held. */
  readonly key: string
  /** The ticket's id: random, and unique for ever. */
  readonly id: string
  /** The fencing token: larger than that of every holder of this key before it. */
  readonly fence: bigint
  /** Whether the key is held at this moment, by the clocks and not by a timer. */
  readonly state: LeaseState
  /** Milliseconds until the deadline, if no renewal succeeds; 0 when it is over. */
  readonly remainingMs: number
  /**
   * Aborts when the lease is lost, at the deadline at the latest, even if the store hangs. Its `reason` is the
   * {@link LeaseLostError}. It does not abort on release. It depends on a timer, which is late if the event loop was
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
   * Renews now, optionally with another ttl (milliseconds, or a duration string), which later renewals keep. A shorter ttl
   * counts once the time that the store has promised so far is used up: the store never takes back what it has promised.
   *
   * @throws {InvalidArgumentError} when `ttl` is not a valid duration.
   * @throws {LeaseLostError} when it is lost or released.
   * @throws {StoreError} when the store does not answer before the deadline; the lease is then lost, too. Also when the
   * store refuses (`store-refused`); the lease is then held for as long as it was before.
   * @throws {ClosedError} when its locks are closed.
   */
  extend(ttl?: Duration): Promise<void>
  /**
   * Releases the key. Resolves once the store has answered. Never rejects: it is safe to call twice, after a loss, and in
   * `finally`. If the store does not answer, it resolves after about two seconds. The release is then repeated in the
   * background until the ttl has passed, when the store forgets the lease by itself.
   */
  release(): Promise<void>
  /**
   * Lets go of the lease without releasing the key: this process no longer renews it, and `release()` has no effect any
   * more. The lease continues where `locks.adopt(json)` is called before the deadline.
   *
   * @throws {LeaseLostError} when it is lost or released.
   */
  detach(): LeaseJson
  /** What `locks.adopt` takes, for `JSON.stringify`. Unlike {@link detach}, this process goes on renewing the lease. */
  toJSON(): LeaseJson
}
