import { elapsedMs, type Instant, now, systemClock } from '../../../base/clock.ts'
import { LeaseLostError, type LossReason } from '../../../errors.ts'
import type { LockConnection } from './connection.ts'

/**
 * A key that is locked as long as a connection of its own lives, or until its release. It needs no renewal: the
 * connection is watched instead.
 *
 * ```ts
 * import { advisorySession } from 'holdfast/postgres'
 * import pg from 'pg'
 *
 * const lease = await advisorySession(new pg.Pool(), 'indexer')
 * try {
 *   lease.assertHeld()
 * } finally {
 *   await lease.release()
 * }
 * ```
 */
export interface AdvisoryLease extends AsyncDisposable {
  /** The key that is locked. */
  readonly key: string
  /** Whether other shared locks may be held at the same time. */
  readonly shared: boolean
  /** The fencing token. It is larger than the token of every earlier holder of this key. */
  readonly fence: bigint
  /** Whether the lock is held, as far as can be known at this moment. */
  readonly state: 'held' | 'lost' | 'released'
  /**
   * Aborts with a {@link LeaseLostError} when the connection is lost. That is at once if this process hears of the
   * loss, and at the latest `ttl` after the last sign of life. A timer watches the latter, so call {@link assertHeld}
   * before a write that matters.
   */
  readonly signal: AbortSignal
  /**
   * Throws unless the lock is held as far as this process can know at this very moment. It reads the clock and does not
   * rely on a timer.
   *
   * @throws {LeaseLostError} when the lease is lost, or was released.
   */
  assertHeld(): void
  /**
   * Unlocks and closes the connection. It never rejects, so it is safe to call twice, after a loss, and in `finally`.
   * It resolves after two seconds at most. If the server has not answered by then, it frees the lock as soon as it
   * notices that the connection is closed.
   */
  release(): Promise<void>
}

/** The parts that a lease is made of. */
export interface Grip {
  readonly key: string
  readonly shared: boolean
  readonly fence: bigint
  readonly ttlMs: number
  /** The instant before the last request that the server answered. */
  readonly confirmedAt: Instant
  readonly connection: LockConnection
}

type AdvisoryState =
  | { readonly tag: 'held' }
  | { readonly tag: 'released' }
  | { readonly tag: 'lost'; readonly error: LeaseLostError }

export class SessionLease implements AdvisoryLease {
  readonly #grip: Grip
  readonly #controller = new AbortController()
  #state: AdvisoryState = { tag: 'held' }
  #confirmedAt: Instant
  #timer: NodeJS.Timeout | undefined
  #closing: Promise<void> | undefined

  constructor(grip: Grip) {
    this.#grip = grip
    this.#confirmedAt = grip.confirmedAt
    const onClosed = (cause: unknown) => this.#lose('store-reset', 'Its connection was lost.', cause)
    void grip.connection.closed.then(onClosed)
    this.#watch()
  }

  get key(): string {
    return this.#grip.key
  }

  get shared(): boolean {
    return this.#grip.shared
  }

  get fence(): bigint {
    return this.#grip.fence
  }

  get state(): 'held' | 'lost' | 'released' {
    this.#expireIfOver()
    return this.#state.tag
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  assertHeld(): void {
    this.#expireIfOver()
    if (this.#state.tag === 'lost') throw this.#state.error
    if (this.#state.tag === 'released') throw this.#lossOf('released', 'It was released by its holder.')
  }

  release(): Promise<void> {
    if (this.#state.tag === 'held') this.#end({ tag: 'released' })
    return this.#closing ?? Promise.resolve()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  /** Probes at each third of the ttl, one probe at a time, and reads the clock at the deadline. */
  #watch(): void {
    let probing = false
    const look = async () => {
      this.#expireIfOver()
      if (this.#state.tag !== 'held') return
      this.#timer = setTimeout(look, Math.min(this.#grip.ttlMs / 3, this.#remainingMs()))
      this.#timer.unref()
      if (probing) return
      probing = true
      await this.#probe()
      probing = false
    }
    this.#timer = setTimeout(look, this.#grip.ttlMs / 3)
    this.#timer.unref()
  }

  async #probe(): Promise<void> {
    const askedAt = now(systemClock)
    try {
      if (await this.#grip.connection.probe()) this.#confirmedAt = askedAt
      else this.#lose('store-reset', 'The server does not know it any more.')
    } catch {
      // Unknown: the end of the connection, or the deadline, decides.
    }
  }

  /**
   * The lease may use all of its ttl, because the server gives up half a ttl later; see {@link LockConnection.open}.
   */
  #remainingMs(): number {
    return this.#grip.ttlMs - elapsedMs(this.#confirmedAt, now(systemClock))
  }

  #expireIfOver(): void {
    if (this.#state.tag === 'held' && this.#remainingMs() <= 0)
      this.#lose('expired', `The server was not heard of for ${this.#grip.ttlMs} ms.`)
  }

  #lose(reason: 'expired' | 'store-reset', why: string, cause?: unknown): void {
    if (this.#state.tag !== 'held') return
    const error = this.#lossOf(reason, why, cause)
    this.#end({ tag: 'lost', error })
    this.#controller.abort(error)
  }

  /** The connection is closed in any case, because the server could still have the lock for it. */
  #end(state: AdvisoryState): void {
    this.#state = state
    clearTimeout(this.#timer)
    this.#closing = this.#grip.connection.close()
  }

  #lossOf(reason: LossReason, why: string, cause?: unknown): LeaseLostError {
    return new LeaseLostError(
      `The lease on ${JSON.stringify(this.key)} is over. ${why} Stop writing: others may hold the key.`,
      { key: this.key, reason, cause },
    )
  }
}
