import { outsideOfCallers } from '../base/async-context.ts'
import { paused } from '../base/clock.ts'
import { fieldOf } from '../base/thrown.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { HoldfastError, isHoldfastError, LeaseLostError, StepDownError } from '../errors.ts'
import { heldHere } from './held-keys.ts'
import { afterInner, hold, type LocksContext, runObserved } from './hold.ts'
import { EXCLUSIVE, type HoldSettings, markedKey } from './options.ts'
import { bestOf, contendersFor, GIVES_WAY, type Preference, sendBack, yieldsInMs } from './succession.ts'

/** What `work` receives for one term as the leader. */
export interface Leadership {
  /** The key of the election. */
  readonly key: string
  /** Larger than the fence of every earlier leader. */
  readonly fence: bigint
  /**
   * Aborts with a {@link HoldfastError} when the term is to end. If the lease is lost, that is a {@link LeaseLostError}, and
   * the abort comes at the lease deadline at the latest. If the leader is asked to step down, it is a
   * {@link StepDownError}. Then the process still leads until its work has settled.
   */
  readonly signal: AbortSignal
  /**
   * Aborts when another process may lead although this work has not settled: the lease is over, or `grace` is. Its reason
   * says which. `signal` means *finish*, and `lost` means *stop now*.
   */
  readonly lost: AbortSignal
  /** Milliseconds until the lease deadline, if no renewal succeeds. 0 when the lease is over. */
  readonly remainingMs: number
  /** Reads the clocks and throws unless this process leads now. A timer may be late. @throws {LeaseLostError} */
  assertHeld(): void
}

export type TermEnd<T> =
  | { readonly tag: 'done'; readonly value: T }
  | { readonly tag: 'failed'; readonly error: unknown }
  /** The lease was lost, or the leader was asked to step down. */
  | { readonly tag: 'over' }

/**
 * The *mark*, the second key of an election. The leader holds it during its term. So observers can wait for the end of the
 * term, and an eviction from this key asks the leader to step down.
 */
export function markOf(key: string): string {
  return markedKey(key, '#leader')
}

/** The *vacancy*, the third key. Observers hold it while there is no leader. A new leader evicts them, and so tells them. */
export function vacancyOf(key: string): string {
  return markedKey(key, '#vacant')
}

export interface LeaderTermParts {
  readonly context: LocksContext
  readonly lease: HeldLease
  readonly settings: HoldSettings
  /** The grace: how long the work may take to settle after the leader was asked to step down. */
  readonly stopMs: number
  /** `undefined`: the leader gives way to nobody, and the queue says who leads next. */
  readonly preference: Preference | undefined
}

/** One term of one leader. */
export class LeaderTerm implements Leadership {
  readonly #context: LocksContext
  readonly #lease: HeldLease
  readonly #settings: HoldSettings
  readonly #stopMs: number
  readonly #preference: Preference | undefined
  readonly #ending = new AbortController()
  readonly #lost = new AbortController()
  /** Aborts when the term is over: the work has settled, or the lease is over. */
  readonly #gone = new AbortController()
  /** Resolves when the key was released or the lease is over. */
  readonly over: Promise<void>
  /** Somebody has chosen who leads next, so the priorities do not decide it. */
  hasSuccessor = false
  #gaveWay = false
  #tellOver: () => void = () => {}
  /** From then on `#clearWay` decides who leads next, unless somebody has chosen before. */
  #hasSettled = false
  /** On the monotonic clock. */
  #lostAt = Number.POSITIVE_INFINITY

  constructor({ context, lease, settings, stopMs, preference }: LeaderTermParts) {
    this.#context = context
    this.#lease = lease
    this.#settings = settings
    this.#stopMs = stopMs
    this.#preference = preference
    this.over = new Promise((resolve) => {
      this.#tellOver = resolve
    })
  }

  get key(): string {
    return this.#lease.key
  }

  get fence(): bigint {
    return this.#lease.fence
  }

  get signal(): AbortSignal {
    return this.#ending.signal
  }

  get lost(): AbortSignal {
    return this.#lost.signal
  }

  get remainingMs(): number {
    return this.#lease.remainingMs
  }

  /** By the clocks, as `assertHeld`. */
  get isHeld(): boolean {
    return !this.#lost.signal.aborted && (this.#lease.state === 'held' || this.#lease.state === 'jeopardy')
  }

