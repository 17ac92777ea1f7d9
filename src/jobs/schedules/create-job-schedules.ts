import { checkOptions, expected, parseCount } from '../../base/arguments.ts'
import { parseDuration } from '../../base/duration.ts'
import { StoreError } from '../../errors.ts'
import type { SqlClient } from '../../postgres/executor.ts'
import type { Jobs } from '../jobs.ts'
import { parseNewJob } from '../new-job.ts'
import { POLL_RANGE, parseNames, parseText } from '../options.ts'
import { type JobsParts, partsOf } from '../parts.ts'
import { Firing } from './firing.ts'
import type {
  InTransaction,
  JobSchedules,
  JobSchedulesOptions,
  ListSchedulesOptions,
  NewSchedule,
  ScheduleChange,
  ScheduleFilter,
  ScheduleSelection,
  StoredSchedulesPage,
} from './job-schedules.ts'
import { ScheduleListeners } from './listeners.ts'
import { changedSettings, checkSettings, parseTimes, type ScheduleTimes, settingsOf } from './options.ts'
import { isStored, planOf, resumedLook, rowOf, type SchedulePlan } from './plan.ts'
import {
  type ChosenSchedules,
  type Resumption,
  type ScheduleLook,
  type SchedulePage,
  ScheduleTables,
} from './schedule-tables.ts'
import {
  SCHEDULE_STATES,
  type ScheduleState,
  type StoredScheduleDetails,
  storedSchedule,
} from './stored-schedule.ts'
import { anchorOf, firstTick, type Timing, tickAfter } from './timing.ts'
import { readSchedule } from './unreadable.ts'

/**
 * Schedules in PostgreSQL whose ticks become [jobs](../../../docs/jobs.md). They are added, changed, paused, resumed and removed at run time,
 * also inside your own transactions, for example a schedule for each customer in the customer's time zone. Each tick becomes one job,
 * however many processes fire. Their table is made by `jobs.migrate()`.
 *
 * ```ts
 * import { createJobs } from 'holdfast/jobs'
 * import { createJobSchedules, type ScheduledPayload } from 'holdfast/jobs/schedules'
 * import { Pool } from 'pg'
 *
 * const jobs = createJobs<{ report: ScheduledPayload<{ customer: string }> }>(new Pool())
 * await jobs.migrate()
 * const schedules = createJobSchedules(jobs)
 * await schedules.put('report:acme', {
 *   job: 'report',
 *   payload: { customer: 'acme' },
 *   tenant: 'acme',
 *   cron: '0 3 * * *',
 *   timezone: 'Europe/Berlin',
 * })
 * schedules.start()
 * jobs.work({ report: ({ payload }) => console.log(payload.customer, payload.schedule?.scheduledAt) })
 * ```
 *
 * @param jobs what `createJobs` or `openJobs` returns. The schedules use its tables and connections, and end with it.
 * @throws {InvalidArgumentError} when an argument is not what it should be.
 */
export function createJobSchedules<Payloads extends object = Record<string, unknown>>(
  jobs: Jobs<Payloads>,
  options: JobSchedulesOptions = {},
): JobSchedules<Payloads> {
  return new PostgresSchedules(partsOf(jobs), options) as unknown as JobSchedules<Payloads>
}

class PostgresSchedules implements JobSchedules {
  readonly #parts: JobsParts
  readonly #tables: ScheduleTables
  readonly #listeners: ScheduleListeners
  readonly #pollMs: number
  #firing: Firing | undefined
  /** Resolves when all that was stopped is over. */
  #stopped: Promise<unknown> = Promise.resolve()

  constructor(parts: JobsParts, options: JobSchedulesOptions) {
    checkOptions(options, ['onFire', 'onLeftOut', 'onError', 'pollInterval'])
    this.#parts = parts
    this.#tables = new ScheduleTables(parts.tables)
    this.#listeners = new ScheduleListeners(options)
    const range = { ...POLL_RANGE, mostMs: LONGEST_POLL_MS }
    this.#pollMs = parseDuration('pollInterval', options.pollInterval ?? LONGEST_POLL_MS, range)
  }

  async add(id: string, schedule: NewSchedule, options: InTransaction = {}): Promise<boolean> {
    const plan = this.#planOf(schedule)
    return this.#write(id, options, ({ schedule: stored }) => (stored === null ? plan : null))
  }

  async put(id: string, schedule: NewSchedule, options: InTransaction = {}): Promise<void> {
    const plan = this.#planOf(schedule)
    await this.#write(id, options, () => plan)
  }

