import { type Instant, paused } from '../base/clock.ts'
import { parseDuration, TTL_RANGE } from '../base/duration.ts'
import type { Ticket } from '../contract/store.ts'
import { type ClosedError, isHoldfastError, type LeaseLostError } from '../errors.ts'
import type { EngineContext } from './engine-context.ts'
import { observed, type Working } from './events.ts'
import type { Lease, LeaseJson, LeaseState } from './lease.ts'
import { DETACHED, EXTENDING, type GrantedTicket, RELEASED, RenewedLease } from './renewed-lease.ts'
import { noAnswer, releasedOf } from './ticket-errors.ts'
import { ttlFields } from './ticket-fields.ts'

/** The lease of a ticket that the store has granted. */
export function newLease(context: EngineContext, granted: GrantedTicket): HeldLease {
  const lease = new HeldLease(context, granted)
  lease.begin(granted.askedAt, granted.answeredAt)
  return lease
}

/** A lease, with what its holder does with it. The caller sees only the part of it that {@link Lease} describes. */
export class HeldLease extends RenewedLease implements Lease {
  /** Calls that run under this lease, because they asked for its key again with `reentrant`. */
  inner: Set<Promise<unknown>> | undefined
  /** Set while acquire requests of this ticket are unanswered. One of them may arrive after the release. */
  origin: { readonly openRequests: number } | undefined
  /**
   * Until when the store may keep the ticket because of an `extend`, on the monotonic clock. An `extend` without an answer counts,
   * too. The first `extend` sets it; most leases never have it.
   */
  declare private keptUntil: number | undefined
  /** The release, once the store was asked for it. */
  #released: Promise<void> | undefined

  get state(): LeaseState {
    const at = this.now()
    this.expireIfOver(at)
    const { tag } = this.phase
    switch (tag) {
      case 'held':
      case 'jeopardy':
        return this.isInJeopardy(at) ? 'jeopardy' : 'held'
      case 'lost':
      case 'released':
        return tag
      case 'detached':
        return 'released'
      default:
        return tag satisfies never
    }
  }

