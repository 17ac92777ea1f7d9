import { outsideOfCallers } from '../base/async-context.ts'
import type { Instant } from '../base/clock.ts'
import { parseDuration, TTL_RANGE } from '../base/duration.ts'
import type { RenewAnswer, Ticket } from '../contract/store.ts'
import { type ClosedError, isHoldfastError, type LeaseLostError, StoreError } from '../errors.ts'
import type { Engine } from './engine.ts'
import { type Events, observed } from './events.ts'
import type { Exchange } from './instant.ts'
import type { Lease, LeaseJson, LeaseState } from './lease.ts'
import { type LeaseOptions, Term } from './lease-deadline.ts'
import type { LockEvents } from './lock-events.ts'
import type { Kept } from './renewal-loop.ts'
import { lossOf, releasedOf } from './ticket-errors.ts'
import { ttlFields } from './ticket-fields.ts'

type State =
  | { readonly tag: 'held' }
  | { readonly tag: 'released' }
  | { readonly tag: 'lost'; readonly error: LeaseLostError | ClosedError }

const HELD: State = { tag: 'held' }
/** Held, and it was told that the deadline is near. */
const IN_JEOPARDY: State = { tag: 'held' }
const RELEASED: State = { tag: 'released' }
/** Released as far as this process is concerned; somebody else goes on with it. */
const DETACHED: State = { tag: 'released' }

/** A lease in the hands of the engine. What the caller sees of it is {@link Lease}; when it is over is decided by {@link Term}. */
export class HeldLease extends Term implements Lease, Kept {
  readonly fence: bigint
  ticket: Ticket
  dueAt: number
  kept = false
  previous: Kept | undefined
  next: Kept | undefined
  /** Calls that run under this lease, because they asked for its key again with `reentrant`. */
  inner: Set<Promise<unknown>> | undefined
  /** Set while acquire requests of this ticket are unanswered: one may still arrive, after the release. */
  origin: { readonly doubts: number } | undefined
  readonly #engine: Engine
  #state: State = HELD
  #attempts = 0
  #lastError: unknown
  #controller: AbortController | undefined
  /** A question that is not about time: whether it was evicted. */
  #checking = false
  #givenBack: Promise<void> | undefined

  constructor(engine: Engine, ticket: Ticket, fence: bigint, when: Exchange, options: LeaseOptions) {
    super(when.askedAt, ticket.ttlMs, options)
    this.#engine = engine
    this.ticket = ticket
    this.fence = fence
    this.dueAt = this.#nextDue(when.askedAt, this.deadlineAt(when.answeredAt))
    engine.keeper.keep(this)
    engine.leases?.set(this.id, this)
  }

  get awaited(): boolean {
    return false
  }

  get key(): string {
    return this.ticket.key
  }

  get id(): string {
    return this.ticket.id
  }

