import type { SqlClient } from '../../postgres/executor.ts'
import type { JobTables } from '../job-tables.ts'
import type { JobEntry } from '../new-job.ts'
import { textArray } from '../statements.ts'
import type { NextLook } from './advance.ts'
import type { ScheduleDefinition } from './options.ts'
import type { RawSchedule, ScheduleState } from './stored-schedule.ts'

/** Which schedules: those that fit each list that is given. */
export interface ChosenSchedules {
  readonly ids?: readonly string[] | undefined
  readonly tenants?: readonly string[] | undefined
  readonly jobs?: readonly string[] | undefined
}

export interface ScheduleLook {
  /** By the database's clock. */
  readonly nowMs: number
  readonly schedule: RawSchedule | null
  readonly payload: unknown
}

export interface SchedulePage {
  readonly nowMs: number
  readonly schedules: readonly RawSchedule[]
}

export interface DueLook {
  readonly nowMs: number
  readonly due: readonly RawSchedule[]
  /** After how long the next one is due; null when no time is known. */
  readonly againMs: number | null
  /** Whether there are schedules whose last job has no recorded outcome. */
  readonly hasOpen: boolean
}

/** When a schedule is looked at next, as the table has it. */
export interface WrittenLook {
  readonly state: ScheduleState
  readonly tickMs: number | null
  readonly dueMs: number | null
}

export interface ScheduleRow extends WrittenLook {
  readonly id: string
  readonly tenant: string | null
  readonly job: string
  readonly payload: string
  readonly anchorMs: number
  readonly definition: ScheduleDefinition
}

export interface Resumption extends WrittenLook {
  readonly id: string
  readonly version: number
}

export interface AdvanceRow extends WrittenLook {
  readonly id: string
  readonly version: number
  readonly fires: readonly number[]
  readonly missed: number
  readonly overlapped: number
  /** The job, without its payload. */
  readonly entry: Omit<JobEntry, 'payload'>
}

export interface Fired {
  readonly id: string
  /** In the order of the fires. */
  readonly jobs: readonly string[]
}

type OpenTransaction = SqlClient | undefined

/** Calls the functions of the stored schedules. Every call is one statement, and rejects with a `StoreError`. */
export class ScheduleTables {
  readonly #tables: JobTables

  constructor(tables: JobTables) {
    this.#tables = tables
  }

  /** `locks`: whether to keep others from changing the schedule until the transaction ends. */
  read(
    id: string,
    { transaction, locks = false }: { transaction?: OpenTransaction; locks?: boolean } = {},
  ): Promise<ScheduleLook> {
    const parameters = [id, String(locks)]
    return this.#tables.call('jobs_read_schedule($1::text, $2::text::boolean)', parameters, {
      doing: 'looking at a schedule',
      transaction,
    })
  }

  /** `expected`: the version to change; null to add. Resolves with whether it did. */
  write(row: ScheduleRow, expected: number | null, transaction: OpenTransaction): Promise<boolean> {
    const parameters = [JSON.stringify(row), expected === null ? null : String(expected)]
    return this.#tables.call('jobs_write_schedule($1::text::json, $2::text::bigint)', parameters, {
      doing: 'changing a schedule',
      transaction,
    })
  }

  list(
    { ids, tenants, jobs }: ChosenSchedules,
    {
      states,
      after,
      most,
    }: { states?: readonly string[] | undefined; after?: string | undefined; most: number },
    transaction?: OpenTransaction,
  ): Promise<SchedulePage> {
    const parameters = [...[ids, tenants, jobs, states].map(list), after ?? null, String(most)]
    return this.#tables.call(
      'jobs_list_schedules($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text, $6::text::integer)',
      parameters,
      { doing: 'looking at schedules', transaction },
    )
  }

  /** `skipped`: the versions of those to leave out, by their ids. */
  due({
    most,
    passed,
    skipped,
  }: {
    most: number
    passed: number
    skipped: ReadonlyMap<string, number>
  }): Promise<DueLook> {
    const parameters = [String(most), String(passed), JSON.stringify(Object.fromEntries(skipped))]
    const call = 'jobs_due_schedules($1::text::integer, $2::text::integer, $3::text::jsonb)'
    return this.#tables.call(call, parameters, { doing: 'looking for due schedules' })
  }

  fire(advances: readonly AdvanceRow[]): Promise<readonly Fired[]> {
    return this.#tables.call('jobs_fire_schedules($1::text::json)', [JSON.stringify(advances)], {
      doing: 'firing schedules',
    })
  }

  pause(chosen: ChosenSchedules, transaction: OpenTransaction): Promise<readonly string[]> {
    return this.#change('jobs_pause_schedules', chosen, transaction)
  }

  remove(chosen: ChosenSchedules, transaction: OpenTransaction): Promise<readonly string[]> {
    return this.#change('jobs_remove_schedules', chosen, transaction)
  }

  resume(resumptions: readonly Resumption[], transaction: OpenTransaction): Promise<readonly string[]> {
    return this.#tables.call('jobs_resume_schedules($1::text::json)', [JSON.stringify(resumptions)], {
      doing: 'resuming schedules',
      transaction,
    })
  }

  /** Resolves with whether there may be more. */
  recordOutcomes(): Promise<boolean> {
    return this.#tables.call('jobs_record_outcomes()', [], { doing: 'recording the outcomes of schedules' })
  }

  #change(name: string, { ids, tenants, jobs }: ChosenSchedules, transaction: OpenTransaction) {
    const call = `${name}($1::text::text[], $2::text::text[], $3::text::text[])`
    return this.#tables.call<readonly string[]>(call, [ids, tenants, jobs].map(list), {
      doing: 'changing schedules',
      transaction,
    })
  }
}

/** The columns of the next look. */
export function written(next: NextLook | null): WrittenLook {
  if (next === null) return { state: 'over', tickMs: null, dueMs: null }
  return { state: 'active', ...next }
}

function list(texts: readonly string[] | undefined): string | null {
  return texts === undefined ? null : textArray(texts)
}