  get remainingMs(): number {
    return this.isLive ? Math.max(0, this.leftMs(this.now())) : 0
  }

  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController()
      this.expireIfOver(this.now())
      if (this.phase.tag === 'lost') this.controller.abort(this.phase.error)
      else if (this.isLive) {
        const { renewals, wakes } = this.context
        renewals.noticeSleep()
        // Somebody wants to know, so an eviction should not have to wait for the next renewal.
        wakes.start()
        // It may have been evicted before wakes flowed. If they do not flow yet, it is checked once they do.
        if (this.isOlderThan(wakes.flowingSince)) this.check()
      }
    }
    return this.controller.signal
  }

  assertHeld(): void {
    this.expireIfOver(this.now())
    const { phase } = this
    switch (phase.tag) {
      case 'held':
      case 'jeopardy':
        return
      case 'lost':
        throw phase.error
      case 'released':
      case 'detached':
        throw releasedOf(this.ticket)
      default:
        phase satisfies never
    }
  }

  /** For the end of work whose holder may have released the lease already: throws only if it was lost. */
  assertNotLost(at: Instant = this.now()): void {
    const loss = this.lossSoFar(at)
    if (loss !== undefined) throw loss
  }

  /** Why it was lost, by the clocks of this moment; `undefined` if it was not. */
  lossSoFar(at: Instant = this.now()): LeaseLostError | ClosedError | undefined {
    this.expireIfOver(at)
    return this.phase.tag === 'lost' ? this.phase.error : undefined
  }

  async extend(ttl?: number | string): Promise<void> {
    this.assertHeld()
    const changed = ttl === undefined ? {} : ttlFields(parseDuration('ttl', ttl, TTL_RANGE))
    for (let attempts = 1; ; attempts += 1) {
      const asked = { ...this.ticket, ...changed }
      const askedAt = this.now()
      try {
        await this.#askToExtend(asked, askedAt)
        this.assertHeld()
        return
      } catch (error) {
        if (!isHoldfastError(error, 'store-unavailable')) throw error
        this.lastError = error
        const remainingMs = this.leftMs(this.now())
        const pauseMs = Math.max(1, Math.min(this.context.backoffMs(attempts), remainingMs))
        await paused(this.context.clock, pauseMs)
        this.expireIfOver(this.now())
        // Of a lease that expired, this error says why. After every other end it is beside the point.
        if (this.phase.tag === 'lost' && isExpiry(this.phase.error)) throw error
        this.assertHeld()
      }
    }
  }

  /** From now on no call counts as one under this lease, although it is still held. It is about to be released. */
  takeNoMoreInner(): void {
    this.inner = NO_MORE
  }

  get takesInner(): boolean {
    return this.inner !== NO_MORE
  }

  /** Renews the lease a last time, so that its whole ttl is left. From then on it is held with `renew: false`. */
  async renewLast(): Promise<void> {
    this.options = { ...this.options, renew: false }
    await this.extend()
  }

  release(): Promise<void> {
    return this.releaseNow() ?? DONE
  }

  /** Returns `undefined` when the store answered at once: then the caller needs no promise. */
  releaseNow(): Promise<void> | undefined {
    if (this.#giveBack()) return undefined
    const at = this.now()
    this.expireIfOver(at)
    if (this.#released !== undefined) return this.#released
    const { phase } = this
    switch (phase.tag) {
      case 'held':
      case 'jeopardy': {
        this.end(RELEASED)
        const released = this.#askToRelease(at)
        // After the request, so that no listener delays the next holder.
        const { events } = this.context
        if (events.released.isHeard)
          events.released.tell(this.subject, { fence: this.fence, heldMs: this.heldMs(at) })
        return released
      }
      case 'lost':
        // Lost by our clocks. But a request that arrived late may have kept it alive in the store.
        return (phase.error as LeaseLostError).reason === 'evicted' ? undefined : this.#askToRelease(at)
      case 'released':
      case 'detached':
        return undefined
      default:
        return phase satisfies never
    }
  }

  /** The locks are closed: the key is released, and the signal tells whoever still works under the lease. */
  override close(error: ClosedError): Promise<void> {
    const released = this.release()
    if (this.phase.tag === 'released') {
      this.phase = { tag: 'lost', error }
      this.tell(error)
    }
    return released
  }

  /** The lease is over for good, here and elsewhere. A late grant of its ticket must be released. */
  get isOverForGood(): boolean {
    return !this.isLive && this.phase.tag !== 'detached'
  }

  detach(): LeaseJson {
    this.assertHeld()
    this.end(DETACHED)
    const heldMs = this.heldMs(this.now())
    this.context.events.detached.tell(this.subject, { fence: this.fence, heldMs })
    return this.toJSON()
  }

  toJSON(): LeaseJson {
    const { key, id, units, limit, ttlMs, minHoldMs, lockDelayMs } = this.ticket
    return { key, id, fence: String(this.fence), units, limit, ttlMs, minHoldMs, lockDelayMs }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  /** Runs the work, inside of what the listeners to `working` wrap around it. */
  runObserved<T>(work: () => T): T {
    const { events } = this.context
    if (!events.working.isHeard) return work()
    // Listeners are not told of work that will not begin.
    this.assertHeld()
    return observed(events, [this.asWorking()], work)
  }

  /** What the event `working` tells of it. */
  asWorking(): Working {
    return { ...this.subject, fence: this.fence }
  }

  /** Ends it without a request and without an event, because no caller has seen it. The ticket lives on in the store. */
  forget(): void {
    this.end(RELEASED)
  }

  async #askToExtend(asked: Ticket, askedAt: Instant): Promise<void> {
    const { store, renewals } = this.context
    const limitMs = this.attemptMs(this.leftMs(askedAt))
    this.keptUntil = Math.max(this.keptUntil ?? 0, askedAt.monotonicMs + limitMs + asked.ttlMs)
    const [answer] = await this.context.ask('renew', () => store.renew([asked]), { limitMs, key: this.key })
    if (answer === undefined || answer === null) throw noAnswer(asked)
    // The lease may have ended while the store was asked. Then the answer is late, and changes nothing.
    if (!this.isLive) return
    if (answer.tag === 'held') this.ticket = asked
    this.answered(answer, asked, { askedAt, answeredAt: this.now() }, EXTENDING)
    if (this.isLive) renewals.schedule(this)
  }

  /**
   * The release of nearly every lease in this process, without a look at the clock, which would be a tenth of the whole cycle. The
   * store knows that nobody else has held the key since. If somebody is to be told of the end, the clock says whether the lease
   * was lost instead.
   */
  #giveBack(): boolean {
    const { store, events, clock } = this.context
    if (store.giveBack === undefined || this.phase.tag !== 'held') return false
    if (this.controller !== undefined || this.origin !== undefined) return false
    if (events.released.isHeard || events.lost.isHeard || !store.giveBack(this.ticket, clock)) return false
    this.end(RELEASED)
    return true
  }

  #askToRelease(at: Instant): Promise<void> | undefined {
    const released = this.context.release(this.ticket, {
      cancel: (this.origin?.openRequests ?? 0) > 0,
      remainingMs: Math.max(this.confirmedMs(at), (this.keptUntil ?? 0) - at.monotonicMs),
      atMs: at.monotonicMs,
    })
    this.#released = released ?? DONE
    return released
  }
}

function isExpiry(error: LeaseLostError | ClosedError): boolean {
  return isHoldfastError(error, 'lease-lost') && error.reason === 'expired'
}

const DONE: Promise<void> = Promise.resolve()

// A promise that is resolved with a lease looks for this name first. Found here, it is not looked for in the classes below, which
// saves 6 % of a cycle on a free key in this process.
Object.defineProperty(HeldLease.prototype, 'then', { value: undefined })

// The text for console.log: this lease, and not the engine's list of all others. Here, since a computed name in the
// class has no type that a declaration file could be written from.
Object.defineProperty(HeldLease.prototype, Symbol.for('nodejs.util.inspect.custom'), {
  value(this: HeldLease): object {
    const { key, id, fence, state, remainingMs } = this
    return { key, id, fence, state, remainingMs }
  },
})

const NO_MORE: Set<Promise<unknown>> = new Set()