  async change(id: string, change: ScheduleChange, options: InTransaction = {}): Promise<boolean> {
    checkSettings(change, ['job', 'payload'])
    return this.#write(id, options, ({ schedule: stored, payload: storedPayload }) => {
      if (stored === null) return null
      const { job = stored.job, payload = storedPayload, ...settings } = change
      // What this version does not know would be lost.
      const known = readSchedule(stored, () => settingsOf(stored.definition))
      return this.#planOf({
        job,
        payload: payload as object,
        ...changedSettings({ ...known, tenant: stored.tenant ?? undefined }, settings),
      })
    })
  }

  async pause(selection: ScheduleSelection, options: InTransaction = {}): Promise<readonly string[]> {
    return this.#tables.pause(chosenBy(selection), transactionOf(options))
  }

  async resume(selection: ScheduleSelection, options: InTransaction = {}): Promise<readonly string[]> {
    const transaction = transactionOf(options)
    const chosen = chosenBy(selection)
    const resumed: string[] = []
    const unreadable: unknown[] = []
    let after: string | undefined
    do {
      const page = await this.#tables.list(chosen, { states: ['paused'], after, most: PORTION }, transaction)
      resumed.push(...(await this.#resume(page, { transaction, unreadable })))
      after = page.schedules.length < PORTION ? undefined : page.schedules.at(-1)?.id
    } while (after !== undefined)
    if (unreadable.length > 0) throw unreadable[0]
    return resumed
  }

  async remove(selection: ScheduleSelection, options: InTransaction = {}): Promise<readonly string[]> {
    return this.#tables.remove(chosenBy(selection), transactionOf(options))
  }

  async run(id: string, options: InTransaction = {}): Promise<string | null> {
    const transaction = transactionOf(options)
    const { schedule, payload, nowMs } = await this.#tables.read(parseText('id', id), { transaction })
    if (schedule === null) return null
    const tick = { id, tenant: schedule.tenant, scheduledAt: new Date(nowMs).toISOString() }
    const job = { name: schedule.job, payload: { schedule: tick, ...(payload as object) } }
    const limits = { maxPayloadBytes: Number.POSITIVE_INFINITY }
    const entry = readSchedule(schedule, () =>
      parseNewJob({ ...job, ...schedule.definition.jobOptions }, 0, limits),
    )
    const [jobId = null] = await this.#parts.tables.enqueue([entry], transaction)
    return jobId
  }

  async find(id: string): Promise<StoredScheduleDetails | null> {
    const { schedule, payload } = await this.#tables.read(parseText('id', id))
    return schedule === null ? null : { ...storedSchedule(schedule), payload }
  }

  async list(options: ListSchedulesOptions = {}): Promise<StoredSchedulesPage> {
    checkOptions(options, ['tenant', 'job', 'state', 'after', 'limit'])
    const { state, after, limit = 50, ...filter } = options
    const states = state === undefined ? undefined : parseStates(state)
    const most = parseCount('limit', limit, { least: 1, most: 1000 })
    // One more, to know whether another page follows.
    const page = await this.#tables.list(filterOf(filter), {
      ...{ states, most: most + 1, after: after === undefined ? undefined : parseText('after', after) },
    })
    const schedules = page.schedules.slice(0, most).map(storedSchedule)
    return { schedules, next: page.schedules.length > most ? (schedules.at(-1)?.id ?? null) : null }
  }

  async nextRuns(scheduleOrTimes: string | ScheduleTimes, count: number): Promise<readonly Date[]> {
    const most = parseCount('count', count, { least: 1, most: 1000 })
    if (typeof scheduleOrTimes === 'object') {
      const definition = parseTimes(scheduleOrTimes)
      // There is no schedule of an empty id, so the answer is the time alone.
      const { nowMs } = await this.#tables.read('')
      const timing = { id: '', definition, anchorMs: anchorOf(definition, nowMs) }
      return ticksFrom(timing, { first: firstTick(timing, nowMs), most })
    }
    const { schedule, nowMs } = await this.#tables.read(parseText('id', scheduleOrTimes))
    if (schedule === null) throw expected('id', 'the id of a schedule', scheduleOrTimes)
    if (schedule.state !== 'active') return []
    const isPast =
      schedule.tickMs !== null && schedule.tickMs <= nowMs && schedule.definition.afterEndMs === null
    const left = (schedule.definition.maxRuns ?? Number.POSITIVE_INFINITY) - schedule.runs
    return readSchedule(schedule, () =>
      ticksFrom(schedule, {
        first: isPast ? tickAfter(schedule, nowMs) : schedule.tickMs,
        most: Math.min(most, left),
      }),
    )
  }

  start(): void {
    this.#parts.assertOpen()
    this.#firing ??= new Firing({
      ...{ tables: this.#tables, wakes: this.#parts.wakes, endWithJobs: this.#parts.endWithJobs },
      ...{ pollMs: this.#pollMs, listeners: this.#listeners },
    })
  }

  async stop(): Promise<void> {
    // At once, so that a start that follows is not taken for one that changes nothing.
    const firing = this.#firing
    this.#firing = undefined
    if (firing !== undefined) this.#stopped = Promise.all([this.#stopped, firing.stop()])
    await this.#stopped
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  #planOf(schedule: NewSchedule): SchedulePlan {
    return planOf(schedule, { maxPayloadBytes: this.#parts.maxPayloadBytes })
  }

  /** Resolves with whether the plan for what is stored was not null. Reads again if others change the schedule meanwhile. */
  async #write(
    id: string,
    options: InTransaction,
    planFor: (look: ScheduleLook) => SchedulePlan | null,
  ): Promise<boolean> {
    const transaction = transactionOf(options)
    parseText('id', id)
    for (let attempt = 1; attempt <= MOST_ATTEMPTS; attempt += 1) {
      const look = await this.#tables.read(id, { transaction, locks: transaction !== undefined })
      const plan = planFor(look)
      if (plan === null) return false
      if (isStored(plan, look)) return true
      const row = rowOf(id, { plan, look })
      if (await this.#tables.write(row, look.schedule?.version ?? null, transaction)) return true
    }
    throw new StoreError(
      'store-unavailable',
      `Others changed the schedule ${JSON.stringify(id)} each time that it was about to be changed. Call it again.`,
    )
  }

  /** Those that somebody changes meanwhile are read again. Adds an error to `unreadable` for each one that this version cannot read. */
  async #resume(
    page: SchedulePage,
    {
      transaction,
      unreadable,
    }: { readonly transaction: SqlClient | undefined; readonly unreadable: unknown[] },
  ): Promise<readonly string[]> {
    const resumed: string[] = []
    let { nowMs, schedules } = page
    for (let attempt = 1; schedules.length > 0 && attempt <= MOST_ATTEMPTS; attempt += 1) {
      const rows: Resumption[] = []
      for (const raw of schedules) {
        try {
          const look = readSchedule(raw, () => resumedLook(raw, nowMs))
          rows.push({ id: raw.id, version: raw.version, ...look })
        } catch (error) {
          unreadable.push(error)
        }
      }
      const done = new Set(await this.#tables.resume(rows, transaction))
      resumed.push(...done)
      const ids = rows.flatMap(({ id }) => (done.has(id) ? [] : [id]))
      if (ids.length === 0) break
      const again = await this.#tables.list({ ids }, { states: ['paused'], most: ids.length }, transaction)
      nowMs = again.nowMs
      schedules = again.schedules
    }
    return resumed
  }
}

/** Up to `most` ticks, from the first one on. */
function ticksFrom(
  timing: Timing,
  { first, most }: { readonly first: number | null; readonly most: number },
): readonly Date[] {
  const ticks: Date[] = []
  for (let tick = first; tick !== null && ticks.length < most; tick = tickAfter(timing, tick))
    ticks.push(new Date(tick))
  return ticks
}

function transactionOf(options: InTransaction): SqlClient | undefined {
  checkOptions(options, ['transaction'])
  return options.transaction
}

function chosenBy(selection: ScheduleSelection): ChosenSchedules {
  if (typeof selection === 'string' || Array.isArray(selection)) return { ids: parseNames('ids', selection) }
  const chosen = filterOf(selection as ScheduleFilter)
  if (chosen.tenants !== undefined || chosen.jobs !== undefined) return chosen
  throw expected('selection', 'ids, or a filter with at least one property', selection)
}

function filterOf(filter: ScheduleFilter): ChosenSchedules {
  checkOptions(filter, ['tenant', 'job'])
  const { tenant, job } = filter
  return {
    tenants: tenant === undefined ? undefined : parseNames('tenant', tenant),
    jobs: job === undefined ? undefined : parseNames('job', job),
  }
}

function parseStates(state: NonNullable<ListSchedulesOptions['state']>): readonly ScheduleState[] {
  const states = Array.isArray(state) ? (state as readonly ScheduleState[]) : [state as ScheduleState]
  const wrongAt = states.findIndex((each) => !SCHEDULE_STATES.includes(each))
  if (wrongAt === -1) return states
  throw expected('state', `one of ${SCHEDULE_STATES.join(', ')}`, states[wrongAt])
}

/** As the processes that fire wait at most. Changes that are due sooner send a message. */
const LONGEST_POLL_MS = 30_000
const PORTION = 1000
/** A schedule fires once a second at most, so one more reading is mostly enough. */
const MOST_ATTEMPTS = 10
