import { checkOptions, expected, parseCount } from '../../base/arguments.ts'
import { type Duration, HOLD_RANGE, parseDuration, WAIT_RANGE } from '../../base/duration.ts'
import { checkTimezone, Ticks } from '../../base/ticks.ts'
import type { JobOptions } from '../new-job.ts'
import { parseDate } from '../options.ts'

/** When a schedule fires: one of `cron`, `every` and `afterEnd`. */
export interface ScheduleTimes {
  /** A cron expression of 5, 6 (seconds first) or 7 (years last) fields, or `@daily` and its like. */
  readonly cron?: string | undefined
  /** The IANA time zone in which `cron` counts. Default: UTC. */
  readonly timezone?: string | undefined
  /** At equal distances, from 1 s to 24 days: milliseconds, or `'90s'`. The first tick is at `startAt`, or else one distance from now. */
  readonly every?: Duration | undefined
  /**
   * This long after the end of the last job, from 1 s to 24 days. The job ends when it is completed, dead, cancelled or superseded. The
   * first tick is at `startAt`, or else this long from now.
   */
  readonly afterEnd?: Duration | undefined
  /** No tick is before this. Default: no bound. */
  readonly startAt?: Date | undefined
  /** No tick is at this time or later. Default: no bound. */
  readonly stopAt?: Date | undefined
}

/** Options of a job that a schedule may set. */
export type ScheduledJobSettings = Pick<
  JobOptions,
  'priority' | 'group' | 'groupLimit' | 'maxAttempts' | 'backoff' | 'maxBackoff'
>

/** When a schedule fires, and which job that makes. */
export interface StoredScheduleOptions extends ScheduleTimes, ScheduledJobSettings {
  /** Whose schedule it is, for `list` and for changes of all schedules of a tenant. Up to 500 bytes. Default: nobody's. */
  readonly tenant?: string | undefined
  /** The schedule is over after so many jobs. Default: no bound. */
  readonly maxRuns?: number | undefined
  /**
   * Each job is enqueued up to this long after its tick, so that many schedules of one time do not fire at once; but always before the
   * next tick. A tick of a schedule always has the same delay. Up to 24 h. Default: 0.
   */
  readonly jitter?: Duration | undefined
  /**
   * What becomes of missed ticks: for more than 30 s no process has fired them. Not with `afterEnd`, which fires late. Default: `once`.
   *
   * - `skip`: they are left out.
   * - `once`: the last one fires, unless a tick of the last 30 s does.
   * - `all`: each of them fires, in order.
   */
  readonly missed?: 'skip' | 'once' | 'all' | undefined
  /** How late a missed tick may fire, with `once` and `all`; up to 24 days, or `Infinity`. Default: `'24h'`. */
  readonly catchUp?: Duration | undefined
  /**
   * What becomes of a tick while the last job of the schedule has not ended. Default: `skip`, and `allow` with `missed: 'all'`.
   *
   * - `skip`: it is left out.
   * - `allow`: it becomes a job. With a `group`, these jobs run one after the other.
   */
  readonly overlap?: 'skip' | 'allow' | undefined
}

/** What the table keeps of the settings, as JSON. Equal settings have equal texts. */
export interface ScheduleDefinition {
  readonly cron: string | null
  readonly timezone: string | null
  readonly everyMs: number | null
  readonly afterEndMs: number | null
  readonly startMs: number | null
  readonly stopMs: number | null
  readonly maxRuns: number | null
  readonly jitterMs: number
  readonly missed: 'skip' | 'once' | 'all'
  /** Null: no bound. */
  readonly catchUpMs: number | null
  readonly overlap: 'skip' | 'allow'
  readonly jobOptions: ScheduledJobSettings
}

const TIMES = ['cron', 'timezone', 'every', 'afterEnd', 'startAt', 'stopAt'] as const
const JOB_SETTINGS = ['priority', 'group', 'groupLimit', 'maxAttempts', 'backoff', 'maxBackoff'] as const
const SETTINGS = [
  ...TIMES,
  ...JOB_SETTINGS,
  ...(['tenant', 'maxRuns', 'jitter', 'missed', 'catchUp', 'overlap'] as const),
]

