import { unlessAborted } from '../base/unless-aborted.ts'
import type { Lease } from '../index.ts'
import { type Course, SKEW_MS } from './course.ts'
import type { Marks } from './marks.ts'
import type { JobSettings } from './options.ts'
import type { TickSettlement } from './tick-settlement.ts'

export interface LateTicksParts {
  readonly marks: Marks
  readonly settlement: TickSettlement
  readonly settings: JobSettings
  /** Aborts when the job is stopped. */
  readonly stopping: AbortSignal
}

/** A tick that waited for the lock of the job, and is late for that reason. */
interface WaitedTick {
  readonly tickMs: number
  readonly course: Course
  /** What {@link LateTicks.heldUntilMs} said before the wait. */
  readonly heldUntilMs: number
}

/** Decides about the ticks that waited for the lock of the job while another process had it. */
export class LateTicks {
  readonly #parts: LateTicksParts

  constructor(parts: LateTicksParts) {
    this.#parts = parts
  }

  /**
   * The end of the `minHold` of the run that goes on, with `overlap: 'queue'`. The process of that run may be stopped before, and then
   * no mark tells which ticks waited for it. In the past if there is none.
   */
  async heldUntilMs(course: Course): Promise<number> {
    const { marks, settings, stopping } = this.#parts
    if (!this.#isQueue || settings.minHoldMs === 0) return Number.NEGATIVE_INFINITY
    const running = await unlessAborted(marks.running(), stopping)
    if (running === undefined) return Number.NEGATIVE_INFINITY
    return course.nowMs - running.sinceMs + settings.minHoldMs
  }

  /**
   * Another process settled the tick during the wait. With `queue` the last tick of its run runs, also if that process is stopped.
   * A later tick may have waited for the store only, so it stays late.
   */
  async excuseAfter({ tickMs, course, heldUntilMs }: WaitedTick): Promise<void> {
    const { marks, settings } = this.#parts
    if (!this.#isQueue) return
    const endedAgoMs = await marks.settledAgoMs(tickMs)
    const endedMs = course.nowMs - (endedAgoMs ?? Number.POSITIVE_INFINITY)
    course.excuse(Math.max(endedMs, tickMs + settings.minHoldMs, heldUntilMs))
  }

  /** What becomes of a late tick that no process has begun. Call it under the lock. */
  async fateOf({ tickMs, course, heldUntilMs }: WaitedTick, lease: Lease): Promise<LateFate> {
    const { marks, settlement } = this.#parts
    if (this.#isQueue && tickMs <= heldUntilMs) {
      course.excuse(heldUntilMs)
      const lastMs = course.queuedMs
      if (lastMs > tickMs) {
        await settlement.skip(
          course,
          { fromMs: tickMs - 1, untilMs: Math.min(lastMs - 1, heldUntilMs) },
          lease,
        )
        return 'skipped'
      }
    }
    const { ttlMs, lockDelayMs = 0 } = lease.toJSON()
    const waitedMs = Math.min(ttlMs * DEATH_SPREAD + DEATH_MARGIN_MS + lockDelayMs, MOST_WAITED_MS)
    if (course.isLate(tickMs, waitedMs)) return 'left out'
    // Unless a process has told that the tick was missed.
    return (await marks.claimMissed(tickMs, settlement.rememberMs(tickMs))) ? 'runs' : 'left out'
  }

  get #isQueue(): boolean {
    const { overlap, missed } = this.#parts.settings
    return overlap === 'queue' && missed !== 'all'
  }
}

/** `skipped`: a later tick waited for the same run, and runs instead. */
export type LateFate = 'runs' | 'skipped' | 'left out'

/**
 * How long the lock stays taken after its holder has died: for the ttl, and on etcd for a third of it and 3 s more. A tick that waits
 * for such a lock is not late for that reason.
 */
const DEATH_SPREAD = 1.5
const DEATH_MARGIN_MS = 5000
/** The store remembers settled ticks for longer than this, also if the process that settled one has a fast clock. */
const MOST_WAITED_MS = SKEW_MS
