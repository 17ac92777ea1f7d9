import { checkOptions, expected, parseFunction } from '../base/arguments.ts'
import { systemClock } from '../base/clock.ts'
import { type Duration, HOLD_RANGE, parseDuration, TTL_RANGE, WAIT_RANGE } from '../base/duration.ts'
import { callListener } from '../base/listener.ts'
import { reportOf } from '../base/thrown.ts'
import { checkTimezone } from '../base/ticks.ts'
import { type Clock, isHoldfastError, type StopOptions } from '../index.ts'
import type { FinishedRun } from './run.ts'

/** Options of all jobs of a schedule. A wrong value is an {@link InvalidArgumentError}. */
export interface ScheduleOptions {
  /** The time zone of the jobs that do not name their own: an IANA name such as `'Europe/Berlin'`. Default: UTC on every machine. */
  readonly timezone?: string | undefined
  /** How long `stop()` waits for the work before it aborts the work's signal. From 0 to 24 days. Default: 10 s. */
  readonly grace?: Duration | undefined
  /** Called after every run that ended in this process, whatever its result. Default: none. */
  readonly onRun?: ((run: FinishedRun) => void) | undefined
  /**
   * Called after each failure. `during: 'run'`: the work failed. `during: 'store'`: the store did not answer, or the lease ended
   * before the work began; the schedule asks again, unless its locks are closed. Default: a process warning.
   */
  readonly onError?:
    | ((error: unknown, context: { readonly name: string; readonly during: 'run' | 'store' }) => void)
    | undefined
  /** The clocks and timers, for tests. Default: those of this machine. */
  readonly clock?: Clock | undefined
}

/** Options of one job. A wrong value is an {@link InvalidArgumentError}. */
export interface ScheduledJobOptions {
  /** The time zone in which the expression counts. Default: that of the schedule. */
  readonly timezone?: string | undefined
  /**
   * What becomes of missed ticks: no process began them in time, because all were down, suspended or busy. Default: `skip`.
   *
   * - `skip`: a tick that no process has begun within 30 s is left out. If several ticks are late, only the last one runs.
   * - `once`: only the last missed tick runs.
   * - `all`: every missed tick runs, in order.
   */
  readonly missed?: 'skip' | 'once' | 'all' | undefined
  /**
   * How late a missed tick may still run, from 0 to 24 days. A tick may be 30 s late in any case. Only with `missed` `once` or
   * `all`; with `skip` it is an error. Default: 1 h.
   */
  readonly catchUp?: Duration | undefined
  /**
   * What becomes of ticks that come while a run of this job is going on in any process. Runs of one job never overlap. Default:
   * `skip`.
   *
   * - `skip`: these ticks are left out.
   * - `queue`: the last of them runs when the current run is over. With `missed: 'all'` each of them runs that is not older than
   *   `catchUp`.
   */
  readonly overlap?: 'skip' | 'queue' | undefined
  /**
   * What becomes of a tick whose process died or lost its lease during the run. Default: `retry`.
   *
   * - `retry`: another process takes the tick over when the `ttl` is over. After three such ends the tick has failed.
   * - `skip`: the tick has failed.
   */
  readonly afterCrash?: 'retry' | 'skip' | undefined
  /**
   * The job stays taken for at least this long from the beginning of a run, and a tick in this time overlaps with the run. From 0
   * to 24 days. Default: 0.
   */
  readonly minHold?: Duration | undefined
  /**
   * How long a run may take, from 50 ms to 24 days, and not shorter than `minHold`. After that the run has failed with a
   * {@link TaskFailedError}: its signal aborts, and 5 s later the job is free for the next tick, even if the work has not ended.
   * Default: no limit.
   */
  readonly maxRun?: Duration | undefined
  /**
   * How long the store keeps the job for a process that it does not hear of, as for `locks.acquire`. After a crash the next run
   * has to wait for this. From 50 ms to 24 days. Default: that of the locks.
   */
  readonly ttl?: Duration | undefined
}

export interface ScheduleSettings {
  readonly timezone: string
  readonly graceMs: number
  readonly onRun: (run: FinishedRun) => void
  readonly onError: NonNullable<ScheduleOptions['onError']>
  readonly clock: Clock
}

export interface JobSettings {
  readonly timezone: string
  readonly missed: 'skip' | 'once' | 'all'
  /** How late a tick may begin. */
  readonly windowMs: number
  readonly overlap: 'skip' | 'queue'
  readonly afterCrash: 'retry' | 'skip'
  readonly minHoldMs: number
  readonly maxRunMs: number | undefined
  readonly ttlMs: number | undefined
}

