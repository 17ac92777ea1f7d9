import { type JobState, NOT_ENDED } from '../job.ts'
import type { ScheduleDefinition, ScheduledJobSettings } from './options.ts'

/**
 * - `active`: it fires.
 * - `paused`: it does not, until `resume`.
 * - `over`: no tick is to come, because of `stopAt` or `maxRuns`, or because its expression has no more.
 */
export type ScheduleState = 'active' | 'paused' | 'over'

/** In the order in which a schedule may go through them. */
export const SCHEDULE_STATES: readonly ScheduleState[] = ['active', 'paused', 'over']

/** A schedule as `find` and `list` show it. All times are from the database's clock. */
export interface StoredSchedule {
  /** The id under which it was added. */
  readonly id: string
  /** Whose schedule it is. `null`: nobody's. */
  readonly tenant: string | null
  /** The name of its jobs. */
  readonly job: string
  /** Where the schedule stands. */
  readonly state: ScheduleState
  /** The cron expression. `null`: it has none. */
  readonly cron: string | null
  /** The zone in which `cron` counts. `null`: without `cron`. */
  readonly timezone: string | null
  /** The distance of its ticks in milliseconds. `null`: it has none. */
  readonly everyMs: number | null
  /** The time from the end of a job to the next tick in milliseconds. `null`: it has none. */
  readonly afterEndMs: number | null
  /** No tick is before this. */
  readonly startAt: Date | null
  /** No tick is at this time or later. */
  readonly stopAt: Date | null
  /** The schedule is over after so many jobs. */
  readonly maxRuns: number | null
  /** The largest delay after a tick, in milliseconds. */
  readonly jitterMs: number
  /** What becomes of missed ticks. */
  readonly missed: 'skip' | 'once' | 'all'
  /** How late a missed tick may fire, in milliseconds. `null`: it has no bound, or `missed` is `skip`. */
  readonly catchUpMs: number | null
  /** What becomes of ticks while the last job has not ended. */
  readonly overlap: 'skip' | 'allow'
  /** The options of its jobs that were given. */
  readonly jobOptions: ScheduledJobSettings
  /** When the next job is enqueued. `null`: it is paused or over, or waits for the end of its last job. */
  readonly nextAt: Date | null
  /** The last job that it has made. `null`: none yet. */
  readonly last: LastRun | null
  /** How many jobs it has made. */
  readonly runs: number
  /** How many ticks were missed and not made up for. Of a cron expression, not more than about 1,000 of one outage are counted. */
  readonly missedTicks: number
  /** How many ticks were left out because the last job had not ended. */
  readonly overlappedTicks: number
  /** When it was added. */
  readonly createdAt: Date
  /** When it was last changed, paused or resumed. */
  readonly changedAt: Date
}

/** The last job of a schedule. */
export interface LastRun {
  /** The id of the job. */
  readonly jobId: string
  /** Its tick. */
  readonly scheduledAt: Date
  /** When it was enqueued. */
  readonly firedAt: Date
  /** The state of the job, also after the job is deleted. `gone`: it was deleted before a process that fires schedules saw its end. */
  readonly outcome: JobState | 'gone'
  /** When the job ended. `null`: it has not. */
  readonly endedAt: Date | null
}

/** A schedule with the payload of its jobs. */
export interface StoredScheduleDetails extends StoredSchedule {
  /** The payload of its jobs, without `schedule`. */
  readonly payload: unknown
}

/** A schedule as the functions of the database answer it. Instants are in ms since 1970. */
export interface RawSchedule {
  readonly id: string
  readonly tenant: string | null
  readonly job: string
  readonly definition: ScheduleDefinition
  readonly state: ScheduleState
  readonly version: number
  readonly anchorMs: number
  readonly tickMs: number | null
  readonly dueMs: number | null
  readonly runs: number
  readonly missed: number
  readonly overlapped: number
  readonly createdMs: number
  readonly changedMs: number
  readonly last: {
    readonly jobId: string
    readonly scheduledMs: number
    readonly firedMs: number
    readonly outcome: JobState | 'gone'
    readonly endedMs: number | null
  } | null
}

export function storedSchedule(raw: RawSchedule): StoredSchedule {
  const { id, tenant, job, state, definition, last } = raw
  const { startMs, stopMs, cron, timezone, everyMs, afterEndMs } = definition
  const { maxRuns, jitterMs, missed, catchUpMs, overlap, jobOptions } = definition
  return {
    ...{ id, tenant, job, state, cron, timezone, everyMs, afterEndMs },
    startAt: dateOf(startMs),
    stopAt: dateOf(stopMs),
    ...{ maxRuns, jitterMs, missed, catchUpMs: missed === 'skip' ? null : catchUpMs, overlap, jobOptions },
    nextAt: raw.tickMs === null ? null : dateOf(raw.dueMs),
    last:
      last === null
        ? null
        : {
            jobId: last.jobId,
            scheduledAt: new Date(last.scheduledMs),
            firedAt: new Date(last.firedMs),
            outcome: last.outcome,
            endedAt: dateOf(last.endedMs),
          },
    runs: raw.runs,
    missedTicks: raw.missed,
    overlappedTicks: raw.overlapped,
    createdAt: new Date(raw.createdMs),
    changedAt: new Date(raw.changedMs),
  }
}

/** Whether the last job has ended, as `DueSchedule` has it. */
export function lastJobOf({
  last,
}: RawSchedule): { readonly hasEnded: boolean; readonly endedMs: number | null } | null {
  if (last === null) return null
  const { outcome, endedMs } = last
  return { hasEnded: !NOT_ENDED.some((state) => state === outcome), endedMs }
}

function dateOf(ms: number | null): Date | null {
  return ms === null ? null : new Date(ms)
}
