import { expected } from '../../base/arguments.ts'
import { InvalidArgumentError } from '../../errors.ts'
import { parseNewJob } from '../new-job.ts'
import { parseText } from '../options.ts'
import { type DueSchedule, firstLook } from './advance.ts'
import { MOST_PAYLOAD_BYTES } from './firing.ts'
import type { NewSchedule } from './job-schedules.ts'
import { checkSettings, haveSameTimes, parseSettings, type ScheduleDefinition } from './options.ts'
import { type ScheduleLook, type ScheduleRow, type WrittenLook, written } from './schedule-tables.ts'
import { lastJobOf, type RawSchedule } from './stored-schedule.ts'
import { anchorOf, dueMsOf, type Timing } from './timing.ts'

/** What a schedule is to be. */
export interface SchedulePlan {
  readonly tenant: string | null
  readonly job: string
  /** As JSON. */
  readonly payload: string
  readonly definition: ScheduleDefinition
}

export function planOf(
  schedule: NewSchedule,
  { maxPayloadBytes }: { readonly maxPayloadBytes: number },
): SchedulePlan {
  checkSettings(schedule, ['job', 'payload'])
  const { job, payload = {}, tenant, ...settings } = schedule
  const definition = parseSettings(settings)
  const entry = parseNewJob({ name: job, payload, ...definition.jobOptions }, 0, {
    maxPayloadBytes: Math.min(maxPayloadBytes, MOST_PAYLOAD_BYTES),
  })
  if (!entry.payload.startsWith('{')) throw expected('payload', 'an object', payload)
  if (Object.hasOwn(JSON.parse(entry.payload) as object, 'schedule'))
    throw expected('payload', 'an object without `schedule`, which each job gets', payload)
  return {
    tenant: tenant === undefined ? null : parseText('tenant', tenant),
    ...{ job: entry.name, payload: entry.payload, definition },
  }
}

/** Whether the schedule is stored as it is to be. */
export function isStored(
  { tenant, job, payload, definition }: SchedulePlan,
  { schedule: stored, payload: storedPayload }: ScheduleLook,
): boolean {
  return (
    stored !== null &&
    stored.tenant === tenant &&
    stored.job === job &&
    JSON.stringify(storedPayload) === payload &&
    JSON.stringify(stored.definition) === JSON.stringify(definition)
  )
}

/** @throws {InvalidArgumentError} when new times have no tick from now on. */
export function rowOf(
  id: string,
  { plan, look: { schedule: stored, nowMs } }: { readonly plan: SchedulePlan; readonly look: ScheduleLook },
): ScheduleRow {
  const { definition } = plan
  if (stored !== null && haveSameTimes(stored.definition, definition)) {
    const { anchorMs } = stored
    return { id, ...plan, anchorMs, ...keptLook(stored, { timing: { id, definition, anchorMs }, nowMs }) }
  }
  const anchorMs = anchorOf(definition, nowMs)
  const lastJob = stored === null ? null : lastJobOf(stored)
  const look = firstLook({ id, definition, anchorMs, lastJob }, nowMs)
  if (look === null) {
    throw new InvalidArgumentError(
      'Expected the schedule to have a tick from now on, got none: look at `cron`, `startAt` and `stopAt`.',
    )
  }
  const isOver = hasRunEnough(definition, stored)
  return { id, ...plan, anchorMs, ...(stored?.state === 'paused' ? PAUSED : written(isOver ? null : look)) }
}

/** The look of a schedule that goes on after a pause. */
export function resumedLook(stored: RawSchedule, nowMs: number): WrittenLook {
  if (hasRunEnough(stored.definition, stored)) return written(null)
  return written(firstLook({ ...stored, lastJob: lastJobOf(stored) }, nowMs))
}

/** The look of a schedule whose times stay: its next tick stays, too. */
function keptLook(
  stored: RawSchedule,
  { timing, nowMs }: { readonly timing: Timing; readonly nowMs: number },
): WrittenLook {
  const { state, tickMs, dueMs } = stored
  if (state === 'paused') return PAUSED
  if (hasRunEnough(timing.definition, stored)) return written(null)
  // It was over because of `maxRuns`, perhaps, and has more runs now.
  if (state === 'over') return written(firstLook({ ...timing, lastJob: lastJobOf(stored) }, nowMs))
  if (tickMs === null || dueMs === null) return { state, tickMs, dueMs }
  // With a shorter jitter its time may have passed. But nobody could fire it before, so it is not late.
  const earliestMs = dueMs > nowMs ? nowMs : Number.NEGATIVE_INFINITY
  return { state, tickMs, dueMs: Math.max(earliestMs, dueMsOf(timing, tickMs)) }
}

function hasRunEnough({ maxRuns }: ScheduleDefinition, stored: Pick<DueSchedule, 'runs'> | null): boolean {
  return maxRuns !== null && stored !== null && stored.runs >= maxRuns
}

const PAUSED: WrittenLook = { state: 'paused', tickMs: null, dueMs: null }
