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
  /** What this process has handled before the wall clock jumped. If the time of these ticks comes again, they are not due. */
  #handled: HandledTicks[] = []
  /** Ticks up to here are handled, or were passed over and the store was asked if another process has begun them. */
  #searchedUntilMs: number = Number.NEGATIVE_INFINITY
  /** A tick that was passed over, and that another process has begun. If that run breaks off, this process takes it over. */
  #begunMs: number | undefined
  /** Ticks up to here came during a run, and do not count as late. */
  #excusedUntilMs: number = Number.NEGATIVE_INFINITY
  #lookedAt: Instant
  #learnedAt: Instant | undefined
  /** The ticks up to `#doneUntilMs` that this process has not handled: some process has to have run them. In order. */
  #gaps: TicksBetween[] = []
  /** Later than `#doneUntilMs`, ticks up to here were judged. */
  #judgedUntilMs: number = Number.NEGATIVE_INFINITY

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
    return this.#nextUnhandled(Math.max(this.nowMs, this.#doneUntilMs))
  }

  /** The tick to handle now, if there is one. */
  due(): number | undefined {
    const tick = this.#dueInTime(this.#readClock())
    const begun = this.#begunMs
    return begun === undefined || (tick !== undefined && tick < begun) ? tick : begun
  }

  /**
   * The last tick, if this process has passed it over: the tick came before the start, or this process was late for it. Another
   * process may have begun it, or one of those before it.
   */
  passedOver(): number | undefined {
    const nowMs = this.#readClock()
    const tick = this.#ticks.last(nowMs)
    if (tick === undefined || tick <= this.#searchedUntilMs || this.#handledWith(tick) !== undefined)
      return undefined
    const isFirst = this.#searchedUntilMs === Number.NEGATIVE_INFINITY
    return isFirst || this.#dueInTime(nowMs) === undefined ? tick : undefined
  }

  /** `begunMs`: of the ticks up to `untilMs`, the one that another process has begun and not settled. */
  searched(untilMs: number, begunMs: number | undefined): void {
    this.#searchedUntilMs = untilMs
    if (begunMs === undefined) return
    this.#begunMs = begunMs
    if (this.#settings.missed !== 'skip' || begunMs > this.#doneUntilMs) return
    // The ticks from then until the start came during that run. With `overlap: 'queue'` the last of them runs after it.
    this.#judgedUntilMs = Math.max(this.#judgedUntilMs, this.#doneUntilMs)
    this.#doneUntilMs = begunMs - 1
    this.#livedFromMs = Math.min(this.#livedFromMs, this.#doneUntilMs)
  }

  #dueInTime(nowMs: number): number | undefined {
    const { missed, windowMs } = this.#settings
    if (missed === 'all') {
      const tick = this.#nextUnhandled(Math.max(this.#doneUntilMs, nowMs - windowMs))
      return tick !== undefined && tick <= nowMs ? tick : undefined
    }
    const tick = this.#ticks.last(nowMs)
    if (tick === undefined || tick <= this.#doneUntilMs || this.#handledWith(tick) !== undefined)
      return undefined
    return this.isLate(tick) ? undefined : tick
  }

  /** How long to sleep until the next tick, or until the clock has to be checked for a jump. */
  get idleMs(): number {
    const next = this.next ?? Number.POSITIVE_INFINITY
    return Math.max(1, Math.min(next - this.nowMs, LONGEST_SLEEP_MS))
  }

  /** `isOpen`: the tick was left out here, and nothing tells that another process has run it. */
  attended(tickMs: number, { isOpen }: { readonly isOpen: boolean }): void {
    if (tickMs === this.#begunMs) this.#begunMs = undefined
    this.#searchedUntilMs = Math.max(this.#searchedUntilMs, tickMs)
    if (tickMs <= this.#doneUntilMs) return
    this.#addGap(Math.max(this.#doneUntilMs, this.#judgedUntilMs), isOpen ? tickMs + 1 : tickMs)
    this.#doneUntilMs = tickMs
    // The clock has jumped over it. If the clock is set back, the tick comes again.
    if (tickMs <= this.#livedFromMs) this.#addHandled({ afterMs: tickMs - 1, untilMs: tickMs })
  }

  /** Some process has to have run the ticks from here on, also those from before the start of this process. */
  doubt(sinceMs: number): void {
    if (sinceMs < this.#doneUntilMs) this.#gaps.unshift({ afterMs: sinceMs, beforeMs: this.#doneUntilMs + 1 })
    else this.#judgedUntilMs = Math.max(this.#judgedUntilMs, sinceMs)
  }

  /**
   * The earliest tick that this process has not handled, once no process can begin it any more, whatever its clock says. After the
   * death of a process another one may still begin it, but not once a process has told that the tick was missed.
   * `reliableMs`: up to which age of such a tick the store still tells if it ran. Older ones are passed over.
   */
  suspect(reliableMs: (tickMs: number) => number): number | undefined {
    const untilMs = this.nowMs - this.#settings.windowMs - SKEW_MS
    const latest = this.#ticks.last(untilMs)
    if (latest === undefined) return undefined
    const reliableFromMs = this.nowMs - reliableMs(latest)
    for (let gap = this.#gaps[0]; gap !== undefined; gap = this.#gaps[0]) {
      const tick = this.#nextUnhandled(Math.max(gap.afterMs, reliableFromMs))
      if (tick !== undefined && tick < gap.beforeMs) return tick <= untilMs ? tick : undefined
      this.#gaps.shift()
    }
    const tick = this.#nextUnhandled(Math.max(this.#doneUntilMs, this.#judgedUntilMs, reliableFromMs))
    return tick !== undefined && tick <= untilMs ? tick : undefined
  }

  judged(tickMs: number): void {
    const gap = this.#gaps[0]
    if (gap !== undefined) this.#gaps[0] = { ...gap, afterMs: tickMs }
    else this.#judgedUntilMs = Math.max(this.#judgedUntilMs, tickMs)
  }

  /** The tick that waited for the run which ends now, with `overlap: 'queue'`: ticks before it were left out. */
  get queuedMs(): number {
    if (this.#settings.missed === 'all') return Number.NEGATIVE_INFINITY
    return this.#ticks.last(this.nowMs) ?? Number.NEGATIVE_INFINITY
  }

  /** Whether the tick is too late, unless something excuses that. */
  isOld(tickMs: number): boolean {
    return this.nowMs - tickMs > this.#settings.windowMs
  }

  /** `waitedMs`: how long the tick may have waited for the lock of the job besides. */
  isLate(tickMs: number, waitedMs = 0): boolean {
    return this.nowMs - tickMs > this.#settings.windowMs + waitedMs && tickMs > this.#excusedUntilMs
  }

  /** Ticks until then waited for a run, so they are not late. With `missed: 'all'` they run anyway. */
  excuse(untilMs: number = this.nowMs): void {
    if (this.#settings.missed !== 'all') this.#excusedUntilMs = Math.min(untilMs, this.nowMs)
  }

  /** The ticks between these instants. `caredForMs`: up to which age some process could still want to run one, or take it for missed. */
  *between(fromMs: number, untilMs: number, caredForMs: number): Generator<number, void, void> {
    let tick = this.#ticks.next(Math.max(fromMs, this.nowMs - caredForMs))
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
    if (jumpedMs > JUMP_MS) this.#liveFrom(at.wallMs)
    // A clock that is set back to before `#livedFromMs` meets ticks that are not handled yet. Ticks after it are handled.
    if (at.wallMs < this.#livedFromMs) {
      this.#liveFrom(at.wallMs)
      this.#doneUntilMs = at.wallMs
      this.#searchedUntilMs = Math.min(this.#searchedUntilMs, at.wallMs)
      this.#gaps = []
      this.#judgedUntilMs = Number.NEGATIVE_INFINITY
    }
    return at.wallMs
  }

  #liveFrom(wallMs: number): void {
    const lived = { afterMs: this.#livedFromMs, untilMs: this.#doneUntilMs }
    this.#livedFromMs = wallMs
    if (lived.untilMs > lived.afterMs) this.#addHandled(lived)
  }

  #addHandled(handled: HandledTicks): void {
    this.#handled = [...this.#handled, handled].slice(-MOST_HANDLED)
  }

  #nextUnhandled(afterMs: number): number | undefined {
    for (let fromMs = afterMs; ; ) {
      const tick = this.#ticks.next(fromMs)
      const handled = tick === undefined ? undefined : this.#handledWith(tick)
      if (handled === undefined) return tick
      fromMs = handled.untilMs
    }
  }

  #handledWith(tickMs: number): HandledTicks | undefined {
    return this.#handled.find(({ afterMs, untilMs }) => tickMs > afterMs && tickMs <= untilMs)
  }

  #addGap(afterMs: number, beforeMs: number): void {
    const first = this.#ticks.next(afterMs)
    if (first === undefined || first >= beforeMs) return
    this.#gaps.push({ afterMs, beforeMs })
    // Nobody may listen, and so nobody judges.
    if (this.#gaps.length > MOST_GAPS) this.#gaps.shift()
  }
}

/** The ticks between these two instants, without them. */
interface TicksBetween {
  readonly afterMs: number
  readonly beforeMs: number
}

/** The ticks after one instant, up to the other. */
interface HandledTicks {
  readonly afterMs: number
  readonly untilMs: number
}

/** How far the clocks of the processes may differ. */
export const SKEW_MS = 300_000
const MOST_GAPS = 100
const MOST_HANDLED = 100

/** If the wall clock gains this much on the monotonic clock, it was set, or its machine slept. */
const JUMP_MS = 60_000
/** Timers run on the monotonic clock, so a jump of the wall clock is noticed after this long at the latest. */
export const LONGEST_SLEEP_MS = 30_000
export const DAY_MS = 86_400_000
