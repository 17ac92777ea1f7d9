import { paused } from '../base/clock.ts'
import type { Ticks } from '../base/ticks.ts'
import { type Clock, isHoldfastError } from '../index.ts'
import { type Course, DAY_MS, SKEW_MS } from './course.ts'
import type { Marks } from './marks.ts'
import { scheduleTopics } from './schedule-events.ts'
import type { TickSettlement } from './tick-settlement.ts'

export interface MissedTicksParts {
  readonly name: string
  readonly expression: string
  readonly timezone: string
  readonly ticks: Ticks
  readonly clock: Clock
  readonly course: Course
  readonly marks: Marks
  readonly settlement: TickSettlement
}

/**
 * Tells of ticks that no process has run. It asks the store only while somebody listens. It changes nothing about which ticks run:
 * a process whose clock is wrong may tell nonsense, but it must not take ticks from the others.
 *
 * The store remembers for some ticks only whether they have run. Of what was before, it knows when a process was last there. So after
 * a long outage the ticks from then on were missed, if the first one that the store still knows of has not run either.
 */
export class MissedTicks {
  readonly #parts: MissedTicksParts
  /** By the wall clock of this process. */
  #lookedBackAtMs: number | undefined
  #notedAtMs: number | undefined
  /** An outage that is longer than what the store remembers. Its ticks are told together with the first one that it remembers. */
  #outage: Outage | undefined

  constructor(parts: MissedTicksParts) {
    this.#parts = parts
  }

