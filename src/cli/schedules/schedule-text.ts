import { escaped } from '../../base/text.ts'
import type { StoredSchedule, StoredScheduleDetails } from '../../jobs/schedules/index.ts'
import { table } from '../table.ts'
import { paintFor, roomOnScreen } from '../terminal.ts'
import { exactly, givenJson, plain } from '../text.ts'

export function scheduleLines(schedules: readonly StoredSchedule[]): readonly string[] {
  const columns = [
    { title: 'ID', narrow: 'cut' as const },
    { title: 'TENANT', narrow: 'drop' as const },
    { title: 'TIMES', narrow: 'cut' as const },
    { title: 'STATE' },
    { title: 'NEXT RUN' },
    { title: 'LAST RUN', narrow: 'drop' as const },
    { title: 'OUTCOME' },
  ]
  const rows = schedules.map((schedule) => [
    plain(schedule.id),
    plain(schedule.tenant ?? '–'),
    plain(timesOf(schedule)),
    schedule.state,
    schedule.nextAt?.toISOString() ?? '–',
    schedule.last?.scheduledAt.toISOString() ?? '–',
    schedule.last?.outcome ?? '–',
  ])
  return painted(table(columns, rows, roomOnScreen()))
}

export function schedulePage(schedule: StoredScheduleDetails, nextRuns: readonly Date[]): readonly string[] {
  const { last, missed, catchUpMs, jitterMs, maxRuns, runs, jobOptions } = schedule
  const facts: readonly (readonly [string, string | null])[] = [
    ['times', timesOf(schedule)],
    ['start', time(schedule.startAt)],
    ['stop', time(schedule.stopAt)],
    ['jitter', jitterMs === 0 ? null : exactly(jitterMs)],
    ['missed', catchUpMs === null ? missed : `${missed}, up to ${exactly(catchUpMs)} late`],
    ['overlap', schedule.overlap],
    ['tenant', schedule.tenant],
    ['job', schedule.job],
    ['options', Object.keys(jobOptions).length === 0 ? null : givenJson(jobOptions)],
    ['payload', givenJson(schedule.payload)],
    ['runs', maxRuns === null ? String(runs) : `${runs} of ${maxRuns}`],
    ['left out', `${schedule.missedTicks} missed, ${schedule.overlappedTicks} overlapped`],
    ['last run', last && `${time(last.scheduledAt)}, job ${last.jobId}: ${last.outcome}`],
    ['ended', last && time(last.endedAt)],
    ['added', time(schedule.createdAt)],
    ['changed', time(schedule.changedAt)],
    ...nextRuns.map((tick, place) => [place === 0 ? 'next runs' : '', time(tick)] as const),
  ]
  const known = facts.filter((fact): fact is readonly [string, string] => fact[1] !== null)
  const width = Math.max(...known.map(([name]) => name.length))
  return [
    ...painted([`${plain(schedule.id)}  ${schedule.state}`]),
    ...known.map(([name, value]) => `  ${name.padEnd(width)}  ${escaped(value)}`),
  ]
}

function timesOf({ cron, timezone, everyMs, afterEndMs }: StoredSchedule): string {
  if (cron !== null) return `${cron} ${timezone}`
  return everyMs === null ? `${exactly(afterEndMs ?? 0)} after the end` : `every ${exactly(everyMs)}`
}

function painted([titles = '', ...lines]: readonly string[]): readonly string[] {
  return [paintFor(process.stdout)('bold', titles), ...lines]
}

function time(instant: Date | null): string | null {
  return instant === null ? null : instant.toISOString()
}
