import { assert } from '../base/assert.ts'
import { type Backoff, backoffMs } from '../base/backoff.ts'
import type { Instant } from '../base/clock.ts'
import type { Clock } from '../contract/clock.ts'
import type { ReleaseAnswer, Store, Ticket } from '../contract/store.ts'
import { isHoldfastError } from '../errors.ts'
import { type Events, tellStoreError } from './events.ts'
import { isLater } from './later.ts'
import type { ReleaseRetry, Retryable } from './release-retry.ts'
import type { Renewable } from './renewable.ts'
import type { RenewalLoop } from './renewal-loop.ts'
import type { Bucket } from './timer-wheel.ts'

export interface ReleaseOptions {
  readonly cancel: boolean
  /** Of a lease: how long the store may still keep the ticket because of an earlier, longer ttl. */
  readonly remainingMs?: number | undefined
  /** When the store is asked first, on the monotonic clock. */
  readonly atMs?: number | undefined
}

/** The part of the engine that a pending release uses. */
export interface ReleaseContext {
  readonly store: Store
  readonly clock: Clock
  readonly events: Events
  readonly renewals: RenewalLoop
  readonly releases: ReleaseRetry
  readonly chance: () => number
  attemptMs(attempts: number): number
  backoffMs(attempts: number): number
}

/** A release request. Its failure is a rejection, also where the store throws at once. */
export function requestRelease(
  store: Store,
  { key, id }: Ticket,
  { cancel, atMs }: ReleaseOptions,
): ReleaseAnswer | Promise<ReleaseAnswer> {
  try {
    return store.release({ key, id, cancel }, atMs)
  } catch (error) {
    return Promise.reject(error)
  }
}

/**
 * A release that the store did not answer at once. It is repeated until the store has done it, or would have forgotten the
 * ticket by itself. It does not depend on the caller and its signal: a caller that gives up was often aborted, and its
 * ticket must not stay behind.
 */
export class PendingRelease implements Retryable {
  readonly kind = 'release'
  readonly ticket: Ticket
  readonly slackMs = 0
  dueAt = 0
  bucket: Bucket<Renewable> | undefined
  previous: Renewable | undefined
  next: Renewable | undefined
  /**
   * The promise that the caller awaits. It resolves with the answer, or after the time of one attempt. Never rejects.
   */
  readonly callerDone: Promise<void>
  readonly #context: ReleaseContext
  readonly #cancel: boolean
  /** The caller waits no longer than this. */
  readonly #callerUntil: number
  /** The store has forgotten the ticket by then. */
  readonly #until: number
  #askAt = 0
  #attempts = 0
  #callerWaits = true
  /** Whether the latest request has neither an answer nor failed. */
  #silent = false
  #refusals = 0
  #resolveCaller: () => void = noop
  #resolveDone: () => void = noop

  /** `reply` belongs to the first request, which is already on its way. */
  constructor(
    context: ReleaseContext,
    ticket: Ticket,
    options: ReleaseOptions & { readonly reply: Promise<ReleaseAnswer> },
  ) {
    this.#context = context
    this.ticket = ticket
    this.#cancel = options.cancel
    const keptMs = Math.max(ticket.ttlMs, ticket.minHoldMs)
    // A waiter may be granted the key at the end of its patience.
    const { remainingMs = ticket.patienceMs + keptMs, atMs = context.clock.monotonicMs() } = options
    this.#callerUntil = atMs + context.attemptMs(1)
    this.#until = atMs + Math.max(remainingMs, ticket.patienceMs, keptMs)
    this.callerDone = new Promise((resolve) => {
      this.#resolveCaller = resolve
    })
    this.#expect(options.reply, atMs)
  }

  get awaited(): boolean {
    return this.#callerWaits
  }

  untilDone(): Promise<void> {
    // `close()` does not wait for somebody to correct what makes the store refuse.
    if (this.#refusals > 0) return Promise.resolve()
    return new Promise((resolve) => {
      this.#resolveDone = resolve
    })
  }

  /** Lets the caller go on, whatever is known. The loop forgets this release, unless it is scheduled again. */
  endCallersWait(): void {
    this.#context.renewals.remove(this)
    this.#callerWaits = false
    this.#resolveCaller()
  }

  due(at: Instant): boolean {
    if (at.monotonicMs >= this.#until) {
      this.#end()
      return false
    }
    if (at.monotonicMs >= this.#callerUntil) {
      if (this.#callerWaits && this.#silent) this.#tellFailure(undefined)
      this.endCallersWait()
    }
    // Only the caller's wait was due. Or another release succeeded a moment ago, and had this one ask.
    if (at.monotonicMs < this.#askAt) this.#schedule(at.monotonicMs)
    else if (this.#context.releases.admits(this, at)) this.again()
    else this.#setDue(this.#context.backoffMs(LAST_PAUSE), at.monotonicMs)
    return false
  }

  again(): void {
    const { store, clock } = this.#context
    this.#expect(requestRelease(store, this.ticket, { cancel: this.#cancel }), clock.monotonicMs())
  }

  answered(): void {
    assert(false, 'a release is renewed')
  }

  unanswered(): void {
    assert(false, 'a release is renewed')
  }

  #expect(reply: ReleaseAnswer | Promise<ReleaseAnswer>, now: number): void {
    if (!isLater(reply)) return this.#end()
    this.#attempts += 1
    this.#silent = true
    this.#setDue(this.#context.attemptMs(this.#attempts), now)
    reply.then(
      () => this.#succeeded(),
      (error: unknown) => this.#failed(error),
    )
  }

  #succeeded(): void {
    this.#end()
    this.#context.releases.succeeded()
  }

  #failed(error: unknown): void {
    this.#silent = false
    if (isHoldfastError(error, 'store-refused')) return this.#refused(error)
    this.#tellFailure(error)
    const pauseMs = this.#context.backoffMs(this.#attempts)
    const now = this.#context.clock.monotonicMs()
    this.#context.releases.failed(this, now + pauseMs)
    if (this.bucket !== undefined) this.#setDue(pauseMs, now)
  }

  /**
   * The caller goes on at once. What makes a store refuse often passes before the ttl is over: a full server, a password that
   * is being changed, a fail-over. So this asks again after longer and longer pauses, and holds up no other release.
   */
  #refused(error: unknown): void {
    if (this.#refusals === 0) this.#tellFailure(error)
    this.#refusals += 1
    const isOver = this.bucket === undefined
    this.#end()
    if (!isOver)
      this.#setDue(
        backoffMs(AFTER_REFUSAL, this.#refusals, this.#context.chance),
        this.#context.clock.monotonicMs(),
      )
  }

  #setDue(pauseMs: number, now: number): void {
    this.#askAt = now + pauseMs
    this.#schedule(now)
  }

  #schedule(now: number): void {
    this.dueAt = this.#callerWaits ? Math.min(this.#askAt, this.#callerUntil) : this.#askAt
    this.#context.renewals.schedule(this, now)
  }

  #tellFailure(error: unknown): void {
    const { key, id } = this.ticket
    tellStoreError(this.#context.events, { verb: 'release', error, key, id })
  }

  /** May come more than once: several requests may be on their way, and each may be answered. */
  #end(): void {
    this.endCallersWait()
    this.#context.releases.remove(this)
    this.#resolveDone()
  }
}

function noop(): void {}

/** The exponent of the longest backoff: this release does not have to ask, others find out whether the store is back. */
const LAST_PAUSE = 10

/** The pauses after a refusal. Somebody may have to correct its cause, which takes a while. */
const AFTER_REFUSAL: Backoff = { firstMs: 2000, longestMs: 30_000, jitter: 0.5 }