  get state(): LeaseState {
    const at = this.#now()
    this.#expireIfOver(at)
    if (this.#state.tag !== 'held') return this.#state.tag
    return this.#isInJeopardy(at) ? 'jeopardy' : 'held'
  }

  get remainingMs(): number {
    return this.#state.tag === 'held' ? Math.max(0, this.leftMs(this.#now())) : 0
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController()
      this.#expireIfOver(this.#now())
      if (this.#state.tag === 'lost') this.#controller.abort(this.#state.error)
      else if (this.#state.tag === 'held') {
        this.#engine.keeper.watch()
        // Somebody wants to know, so an eviction should not have to wait for the next renewal.
        this.#engine.listen()
        // It may have been evicted before wakes flowed. If they do not flow yet, this is asked once they do.
        if (this.isOlderThan(this.#engine.hearsSince)) this.check()
      }
    }
    return this.#controller.signal
  }

  /** Whether somebody has its signal. */
  get isWatched(): boolean {
    return this.#controller !== undefined
  }

  assertHeld(): void {
    this.#expireIfOver(this.#now())
    const state = this.#state
    if (state.tag === 'lost') throw state.error
    if (state.tag === 'released') throw releasedOf(this.ticket)
  }

  async extend(ttl?: number | string): Promise<void> {
    this.assertHeld()
    const term = ttl === undefined ? {} : ttlFields(parseDuration('ttl', ttl, TTL_RANGE))
    for (let attempts = 1; ; attempts += 1) {
      const asked = { ...this.ticket, ...term }
      const askedAt = this.#engine.now()
      try {
        const [answer] = await this.#engine.ask(
          'renew',
          () => this.#engine.store.renew([asked]),
          this.#attemptMs(this.leftMs(askedAt)),
          this.key,
        )
        if (answer === undefined)
          throw new StoreError('store-unavailable', 'The store gave no answer to a renewal.')
        this.#extended(answer, asked, askedAt)
        this.assertHeld()
        return
      } catch (error) {
        if (!isHoldfastError(error, 'store-unavailable')) throw error
        this.#lastError = error
        const remainingMs = this.leftMs(this.#now())
        await this.#engine.sleep(Math.max(1, Math.min(this.#engine.backoffMs(attempts), remainingMs)))
        this.#expireIfOver(this.#now())
        if (this.#state.tag === 'lost' && this.#state.error.code !== 'closed') throw error
        this.assertHeld()
      }
    }
  }

  release(): Promise<void> {
    return this.releaseNow() ?? DONE
  }

  /** Returns `undefined` when the store answered at once: nobody has to wait then. */
  releaseNow(): Promise<void> | undefined {
    const at = this.#now()
    this.#expireIfOver(at)
    const state = this.#state
    if (state.tag === 'released' || this.#givenBack !== undefined) return this.#givenBack
    if (state.tag === 'held') this.#end(RELEASED)
    // Lost by our clocks, but a request that arrived late may have kept it alive in the store.
    else if (isHoldfastError(state.error, 'closed') || (state.error as LeaseLostError).reason === 'evicted')
      return undefined
    this.#givenBack =
      this.#engine.giveBack(this.ticket, {
        cancel: (this.origin?.doubts ?? 0) > 0,
        termMs: this.confirmedMs(at),
        atMs: at.monotonicMs,
      }) ?? DONE
    // After the request, so that whoever listens keeps nobody waiting for the key.
    if (state.tag === 'held' && this.#events.released.isHeard)
      this.#events.released.tell(this.#subject, { fence: this.fence, heldMs: this.heldMs(at) })
    return this.#givenBack === DONE ? undefined : this.#givenBack
  }

  /** The engine closes: the key goes back, and whoever still works under the lease is told. */
  close(error: ClosedError): Promise<void> {
    const released = this.release()
    if (this.#state.tag === 'released') this.#state = { tag: 'lost', error }
    this.#tell(error)
    return released
  }

  /** Nobody goes on with it, here or elsewhere: a grant of this ticket that comes now belongs to nobody. */
  get isGivenBack(): boolean {
    return this.#state.tag !== 'held' && this.#state !== DETACHED
  }

  /** Its holder is done and may have released it: throws if it was lost meanwhile. */
  assertKept(): void {
    if (this.#state.tag !== 'released') this.assertHeld()
  }

  detach(): LeaseJson {
    this.assertHeld()
    this.#end(DETACHED)
    const heldMs = this.heldMs(this.#now())
    this.#events.detached.tell(this.#subject, { fence: this.fence, heldMs })
    return this.toJSON()
  }

  toJSON(): LeaseJson {
    const { key, id, units, limit, ttlMs, minHoldMs, lockDelayMs } = this.ticket
    return { key, id, fence: String(this.fence), units, limit, ttlMs, minHoldMs, lockDelayMs }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  /** Without renewal it asks whether it was evicted: that must not keep the key any longer, should this process end. */
  get question(): Ticket {
    if (this.options.renew) return this.ticket
    const ttlMs = Math.max(1, Math.floor(this.leftMs(this.#now())))
    return { ...this.ticket, ttlMs, acceptMs: Math.min(ttlMs, this.ticket.acceptMs) }
  }

  /** Asks the store, whether it is due or not: it may have been evicted, or the store been reset. */
  check(): void {
    this.#checking = true
    this.#engine.keeper.hurry(this)
  }

  due(at: Instant): boolean {
    if (this.#state.tag !== 'held') return false
    // Worked out once, here and where the answer comes: with thousands of leases each call more is felt.
    const leftMs = this.leftMs(at)
    if (leftMs <= 0) {
      this.#expire(at)
      return false
    }
    const deadlineAt = at.monotonicMs + leftMs
    if (!this.options.renew) {
      const asks = this.#checking
      this.#checking = false
      this.dueAt = deadlineAt
      if (asks) this.#attempts += 1
      return asks
    }
    this.#checking = false
    // Due again without an answer in between means that this attempt is given up, and another one is made.
    this.#attempts += 1
    this.dueAt = Math.min(at.monotonicMs + this.#attemptMs(leftMs), deadlineAt)
    this.#tellJeopardy(at)
    return true
  }

  answered(answer: RenewAnswer, asked: Ticket, when: Exchange, { extending }: Asked = RENEWING): void {
    if (this.#state.tag !== 'held') return
    switch (answer.tag) {
      case 'held':
        // The same id under another fence is a new grant: the store had lost ours, and a late request was let in again.
        if (answer.fence !== this.fence) return this.#lose('store-reset', STORE_RESET)
        this.#attempts = 0
        // Without renewal only extend() may move the deadline, and not a question whether it was evicted.
        if (!this.options.renew && !extending) return
        this.#lastError = undefined
        this.confirm(when.askedAt, asked.ttlMs)
        return this.#renewed(when)
      case 'gone':
        if (answer.evicted)
          return this.#lose(
            'evicted',
            `Somebody evicted it: ${answer.reason ?? 'no reason given'}.`,
            answer.reason,
          )
        return this.isOverAt(when.answeredAt)
          ? this.#lose('expired', EXPIRED)
          : this.#lose('store-reset', STORE_RESET)
      case 'queued':
        // A store that says so has lost the grant and kept the wait: it was reset to an older state.
        return this.#lose('store-reset', STORE_RESET)
      default:
        answer satisfies never
    }
  }

  unanswered(error: unknown): void {
    this.#lastError = error
    // Without renewal it was a question about an eviction, which stays open.
    this.#checking = true
    const at = this.#now()
    const leftMs = this.leftMs(at)
    const pauseMs = Math.min(this.#engine.backoffMs(this.#attempts), this.#attemptMs(leftMs))
    this.dueAt = at.monotonicMs + Math.min(pauseMs, leftMs)
    this.#tellJeopardy(at)
  }

  /** Runs the work as it is, or inside of what those who listen want it to run in. */
  runObserved<T>(work: () => T): T {
    if (!this.#events.working.isHeard) return work()
    // Nobody is told of work that will not begin.
    this.assertHeld()
    return observed(this.#events, { ...this.#subject, fence: this.fence }, work)
  }

  /** Nobody has seen it yet, and it is over: as if it had not been. The ticket lives on. */
  forget(): void {
    this.#end(RELEASED)
  }

  #extended(answer: RenewAnswer, asked: Ticket, askedAt: Instant): void {
    if (this.#state.tag === 'held' && answer.tag === 'held') this.ticket = asked
    this.answered(answer, asked, { askedAt, answeredAt: this.#now() }, EXTENDING)
    if (this.#state.tag === 'held') this.#engine.keeper.keep(this)
  }

  #now(): Instant {
    return this.#engine.now()
  }

  get #events(): Events {
    return this.#engine.events
  }

  get #subject(): { readonly ticket: Ticket; readonly lease: LeaseOptions } {
    return { ticket: this.ticket, lease: this.options }
  }

  /** Renewed at a third of the ttl, so it is never this short while all goes well. */
  #isInJeopardy(at: Instant): boolean {
    return this.options.renew && this.confirmedMs(at) < this.ticket.ttlMs / 2
  }

  #tellJeopardy(at: Instant): void {
    if (this.#state !== HELD || !this.#isInJeopardy(at)) return
    this.#state = IN_JEOPARDY
    const remainingMs = Math.max(0, this.leftMs(at))
    this.#events.jeopardy.tell(this.#subject, { fence: this.fence, remainingMs, error: this.#lastError })
  }

  #renewed({ askedAt, answeredAt }: Exchange): void {
    const remainingMs = this.leftMs(answeredAt)
    if (remainingMs <= 0) return this.#expire(answeredAt)
    this.dueAt = this.#nextDue(askedAt, answeredAt.monotonicMs + remainingMs)
    if (this.#state !== HELD && !this.#isInJeopardy(answeredAt)) this.#state = HELD
    const { renewed } = this.#events
    if (!renewed.isHeard) return
    const tookMs = answeredAt.monotonicMs - askedAt.monotonicMs
    renewed.tell(this.#subject, { fence: this.fence, remainingMs, tookMs })
  }

  #nextDue(askedAt: Instant, deadlineAt: number): number {
    if (!this.options.renew) return deadlineAt
    const third = (this.ticket.ttlMs / 3) * (0.9 + this.#engine.chance() * 0.2)
    return Math.min(askedAt.monotonicMs + third, deadlineAt)
  }

  /** One attempt gets half of what is left, so several fit in before the deadline. */
  #attemptMs(leftMs: number): number {
    return Math.max(MIN_ATTEMPT_MS, Math.min(leftMs / 2, this.#engine.attemptMs(1)))
  }

  #expireIfOver(at: Instant): void {
    if (this.#state.tag === 'held' && this.isOverAt(at)) this.#expire(at)
  }

  #expire(at: Instant): void {
    this.#lose('expired', this.isUsedUp(at) ? 'It was held for its whole `maxHold`.' : EXPIRED)
  }

  #lose(reason: LockEvents['lost']['reason'], why: string, evictedBecause?: string): void {
    const error = lossOf(this.ticket, why, { reason, evictedBecause, cause: this.#lastError })
    const heldMs = this.heldMs(this.#now())
    this.#end({ tag: 'lost', error })
    this.#tell(error)
    // Only now: a listener may do anything with the lease, which has no other end any more.
    const { evicted, lost } = this.#events
    outsideOfCallers(() => {
      if (reason === 'evicted') evicted.tell(this.#subject, { was: 'holder', reason: error.evictedBecause })
      lost.tell(this.#subject, { fence: this.fence, reason, heldMs, error })
    })
  }

  /** Outside of who noticed it: a listener must not run inside the scope of keys that another caller holds. */
  #tell(error: LeaseLostError | ClosedError): void {
    outsideOfCallers(() => this.#controller?.abort(error))
  }

  #end(state: State): void {
    this.#state = state
    this.#engine.keeper.drop(this)
    const { leases } = this.#engine
    // The same ticket may have been adopted once more.
    if (leases?.get(this.id) === this) leases.delete(this.id)
  }
}

/** Why the store was asked. */
interface Asked {
  readonly extending: boolean
}

const RENEWING: Asked = { extending: false }
const EXTENDING: Asked = { extending: true }
const MIN_ATTEMPT_MS = 10
const DONE: Promise<void> = Promise.resolve()
const EXPIRED = 'Its deadline passed before a renewal was confirmed.'
const STORE_RESET =
  'The store no longer knew it before its time: it was restarted or flushed, or its clock jumped.'

// What console.log shows: this lease, and not the engine's list of all others. Here, since a computed name in the class
// has no type that a declaration file could be written from.
Object.defineProperty(HeldLease.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: HeldLease): object {
    const { key, id, fence, state, remainingMs } = this
    return { key, id, fence, state, remainingMs }
  },
})