export function parseScheduleOptions(options: ScheduleOptions): ScheduleSettings {
  checkOptions(options, SCHEDULE)
  const { timezone = 'UTC', grace = 10_000, onRun, onError, clock = systemClock } = options
  checkTimezone(timezone)
  for (const verb of ['monotonicMs', 'wallMs', 'startTimer'] as const)
    parseFunction(`clock.${verb}`, clock?.[verb])
  return {
    timezone,
    graceMs: parseDuration('grace', grace, HOLD_RANGE),
    onRun: guarded('onRun', onRun === undefined ? () => {} : parseFunction('onRun', onRun)),
    onError: guarded('onError', onError === undefined ? warnOfError : parseFunction('onError', onError)),
    clock,
  }
}

export function parseJobOptions(options: ScheduledJobOptions, { timezone }: ScheduleSettings): JobSettings {
  checkOptions(options, JOB)
  const missed = oneOf('missed', options.missed ?? 'skip', ['skip', 'once', 'all'])
  if (missed === 'skip' && options.catchUp !== undefined) {
    throw expected('catchUp', "left out unless `missed` is 'once' or 'all'", options.catchUp)
  }
  const catchUpMs = parseDuration('catchUp', options.catchUp ?? '1h', HOLD_RANGE)
  const minHoldMs = parseDuration('minHold', options.minHold ?? 0, HOLD_RANGE)
  const maxRunMs = optional('maxRun', options.maxRun)
  if (maxRunMs !== undefined && maxRunMs < minHoldMs) {
    throw expected('maxRun', `at least as long as \`minHold\` (${minHoldMs} ms)`, options.maxRun)
  }
  return {
    timezone: options.timezone ?? timezone,
    missed,
    // A process that is late by so little has missed nothing, whatever becomes of missed ticks.
    windowMs: missed === 'skip' ? LATE_MS : Math.max(LATE_MS, catchUpMs),
    overlap: oneOf('overlap', options.overlap ?? 'skip', ['skip', 'queue']),
    afterCrash: oneOf('afterCrash', options.afterCrash ?? 'retry', ['retry', 'skip']),
    minHoldMs,
    maxRunMs,
    ttlMs: optional('ttl', options.ttl),
  }
}

export function parseStopOptions(options: StopOptions, otherwiseMs: number): number {
  checkOptions(options, STOP)
  const { grace = otherwiseMs } = options
  return parseDuration('grace', grace, { ...WAIT_RANGE, endless: false })
}

export function checkName(name: unknown): asserts name is string {
  if (typeof name === 'string' && name !== '' && name.length <= LONGEST_NAME) return
  throw expected('name', `a string of 1 to ${LONGEST_NAME} characters`, name)
}

function warn(message: string, error: unknown): void {
  process.emitWarning(message, {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_SCHEDULE',
    detail: reportOf(error),
  })
}

/** Longer than an event loop is usually blocked, or a machine needs to restart its process; shorter than most periods. */
const LATE_MS = 30_000
/** Leaves room for what is added to make keys of it. */
const LONGEST_NAME = 500

const SCHEDULE: ReadonlySet<string> = new Set<keyof ScheduleOptions>([
  'timezone',
  'grace',
  'onRun',
  'onError',
  'clock',
])
const JOB: ReadonlySet<string> = new Set<keyof ScheduledJobOptions>([
  'timezone',
  'missed',
  'catchUp',
  'overlap',
  'afterCrash',
  'minHold',
  'maxRun',
  'ttl',
])
const STOP: ReadonlySet<string> = new Set<keyof StopOptions>(['grace'])

function oneOf<Choice extends string>(name: string, value: Choice, choices: readonly Choice[]): Choice {
  if (choices.includes(value)) return value
  throw expected(name, choices.map((choice) => `'${choice}'`).join(' or '), value)
}

function optional(name: string, value: Duration | undefined): number | undefined {
  return value === undefined ? undefined : parseDuration(name, value, TTL_RANGE)
}

function guarded<Arguments extends readonly unknown[]>(
  name: string,
  listener: (...args: Arguments) => void,
): (...args: Arguments) => void {
  return (...args) => {
    callListener(
      () => listener(...args),
      (error) => warn(`\`${name}\` of a schedule itself failed.`, error),
    )
  }
}

const TROUBLES = {
  run: 'failed',
  store: 'could not ask its store, or lost its lease before the work began, and will ask again',
} as const

function warnOfError(error: unknown, { name, during }: { name: string; during: 'run' | 'store' }): void {
  const isOver = during === 'store' && isHoldfastError(error, 'closed')
  const what = isOver ? 'is over, because its locks are closed' : TROUBLES[during]
  warn(`The scheduled job ${JSON.stringify(name)} ${what}. See \`onError\`.`, error)
}
