import { elapsedMs, type Instant, now } from '../base/clock.ts'
import type { Ticks } from '../base/ticks.ts'
import type { Clock } from '../index.ts'
import type { JobSettings } from './options.ts'

/** The progress of a job in this process: which tick to handle next, by this machine's clock. */
export class Course {
  readonly #ticks: Ticks
  readonly #clock: Clock
  readonly #settings: Pick<JobSettings, 'missed' | 'windowMs'>
  /** Ticks up to here are done: this process does not look at them again. */
  #doneUntilMs: number
  /** Since when the wall clock has not jumped. This process has handled all ticks from here to `#doneUntilMs`. */
  #livedFromMs: number
  /** Ticks up to here came during a run of this process, and do not count as late. */
  #excusedUntilMs: number = Number.NEGATIVE_INFINITY
  #lookedAt: Instant
  #learnedAt: Instant | undefined

  constructor(ticks: Ticks, clock: Clock, settings: Pick<JobSettings, 'missed' | 'windowMs'>) {
    this.#ticks = ticks
    this.#clock = clock
    this.#settings = settings
    this.#doneUntilMs = this.#livedFromMs = this.nowMs
    this.#lookedAt = now(this.#clock)
  }

  get nowMs(): number {
    return this.#clock.wallMs()
  }

  /** The next tick that is still to come; `undefined` when none is. */
  get next(): number | undefined {
    return this.#ticks.next(Math.max(this.nowMs, this.#doneUntilMs))
  }

  /** The tick to handle now, if there is one. */
  due(): number | undefined {
    const nowMs = this.#readClock()
    const { missed, windowMs } = this.#settings
    if (missed === 'all') {
      const tick = this.#ticks.next(Math.max(this.#doneUntilMs, nowMs - windowMs))
      return tick !== undefined && tick <= nowMs ? tick : undefined
    }
    const tick = this.#ticks.last(nowMs)
    return tick === undefined || tick <= this.#doneUntilMs || this.isLate(tick) ? undefined : tick
  }

  /** How long to sleep until the next tick, or until the clock has to be checked for a jump. */
  get idleMs(): number {
    const next = this.next ?? Number.POSITIVE_INFINITY
    return Math.max(1, Math.min(next - this.nowMs, LONGEST_SLEEP_MS))
  }

  attended(tickMs: number): void {
    this.#doneUntilMs = Math.max(this.#doneUntilMs, tickMs)
  }

  isLate(tickMs: number): boolean {
    return this.nowMs - tickMs > this.#settings.windowMs && tickMs > this.#excusedUntilMs
  }

  /** Ticks until now waited for a run of this process, so they are not late. With `missed: 'all'` they run anyway. */
  excuse(): void {
    if (this.#settings.missed !== 'all') this.#excusedUntilMs = this.nowMs
  }

  /** The ticks between these instants that some process could still want to run. */
  *between(fromMs: number, untilMs: number): Generator<number, void, void> {
    const { missed, windowMs } = this.#settings
    const { nowMs } = this
    // Unless all missed ticks are made up for, only the last tick of the past counts.
    const caredForMs = missed === 'all' ? nowMs - windowMs : (this.#ticks.last(nowMs) ?? nowMs) - 1
    let tick = this.#ticks.next(Math.max(fromMs, caredForMs))
    for (; tick !== undefined && tick <= untilMs; tick = this.#ticks.next(tick)) yield tick
  }

  /** Whether to ask the store since when the job exists: ticks before that were not missed. `skip` does not need it. */
  get shouldLearn(): boolean {
    if (this.#settings.missed === 'skip') return false
    return this.#learnedAt === undefined || elapsedMs(this.#learnedAt, now(this.#clock)) >= DAY_MS
  }

  learn(knownForMs: number | undefined): void {
    if (this.#learnedAt === undefined && knownForMs !== undefined) {
      this.#doneUntilMs = this.#livedFromMs = Math.min(this.#doneUntilMs, this.nowMs - knownForMs)
    }
    this.#learnedAt = now(this.#clock)
  }

  #readClock(): number {
    const before = this.#lookedAt
    const at = now(this.#clock)
    this.#lookedAt = at
    const jumpedMs = at.wallMs - before.wallMs - (at.monotonicMs - before.monotonicMs)
    if (jumpedMs > JUMP_MS) this.#livedFromMs = at.wallMs
    // A clock that is set back to before `#livedFromMs` meets ticks that are not handled yet. Ticks after it are handled.
    if (at.wallMs < this.#livedFromMs) this.#livedFromMs = this.#doneUntilMs = at.wallMs
    return at.wallMs
  }
}

/** If the wall clock gains this much on the monotonic clock, it was set, or its machine slept. */
const JUMP_MS = 60_000
/** Timers run on the monotonic clock, so a jump of the wall clock is noticed after this long at the latest. */
export const LONGEST_SLEEP_MS = 30_000
const DAY_MS = 86_400_000
