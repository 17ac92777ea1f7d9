import { type Backoff, backoffMs } from '../base/backoff.ts'
import { type Instant, paused } from '../base/clock.ts'
import { LONGEST_MS } from '../base/duration.ts'
import type { Ticks } from '../base/ticks.ts'
import { TaskFailedError } from '../errors.ts'
import { isHoldfastError, type Lease } from '../index.ts'
import { type Course, LONGEST_SLEEP_MS, SKEW_MS } from './course.ts'
import type { Marks, TickResult } from './marks.ts'
import type { JobSettings, ScheduleSettings } from './options.ts'
import { scheduleTopics } from './schedule-events.ts'

export interface TickSettlementOptions {
  readonly name: string
  readonly marks: Marks
  readonly ticks: Ticks
  readonly settings: JobSettings
  readonly schedule: ScheduleSettings
  /** Aborts when the job is stopped. */
  readonly stopping: AbortSignal
}

/** Tells the store what became of the ticks of a job, so that no other process runs them again. */
export class TickSettlement {
  readonly #options: TickSettlementOptions

  constructor(options: TickSettlementOptions) {
    this.#options = options
  }

  /**
   * Settles the tick in the store, and resolves with whether the store has confirmed that. Otherwise the next holder would run
   * the tick once more. So it repeats the request while the lease holds. It tries at least once, even if `maxRun` has ended
   * the lease: the store keeps the key until it is released.
   */
  async settle(lease: Lease, tickMs: number, result: TickResult): Promise<boolean> {
    const { clock, onError } = this.#options.schedule
    for (let failures = 1; ; failures += 1) {
      try {
        await this.#options.marks.settle(tickMs, result, this.rememberMs(tickMs))
        return true
      } catch (error) {
        onError(error, { name: this.#options.name, during: 'store' })
        const isAway =
          isHoldfastError(error, 'store-unavailable') || isHoldfastError(error, 'acquire-timeout')
        if (!isAway || lease.remainingMs === 0 || this.#options.stopping.aborted) return false
        await paused(
          clock,
          backoffMs(ASKING_AGAIN, failures),
          AbortSignal.any([this.#options.stopping, lease.signal]),
        )
      }
    }
  }

  /** Settles the tick as failed. Otherwise work that crashes its process would crash every process of the fleet in turn. */
  async fail(tickMs: number, lease: Lease, attempts: number): Promise<void> {
    const error = new TaskFailedError(
      `${attempts === 1 ? 'A run' : `${attempts} runs`} of ${JSON.stringify(this.#options.name)} for ${new Date(tickMs).toISOString()} broke off: the process died, was stopped, or lost its lease. The tick has failed.`,
      { key: this.#options.marks.lock },
    )
    if (await this.settle(lease, tickMs, 'failed'))
      await this.bestEffort(() => this.#options.marks.forgetBegins(tickMs, attempts))
    this.#options.schedule.onError(error, { name: this.#options.name, during: 'run' })
  }

  /**
   * Settles the ticks that came during the run as skipped. Only this process knows which ones overlapped, so it records that
   * while the others still wait for the lock.
   */
  async skipOverlapped(course: Course, started: Instant, lease: Lease): Promise<void> {
    const { overlap, minHoldMs } = this.#options.settings
    const { clock } = this.#options.schedule
    if (overlap === 'queue') course.excuse()
    // Not until now by the wall clock: if that was set forward meanwhile, these ticks are still to come for the others.
    const endMs = started.wallMs + clock.monotonicMs() - started.monotonicMs
    const untilMs =
      overlap === 'queue' ? Math.min(course.queuedMs - 1, endMs) : Math.max(endMs, started.wallMs + minHoldMs)
    await this.bestEffort(async () => {
      const ticks = [...course.between(started.wallMs, untilMs, this.rememberMs(untilMs))]
      for (let at = 0; at < ticks.length; at += AT_ONCE) {
        if (lease.remainingMs === 0) return
        await Promise.all(ticks.slice(at, at + AT_ONCE).map((tick) => this.#skip(tick)))
      }
    })
  }

  async #skip(tickMs: number): Promise<void> {
    const { name, marks, schedule } = this.#options
    // During a `minHold` the tick may be still to come.
    const inMs = Math.max(0, tickMs - schedule.clock.wallMs())
    await marks.settle(tickMs, 'skipped', Math.min(this.rememberMs(tickMs) + inMs, LONGEST_MS))
    if (scheduleTopics.overlapped.isHeard)
      scheduleTopics.overlapped.tell({ name, scheduledAt: new Date(tickMs) })
  }

  /**
   * Long enough that no process, by its own clock, still wants to run the tick, or can take it for missed. At least for three
   * ticks, so that after an outage some process still knows which ones have run.
   */
  rememberMs(tickMs: number): number {
    const { ticks, settings } = this.#options
    let laterMs = tickMs
    for (let count = 0; count < REMEMBERED_TICKS; count += 1) laterMs = ticks.next(laterMs) ?? laterMs
    return Math.min(laterMs - tickMs + settings.windowMs + 2 * SKEW_MS + JUDGING_MS, LONGEST_MS)
  }

  /** Runs requests that nothing depends on. If they fail, `onError` is called. */
  async bestEffort(requests: () => Promise<void>): Promise<void> {
    try {
      await requests()
    } catch (error) {
      this.#options.schedule.onError(error, { name: this.#options.name, during: 'store' })
    }
  }
}

/** Without jitter, because all processes ask at the same moment anyway, at each tick. */
export const ASKING_AGAIN: Backoff = { firstMs: 1000, longestMs: LONGEST_SLEEP_MS, jitter: 0 }

/** A run of minutes skips hundreds of ticks, if there is one each second. */
const AT_ONCE = 16
/** The marks of this many ticks are there at any time. */
const REMEMBERED_TICKS = 3
/** How long after the first moment at which a tick counts as missed the processes have looked at it. */
const JUDGING_MS = 60_000