  /** Each day, because the store forgets a job that nobody asks for. */
  get shouldLookBack(): boolean {
    if (!scheduleTopics.missed.isHeard) return false
    const at = this.#lookedBackAtMs
    return at === undefined || Math.abs(this.#parts.course.nowMs - at) >= DAY_MS
  }

  /** Finds out if there may be missed ticks from before the start of this process. */
  async lookBack(): Promise<void> {
    const { course, marks, settlement, expression, timezone } = this.#parts
    const isFirst = this.#lookedBackAtMs === undefined
    this.#lookedBackAtMs = course.nowMs
    await settlement.bestEffort(async () => {
      const knownForMs = await marks.knownForMs(expression, timezone)
      // A new job, or one with a new expression, has missed nothing.
      if (knownForMs === undefined || !isFirst) return
      course.doubt(course.nowMs - knownForMs)
    })
    await this.notePresence()
  }

  /** Tells the store that a process is there, now and then. Finds out before if no process was for long. */
  async notePresence(): Promise<void> {
    if (!scheduleTopics.missed.isHeard) return
    const { course, marks, expression, timezone } = this.#parts
    const nowMs = course.nowMs
    const before = this.#notedAtMs
    if (before !== undefined && Math.abs(nowMs - before) < NOTED_EACH_MS) return
    await this.#unlessStopped(async () => {
      if (before === undefined || nowMs - before > this.#reliableMs(nowMs)) {
        const agoMs = await marks.presentAgoMs(expression, timezone)
        if (agoMs !== undefined) this.#suspectOutage(nowMs, Math.max(nowMs - agoMs, before ?? 0))
      }
      await marks.notePresence(expression, timezone)
      this.#notedAtMs = nowMs
    })
  }

  /** Notes the presence also while a run takes long, here or elsewhere: the ticks of that time overlap, and are not missed. */
  async presentDuring<T>(attending: Promise<T>): Promise<T> {
    if (!scheduleTopics.missed.isHeard) return attending
    const over = new AbortController()
    void this.#keepNoting(over.signal)
    try {
      return await attending
    } finally {
      over.abort()
    }
  }

  /** Judges the ticks that this process has not handled. Resolves with the time until there may be more to judge. */
  async judge(): Promise<number> {
    const told: MissedRange = { count: 0, firstMs: 0, lastMs: 0, isAtLeast: false }
    if (!scheduleTopics.missed.isHeard) return Number.POSITIVE_INFINITY
    try {
      for (let judged = 0; judged < MOST_JUDGED; judged += 1) {
        const fate = await this.#judgeOne(told)
        if (fate === 'none') return Number.POSITIVE_INFINITY
        // Another process is at it. So one process tells of all of them, unless it dies.
        if (fate === 'told by another') return LEFT_TO_OTHERS_MS
        if (fate === 'has run') this.#tell(told)
      }
      return 0
    } finally {
      this.#tell(told)
    }
  }

  async #keepNoting(over: AbortSignal): Promise<void> {
    for (;;) {
      await paused(this.#parts.clock, NOTED_IN_RUNS_EACH_MS, over)
      if (over.aborted) return
      await this.notePresence()
    }
  }

  #unlessStopped(requests: () => Promise<void>): Promise<void> {
    return this.#parts.settlement.bestEffort(async () => {
      try {
        await requests()
      } catch (error) {
        if (!isHoldfastError(error, 'closed')) throw error
      }
    })
  }

  async #judgeOne(told: MissedRange): Promise<Fate> {
    const { course, marks, settlement } = this.#parts
    const tick = course.suspect((tickMs) => this.#reliableMs(tickMs))
    if (tick === undefined) return 'none'
    const outage = this.#outage
    let fate: Fate = 'has run'
    if (!(await marks.isSettled(tick))) {
      // A run that may have begun before the tick settles the tick when it ends, and then lets go of the job.
      const running = await marks.running()
      if (running !== undefined && running.sinceMs + SKEW_MS >= course.nowMs - tick) return 'none'
      const hasRun = (await marks.isSettled(tick)) || (await marks.hasBegun(tick))
      if (!hasRun) {
        if (outage !== undefined && tick <= outage.noticedAtMs) await this.#addOutage(told, outage, tick)
        const isMine = await marks.claimMissed(tick, settlement.rememberMs(tick))
        fate = isMine ? 'missed' : 'told by another'
        if (isMine) {
          this.#tellIfApart(told, tick)
          add(told, tick)
        }
      }
    }
    this.#outage = undefined
    course.judged(tick)
    return fate
  }

  /** `seenAtMs`: when a process was last there. */
  #suspectOutage(nowMs: number, seenAtMs: number): void {
    const { ticks } = this.#parts
    const last = ticks.last(seenAtMs)
    const next = ticks.next(seenAtMs)
    if (next === undefined) return
    // By the clock of that process, it may have handled the tick that was nearest.
    const halfMs = last === undefined ? 0 : (next - last) / 2
    const firstMs = ticks.next(seenAtMs + Math.max(halfMs, NOTED_EACH_MS))
    if (firstMs === undefined || firstMs >= nowMs - this.#reliableMs(nowMs)) return
    this.#outage = { firstMs, noticedAtMs: nowMs }
  }

  /** Adds the ticks before this one, if no other process tells of them. */
  async #addOutage(told: MissedRange, { firstMs }: Outage, beforeMs: number): Promise<void> {
    const { ticks, clock, marks, settlement } = this.#parts
    if (firstMs >= beforeMs || !(await marks.claimMissed(firstMs, settlement.rememberMs(firstMs)))) return
    this.#tellIfApart(told, firstMs)
    for (
      let tick: number | undefined = firstMs;
      tick !== undefined && tick < beforeMs;
      tick = ticks.next(tick)
    ) {
      add(told, tick)
      if (told.count >= MOST_COUNTED) {
        const last = ticks.last(beforeMs - 1) ?? tick
        told.isAtLeast = last > tick
        told.lastMs = last
        return
      }
      // To find a tick takes some tenths of a millisecond.
      if (told.count % COUNTED_AT_ONCE === 0) await paused(clock, 1)
    }
  }

  /** An event is of ticks that were missed one after the other. This process may have run those in between. */
  #tellIfApart(told: MissedRange, tickMs: number): void {
    if (told.count > 0 && this.#parts.ticks.next(told.lastMs) !== tickMs) this.#tell(told)
  }

  #tell(told: MissedRange): void {
    if (told.count === 0) return
    const { count, firstMs, lastMs, isAtLeast } = told
    told.count = 0
    const times = { firstAt: new Date(firstMs), lastAt: new Date(lastMs) }
    scheduleTopics.missed.tell({ name: this.#parts.name, count, ...times, isAtLeast })
  }

  /** A process with a fast clock may have settled the tick early, so its mark may go early. */
  #reliableMs(tickMs: number): number {
    return this.#parts.settlement.rememberMs(tickMs) - SKEW_MS
  }
}

/** What became of a tick that this process has not handled. `none`: there is none to judge now. */
type Fate = 'missed' | 'has run' | 'told by another' | 'none'

interface Outage {
  /** The first tick that no process has handled. */
  readonly firstMs: number
  /** By the wall clock of this process. */
  readonly noticedAtMs: number
}

/** Ticks that were missed one after the other. */
interface MissedRange {
  count: number
  firstMs: number
  lastMs: number
  isAtLeast: boolean
}

function add(range: MissedRange, tickMs: number): void {
  if (range.count === 0) {
    range.firstMs = tickMs
    range.isAtLeast = false
  }
  range.count += 1
  range.lastMs = tickMs
}

const NOTED_EACH_MS = 30_000
const NOTED_IN_RUNS_EACH_MS = 60_000
const LEFT_TO_OTHERS_MS = 5000
/** A tick that is due does not wait for more than this many. */
const MOST_JUDGED = 100
const MOST_COUNTED = 1000
const COUNTED_AT_ONCE = 50