const MISSED = ['skip', 'once', 'all'] as const
const OVERLAP = ['skip', 'allow'] as const
const DEFINED: ReadonlySet<string> = new Set<keyof ScheduleDefinition>([
  ...(['cron', 'timezone', 'everyMs', 'afterEndMs', 'startMs', 'stopMs'] as const),
  ...(['maxRuns', 'jitterMs', 'missed', 'catchUpMs', 'overlap', 'jobOptions'] as const),
])

type Times = Pick<ScheduleDefinition, 'cron' | 'timezone' | 'everyMs' | 'afterEndMs' | 'startMs' | 'stopMs'>

/** Checks when a schedule fires. */
export function parseTimes(times: ScheduleTimes): ScheduleDefinition {
  checkOptions(times, TIMES, 'cron, every or afterEnd')
  return parseSettings(times)
}

export function checkSettings(settings: unknown, more: readonly string[]): void {
  checkOptions(settings, [...SETTINGS, ...more])
}

/** The settings of the jobs themselves are checked with their payload. */
export function parseSettings(settings: StoredScheduleOptions): ScheduleDefinition {
  const times = timesOf(settings)
  const { maxRuns, jitter = 0 } = settings
  return {
    ...times,
    maxRuns: maxRuns === undefined ? null : parseCount('maxRuns', maxRuns, { least: 1, most: 1e15 }),
    jitterMs: parseDuration('jitter', jitter, { ...HOLD_RANGE, mostMs: DAY_MS }),
    ...policyOf(settings, times.afterEndMs !== null),
    jobOptions: Object.fromEntries(
      JOB_SETTINGS.flatMap((name) => (settings[name] === undefined ? [] : [[name, settings[name]]])),
    ),
  }
}

/**
 * A newer version may have stored a setting that this one does not know, and would leave out.
 *
 * @throws {InvalidArgumentError}
 */
export function checkDefinition(definition: ScheduleDefinition): void {
  checkOptions(Object.fromEntries(Object.entries(definition).filter(([, value]) => value !== null)), DEFINED)
  checkOptions(definition.jobOptions, JOB_SETTINGS)
  oneOf('missed', definition.missed, MISSED)
  oneOf('overlap', definition.overlap, OVERLAP)
}

/** The settings that make this definition. */
export function settingsOf(definition: ScheduleDefinition): StoredScheduleOptions {
  const { cron, timezone, everyMs, afterEndMs, startMs, stopMs } = definition
  const { maxRuns, jitterMs, missed, catchUpMs, overlap, jobOptions } = definition
  return {
    ...{ cron: cron ?? undefined, timezone: timezone ?? undefined },
    ...{ every: everyMs ?? undefined, afterEnd: afterEndMs ?? undefined },
    startAt: startMs === null ? undefined : new Date(startMs),
    stopAt: stopMs === null ? undefined : new Date(stopMs),
    ...{ maxRuns: maxRuns ?? undefined, jitter: jitterMs },
    ...(afterEndMs === null ? { missed, overlap } : {}),
    ...(afterEndMs === null && missed !== 'skip' ? { catchUp: catchUpMs ?? Number.POSITIVE_INFINITY } : {}),
    ...jobOptions,
  }
}

/** The settings after a change. A change of one kind of times replaces the other kinds. A change of `missed` sets its policy anew. */
export function changedSettings(
  stored: StoredScheduleOptions,
  change: { readonly [Setting in keyof StoredScheduleOptions]?: StoredScheduleOptions[Setting] | null },
): StoredScheduleOptions {
  const given = Object.entries(change).filter(([, value]) => value !== undefined)
  const kind = KINDS.find((name) => change[name] !== undefined && change[name] !== null)
  const isPolicyNew = (change.missed !== undefined && change.missed !== null) || kind === 'afterEnd'
  const gone: readonly string[] = [
    ...(kind === undefined ? [] : KINDS),
    ...(kind === undefined || kind === 'cron' ? [] : ['timezone']),
    ...(isPolicyNew ? ['missed', 'catchUp', 'overlap'] : []),
  ]
  const kept = Object.entries(stored).filter(([name]) => !gone.includes(name))
  const changed = new Map([...kept, ...given].map(([name, value]) => [name, value ?? undefined]))
  return Object.fromEntries(changed) as StoredScheduleOptions
}

