import { elapsedMs, type Instant, now } from '../base/clock.ts'
import type { Clock } from '../index.ts'
import type { JobSettings } from './options.ts'
import type { Ticks } from './ticks.ts'

/** How far a job has come in this process: which of its ticks are to be attended to, by this machine's clock. */
export class Course {
  readonly #ticks: Ticks
  readonly #clock: Clock
  readonly #settings: Pick<JobSettings, 'missed' | 'windowMs'>
  /** Ticks up to here are none of our business any more. */
  #doneUntilMs: number
  /** Since when the wall clock has gone on without a jump. All ticks from here to `#doneUntilMs` were attended to. */
  #livedFromMs: number
  /** Ticks up to here came while we ran, and are not late. */
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

  /** What is to be attended to at this moment, if anything. */
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

  /** How long nothing is due, or the clock need not be looked at. */
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

  /** What came until now did so while we ran, and waited for that. Of `all` each is run anyway, unless it is too old. */
  excuse(): void {
    if (this.#settings.missed !== 'all') this.#excusedUntilMs = this.nowMs
  }

  /** What somebody could still want to run of what came after `fromMs`, and of what will until `untilMs`. */
  *between(fromMs: number, untilMs: number): Generator<number, void, void> {
    const { missed, windowMs } = this.#settings
    const { nowMs } = this
    // Of the past, nobody cares about any but the last one.
    const caredForMs = missed === 'all' ? nowMs - windowMs : (this.#ticks.last(nowMs) ?? nowMs) - 1
    let tick = this.#ticks.next(Math.max(fromMs, caredForMs))
    for (; tick !== undefined && tick <= untilMs; tick = this.#ticks.next(tick)) yield tick
  }

  /** Only with a policy for missed ticks it matters since when the job is known at all: what came before was missed by nobody. */
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
    // Set back to where we have not been: these ticks are still to come. Where we have been, they were attended to.
    if (at.wallMs < this.#livedFromMs) this.#livedFromMs = this.#doneUntilMs = at.wallMs
    return at.wallMs
  }
}

/** A clock that went so much further than time did was set, or its machine slept. */
const JUMP_MS = 60_000
/** Timers run on the monotonic clock; so a clock that was set, and a machine that slept, are seen after this long. */
export const LONGEST_SLEEP_MS = 30_000
const DAY_MS = 86_400_000
