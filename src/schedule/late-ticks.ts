import type { Lease } from '../index.ts'
import { type Course, SKEW_MS } from './course.ts'
import type { Marks } from './marks.ts'
import type { JobSettings } from './options.ts'
import type { TickSettlement } from './tick-settlement.ts'

export interface LateTicksParts {
  readonly marks: Marks
  readonly settlement: TickSettlement
  readonly settings: JobSettings
}

/** Decides about the ticks that waited for the lock of the job while another process had it. */
export class LateTicks {
  readonly #parts: LateTicksParts

  constructor(parts: LateTicksParts) {
    this.#parts = parts
  }

  /**
   * Another process settled the tick during the wait. With `queue` the last tick of its run runs, also if that process is stopped.
   * A later tick may have waited for the store only, so it stays late.
   */
  async excuseAfter(tickMs: number, course: Course): Promise<void> {
    const { marks, settings } = this.#parts
    if (settings.overlap !== 'queue' || settings.missed === 'all') return
    const endedAgoMs = await marks.settledAgoMs(tickMs)
    const endedMs = course.nowMs - (endedAgoMs ?? Number.POSITIVE_INFINITY)
    course.excuse(Math.max(endedMs, tickMs + settings.minHoldMs))
  }

  /**
   * Whether an old tick that no process has begun runs all the same. Then no other process tells that it was missed. Call it under the
   * lock.
   */
  async claim(tickMs: number, course: Course, lease: Lease): Promise<boolean> {
    const { marks, settlement } = this.#parts
    const rememberMs = settlement.rememberMs(tickMs)
    // It may have run, and the store has forgotten that.
    if (course.nowMs - tickMs >= rememberMs - SKEW_MS) return false
    const { ttlMs, lockDelayMs = 0 } = lease.toJSON()
    const waitedMs = Math.min(ttlMs * DEATH_SPREAD + DEATH_MARGIN_MS + lockDelayMs, MOST_WAITED_MS)
    if (course.isLate(tickMs, waitedMs)) return false
    return marks.claimMissed(tickMs, rememberMs)
  }

  /** The claimed tick does not begin here, so another process may run it. */
  async unclaim(tickMs: number): Promise<void> {
    const { marks, settlement } = this.#parts
    await settlement.bestEffort(() => marks.forgetMissed(tickMs))
  }
}

/**
 * How long the lock stays taken after its holder has died: for the ttl, and on etcd for a third of it and 3 s more. A tick that waits
 * for such a lock is not late for that reason.
 */
const DEATH_SPREAD = 1.5
const DEATH_MARGIN_MS = 5000
/** The store remembers settled ticks for longer than this, also if the process that settled one has a fast clock. */
const MOST_WAITED_MS = SKEW_MS