/** Whether two definitions have the same ticks. */
export function haveSameTimes(one: ScheduleDefinition, other: ScheduleDefinition): boolean {
  return (['cron', 'timezone', 'everyMs', 'afterEndMs', 'startMs', 'stopMs'] as const).every(
    (name) => one[name] === other[name],
  )
}

const KINDS = ['cron', 'every', 'afterEnd'] as const

function timesOf({ cron, timezone, every, afterEnd, startAt, stopAt }: ScheduleTimes): Times {
  const given = [cron, every, afterEnd].filter((value) => value !== undefined)
  if (given.length !== 1)
    throw expected(
      'cron',
      'given alone, or else `every` or `afterEnd`',
      given.length === 0 ? undefined : (cron ?? every),
    )
  if (timezone !== undefined && cron === undefined)
    throw expected('timezone', 'left out without `cron`: other times count in real time', timezone)
  if (cron !== undefined) {
    checkTimezone(timezone ?? 'UTC')
    new Ticks(cron, timezone ?? 'UTC', 'cron')
  }
  const startMs = startAt === undefined ? null : parseDate('startAt', startAt).getTime()
  const stopMs = stopAt === undefined ? null : parseDate('stopAt', stopAt).getTime()
  if (startMs !== null && stopMs !== null && stopMs <= startMs)
    throw expected('stopAt', 'later than `startAt`', stopAt?.toISOString())
  return {
    cron: cron ?? null,
    timezone: cron === undefined ? null : (timezone ?? 'UTC'),
    everyMs: every === undefined ? null : parseDuration('every', every, DISTANCE_RANGE),
    afterEndMs: afterEnd === undefined ? null : parseDuration('afterEnd', afterEnd, DISTANCE_RANGE),
    startMs,
    stopMs,
  }
}

function policyOf(
  { missed, catchUp, overlap }: StoredScheduleOptions,
  isAfterEnd: boolean,
): Pick<ScheduleDefinition, 'missed' | 'catchUpMs' | 'overlap'> {
  if (isAfterEnd) {
    for (const [name, value] of Object.entries({ missed, catchUp, overlap })) {
      if (value !== undefined) throw expected(name, 'left out with `afterEnd`', value)
    }
    return { missed: 'once', catchUpMs: null, overlap: 'skip' }
  }
  const policy = oneOf('missed', missed ?? 'once', MISSED)
  if (policy === 'skip' && catchUp !== undefined)
    throw expected('catchUp', "left out unless `missed` is 'once' or 'all'", catchUp)
  if (policy === 'all' && overlap === 'skip')
    throw expected('overlap', "'allow' with `missed: 'all'`: the ticks that are made up for overlap", overlap)
  const catchUpMs = parseDuration('catchUp', catchUp ?? DAY_MS, WAIT_RANGE)
  return {
    missed: policy,
    catchUpMs: catchUpMs === Number.POSITIVE_INFINITY ? null : catchUpMs,
    overlap: oneOf('overlap', overlap ?? (policy === 'all' ? 'allow' : 'skip'), OVERLAP),
  }
}

function oneOf<Choice extends string>(name: string, value: Choice, choices: readonly Choice[]): Choice {
  if (choices.includes(value)) return value
  throw expected(name, choices.map((choice) => `'${choice}'`).join(' or '), value)
}

const DAY_MS = 86_400_000
const DISTANCE_RANGE = { ...HOLD_RANGE, leastMs: 1000 }
