import { outsideOfCallers } from '../base/async-context.ts'
import { paused } from '../base/clock.ts'
import { fieldOf } from '../base/thrown.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { HoldfastError, isHoldfastError, LeaseLostError, StepDownError } from '../errors.ts'
import { heldHere } from './held-keys.ts'
import { hold, type LocksContext, runObserved } from './hold.ts'
import { EXCLUSIVE, type HoldSettings, markedKey } from './options.ts'

/** What the leader is given for one term. */
export interface Leadership {
  readonly key: string
  /** Larger than that of every leader before. */
  readonly fence: bigint
  /**
   * Aborts when the term ends: with the {@link LeaseLostError} when the lease is lost, at its deadline at the latest, and
   * with a {@link HoldfastError} `step-down` when the leader is asked to go. Then it still leads, until the work has
   * settled.
   */
  readonly signal: AbortSignal
  /**
   * Aborts when it leads no more although the work has not settled: the lease is lost (with why), or the time for
   * stepping down is used up. `signal` says *come to an end*, this one says *stop*: from now on another one may lead.
   */
  readonly lost: AbortSignal
  /** Milliseconds until the term ends, if no renewal succeeds; 0 when it is over. */
  readonly remainingMs: number
  /** Throws unless it leads at this very moment, by the clocks and not by a timer. @throws {LeaseLostError} */
  assertHeld(): void
}

export type TermEnd<T> =
  | { readonly tag: 'done'; readonly value: T }
  | { readonly tag: 'failed'; readonly error: unknown }
  /** It was lost, or the leader was asked to go. */
  | { readonly tag: 'over' }

/** The second key of an election. Held by the leader, so that who observes can wait for its end, and an eviction can ask it to go. */
export function markOf(key: string): string {
  return markedKey(key, '#leader')
}

/** Held by all who observe while nobody leads. Whoever is elected takes it away from them, and so they know. */
export function vacancyOf(key: string): string {
  return markedKey(key, '#vacant')
}

/** One term of one leader. */
export class LeaderTerm implements Leadership {
  readonly #context: LocksContext
  readonly #lease: HeldLease
  readonly #settings: HoldSettings
  readonly #stopMs: number
  readonly #ending = new AbortController()
  readonly #lost = new AbortController()
  /** Aborts when it leads no more: its work has settled, or its lease is over. */
  readonly #gone = new AbortController()
  /** Resolves when the key was given back, or is not its own any more. */
  readonly over: Promise<void>
  #tellOver: () => void = () => {}

  /** `stopMs`: how long the work may take to settle once the leader was asked to go. */
  constructor(context: LocksContext, lease: HeldLease, settings: HoldSettings, stopMs: number) {
    this.#context = context
    this.#lease = lease
    this.#settings = settings
    this.#stopMs = stopMs
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

  /** Whether the caller runs inside of its work. */
  get isRunningHere(): boolean {
    return heldHere(this.#context.engine, this.key) === this.#lease
  }

  assertHeld(): void {
    this.#lost.signal.throwIfAborted()
    this.#lease.assertHeld()
  }

  /** Runs the work, and gives the key back only when it has settled: nobody else begins before. */
  async run<T>(work: (leadership: Leadership) => Promise<T> | T): Promise<TermEnd<T>> {
    const { signal } = this.#lease
    const onLost = () => this.#lose(signal.reason)
    if (signal.aborted) onLost()
    else signal.addEventListener('abort', onLost, { once: true })
    // Asked to go before it has begun: work that listens to its signal from then on would never hear of it.
    const isWanted = !this.#ending.signal.aborted
    if (isWanted) {
      outsideOfCallers(() => {
        void this.#keepMark()
        void this.#endVacancy()
      })
      void this.#keepProcess()
    }
    try {
      if (!isWanted) return { tag: 'over' }
      const value = await runObserved(this.#context.engine, this.#lease, () => work(this))
      return this.#isEnding ? { tag: 'over' } : { tag: 'done', value }
    } catch (error) {
      return this.#isEnding && this.#passesOn(error) ? { tag: 'over' } : { tag: 'failed', error }
    } finally {
      signal.removeEventListener('abort', onLost)
      this.#gone.abort()
      await this.#lease.release()
      this.#tellOver()
    }
  }

  /** Asks the leader to go. What it has begun may settle; after `stopMs` the lease is left to run out. */
  stepDown(why: string): void {
    if (this.#ending.signal.aborted || this.#gone.signal.aborted) return
    this.#ending.abort(
      new StepDownError(`The leader of ${JSON.stringify(this.key)} is asked to go: ${why}`, {
        key: this.key,
      }),
    )
    void paused(this.#context.engine.clock, this.#stopMs, this.#gone.signal).then(() => this.#stopHard())
  }

  /** Nobody renews the lease from now on. */
  #stopHard(): void {
    if (this.#gone.signal.aborted) return
    try {
      this.#lease.detach()
    } catch {
      // Lost in this very moment by the clocks, which it has told by now.
      return
    }
    const key = JSON.stringify(this.key)
    const why = `The leader of ${key} was asked to go, and its work has not settled within ${this.#stopMs} ms. Stop writing: another one leads as soon as the lease has run out.`
    this.#lose(new LeaseLostError(why, { key: this.key, reason: 'expired' }))
  }

  #lose(why: unknown): void {
    this.#gone.abort()
    this.#lost.abort(why)
    this.#ending.abort(why)
    this.#tellOver()
  }

  /** By the clocks: the work may have blocked the event loop, so that no timer has told. */
  get #isEnding(): boolean {
    return this.#lease.state === 'lost' || this.#ending.signal.aborted
  }

  /** An error that only passes on why a signal aborted is no failure of the work. */
  #passesOn(error: unknown): boolean {
    const reasons = [this.#ending.signal.reason, this.#lost.signal.reason]
    if (reasons.includes(error)) return true
    return fieldOf(error, 'name') === 'AbortError' || reasons.includes(fieldOf(error, 'cause') ?? error)
  }

  /** Also work that only waits for its signal has to go on, as it did while it waited to be elected. */
  async #keepProcess(): Promise<void> {
    const { signal } = this.#gone
    while (!signal.aborted) await paused(this.#context.engine.clock, LONG_MS, signal)
  }

  async #endVacancy(): Promise<void> {
    const { engine } = this.#context
    const request = { key: vacancyOf(this.key), id: undefined, reason: 'somebody was elected' }
    try {
      await engine.ask('evict', () => engine.store.evict(request), engine.attemptMs(1), request.key)
    } catch {
      // Who observes asks every second, too.
    }
  }

  /** Keeps the mark for as long as it leads. Its eviction is how somebody asks the leader to go. */
  async #keepMark(): Promise<void> {
    const gone = this.#gone.signal
    const over = abortOf(gone)
    const settings = { ...this.#settings, minHoldMs: 0, lockDelayMs: 0, signal: gone, quiet: true }
    for (let failures = 0; !gone.aborted; failures += 1) {
      try {
        const mark = await hold(this.#context, markOf(this.key), EXCLUSIVE, settings)
        failures = 0
        const end = await Promise.race([abortOf(mark.signal), over])
        await mark.release()
        // It still leads until its work has settled, and so takes the mark again.
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
