import { type Course, DAY_MS, SKEW_MS } from './course.ts'
import type { Marks } from './marks.ts'
import { scheduleTopics } from './schedule-events.ts'
import type { TickSettlement } from './tick-settlement.ts'

export interface MissedTicksParts {
  readonly name: string
  readonly expression: string
  readonly timezone: string
  readonly course: Course
  readonly marks: Marks
  readonly settlement: TickSettlement
}

/**
 * Tells of ticks that no process has run. It asks the store only while somebody listens. It changes nothing about which ticks run:
 * a process whose clock is wrong may tell nonsense, but it must not take ticks from the others.
 */
export class MissedTicks {
  readonly #parts: MissedTicksParts
  /** By the wall clock of this process. */
  #lookedBackAtMs: number | undefined

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
  }

  /** Judges one tick that this process has not handled. Resolves with `false` if there is none to judge now. */
  async judgeOne(): Promise<boolean> {
    if (!scheduleTopics.missed.isHeard) return false
    const { name, course, marks, settlement } = this.#parts
    const tick = course.suspect((tickMs) => this.#reliableMs(tickMs))
    if (tick === undefined) return false
    if (!(await marks.isSettled(tick))) {
      // A run that may have begun before the tick settles the tick when it ends, and then lets go of the job.
      const running = await marks.running()
      if (running !== undefined && running.sinceMs + SKEW_MS >= course.nowMs - tick) return false
      const hasRun = (await marks.isSettled(tick)) || (await marks.hasBegun(tick))
      if (!hasRun && (await marks.claimMissed(tick, settlement.rememberMs(tick))))
        scheduleTopics.missed.tell({ name, scheduledAt: new Date(tick) })
    }
    course.judged(tick)
    return true
  }

  /** A process with a fast clock may have settled the tick early, so its mark may go early. */
  #reliableMs(tickMs: number): number {
    return this.#parts.settlement.rememberMs(tickMs) - SKEW_MS
  }
}