  /** For how long the work has gone on since another process may lead, in milliseconds. 0: it has not, or the work has settled. */
  get overrunMs(): number {
    return this.#hasSettled ? 0 : Math.max(0, this.#context.engine.clock.monotonicMs() - this.#lostAt)
  }

  /** Whether the term ended because somebody wanted that, and not for a better candidate or by a loss. */
  get wasAskedToGo(): boolean {
    const { reason } = this.#ending.signal
    if (isEviction(reason)) return reason.evictedBecause !== GIVES_WAY
    return reason instanceof StepDownError && !this.#gaveWay
  }

  /** Whether the calling async context runs inside the work of this term. */
  get isRunningHere(): boolean {
    return heldHere(this.#context.engine, this.key) === this.#lease
  }

  assertHeld(): void {
    this.#lost.signal.throwIfAborted()
    this.#lease.assertHeld()
  }

  /** Throws when it is too late to choose who leads next. */
  assertMayChoose(): void {
    this.assertHeld()
    if (!this.#hasSettled) return
    const why = `The work of the leader of ${JSON.stringify(this.key)} has ended, so it hands over to nobody.`
    throw new LeaseLostError(why, { key: this.key, reason: 'released' })
  }

  /** Runs the work. Releases the key only after the work has settled, and all re-entrant work, so no other leader begins before. */
  async run<T>(work: (leadership: Leadership) => Promise<T> | T): Promise<TermEnd<T>> {
    const { signal } = this.#lease
    const onLost = () => this.#lose(signal.reason)
    if (signal.aborted) onLost()
    else signal.addEventListener('abort', onLost, { once: true })
    // If the signal has aborted already, do not begin: work that adds an abort listener now would never be called.
    const isWanted = !this.#ending.signal.aborted
    if (isWanted) {
      outsideOfCallers(() => {
        void this.#keepMark()
        void this.#endVacancy()
        void this.#giveWay()
      })
      void this.#keepProcess()
    }
    const settled = isWanted ? await this.#settled(work) : undefined
    // Re-entrant work under the lease belongs to the term.
    const end = await afterInner([this.#lease], () => {
      this.#hasSettled = true
      this.#lease.takeNoMoreInner()
      signal.removeEventListener('abort', onLost)
      this.#gone.abort()
      return this.#endOf(settled)
    })
    await this.#clearWay()
    await this.#lease.release()
    this.#tellOver()
    return end
  }

  async #settled<T>(work: (leadership: Leadership) => Promise<T> | T): Promise<TermEnd<T>> {
    try {
      return { tag: 'done', value: await runObserved(this.#context.engine, this.#lease, () => work(this)) }
    } catch (error) {
      return { tag: 'failed', error }
    }
  }

  #endOf<T>(settled: TermEnd<T> | undefined): TermEnd<T> {
    if (settled === undefined) return { tag: 'over' }
    const isOver = this.#isEnding && (settled.tag !== 'failed' || this.#passesOn(settled.error))
    return isOver ? { tag: 'over' } : settled
  }

  /** Asks the leader to step down. Its work may settle. After `stopMs` the lease is no longer renewed. */
  stepDown(why: string): void {
    if (this.#ending.signal.aborted || this.#gone.signal.aborted) return
    this.#ending.abort(
      new StepDownError(`The leader of ${JSON.stringify(this.key)} is asked to go: ${why}`, {
        key: this.key,
      }),
    )
    void paused(this.#context.engine.clock, this.#stopMs, this.#gone.signal).then(() => this.#stopHard())
  }

  /** Steps down when a candidate of a higher priority has waited for long enough. */
  async #giveWay(): Promise<void> {
    if (this.#preference === undefined) return
    const { engine } = this.#context
    const [gone, ending] = [this.#gone.signal, this.#ending.signal]
    while (!gone.aborted && !ending.aborted) {
      let restMs = LOOK_MS
      try {
        const leftMs = yieldsInMs(await contendersFor(this.#context, this.key), this.#preference)
        if (leftMs === 0 && !ending.aborted && !gone.aborted) {
          this.#gaveWay = true
          this.stepDown('a candidate of a higher priority waits.')
        }
        restMs = Math.min(restMs, leftMs)
      } catch (error) {
        if (isHoldfastError(error, 'closed')) return
        // The store is away. The leader leads on, and looks again.
      }
      await paused(engine.clock, restMs, gone, ending)
    }
  }

  /**
   * Has the best of those that wait be the next one, just before the release. If that does not succeed, the queue decides, and the next
   * leader gives way to the best.
   */
  async #clearWay(): Promise<void> {
    if (this.#preference === undefined || this.hasSuccessor || !this.isHeld) return
    const { engine } = this.#context
    const until = engine.clock.monotonicMs() + engine.attemptMs(1)
    const limitMs = () => {
      this.assertHeld()
      return Math.min(until - engine.clock.monotonicMs(), this.remainingMs)
    }
    try {
      const contenders = await contendersFor(this.#context, this.key, limitMs())
      const best = bestOf(contenders)
      if (best === undefined) return
      const before = contenders.slice(0, contenders.indexOf(best))
      await sendBack(this.#context, this.key, { contenders: before, limitMs })
    } catch {
      // The store is away, these locks are closed, or the lease is over.
    }
  }

  /** Ends the term although the work has not settled: the lease is no longer renewed. */
  #stopHard(): void {
    if (this.#gone.signal.aborted) return
    try {
      this.#lease.detach()
    } catch {
      // The lease was over by the clocks, and its abort has called `#lose` by now.
      return
    }
    const key = JSON.stringify(this.key)
    const why = `The leader of ${key} was asked to go, and its work has not settled within ${this.#stopMs} ms. Stop writing: another one leads as soon as the lease has run out.`
    this.#lose(new LeaseLostError(why, { key: this.key, reason: 'expired' }))
  }

  #lose(why: unknown): void {
    // It may be called twice: the grace ends, and then the lease.
    this.#lostAt = Math.min(this.#lostAt, this.#context.engine.clock.monotonicMs())
    this.#gone.abort()
    this.#lost.abort(why)
    this.#ending.abort(why)
    this.#tellOver()
  }

  /** `state` reads the clocks: if the work blocked the event loop, no timer has fired yet. */
  get #isEnding(): boolean {
    return this.#lease.state === 'lost' || this.#ending.signal.aborted
  }

  /** Whether the error is only the reason of one of the signals, passed on. Then the work has not failed. */
  #passesOn(error: unknown): boolean {
    const reasons = [this.#ending.signal.reason, this.#lost.signal.reason]
    if (reasons.includes(error)) return true
    return fieldOf(error, 'name') === 'AbortError' || reasons.includes(fieldOf(error, 'cause') ?? error)
  }

  /** Keeps the process alive during the term, as the wait for the election did: the work may only wait for its signal. */
  async #keepProcess(): Promise<void> {
    const { signal } = this.#gone
    while (!signal.aborted) await paused(this.#context.engine.clock, LONG_MS, signal)
  }

  async #endVacancy(): Promise<void> {
    const { engine } = this.#context
    const request = { key: vacancyOf(this.key), id: undefined, reason: 'somebody was elected' }
    try {
      await engine.ask('evict', () => engine.store.evict(request), {
        limitMs: engine.attemptMs(1),
        key: request.key,
      })
    } catch {
      // Observers also ask every second.
    }
  }

  /** Holds the mark during the term. If the mark is evicted, the leader steps down. */
  async #keepMark(): Promise<void> {
    const gone = this.#gone.signal
    const over = abortOf(gone)
    const settings = { ...this.#settings, minHoldMs: 0, lockDelayMs: 0, signal: gone, quiet: true }
    for (let failures = 0; !gone.aborted; failures += 1) {
      try {
        const mark = await hold(this.#context, { key: markOf(this.key), shape: EXCLUSIVE, settings })
        failures = 0
        const end = await Promise.race([abortOf(mark.signal), over])
        await mark.release()
        // The process leads until its work has settled, so the loop takes the mark again.
        if (isEviction(end)) this.stepDown(end.evictedBecause ?? UNSAID)
      } catch (error) {
        if (isEviction(error)) this.stepDown(error.evictedBecause ?? UNSAID)
        if (isHoldfastError(error, 'closed')) return
        await paused(this.#context.engine.clock, this.#context.engine.backoffMs(failures), gone)
      }
    }
  }
}

const LONG_MS = 3_600_000
/** As often as the waiters say that they are there. */
const LOOK_MS = 2000
const UNSAID = 'no reason given.'

function isEviction(error: unknown): error is LeaseLostError {
  return error instanceof LeaseLostError && error.reason === 'evicted'
}

function abortOf(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason)
    else signal.addEventListener('abort', () => resolve(signal.reason), { once: true })
  })
}
