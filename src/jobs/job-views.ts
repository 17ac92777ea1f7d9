import type { PostgresConnections } from '../postgres/connections.ts'
import { storeErrorOf } from '../postgres/failures.ts'
import { inSchema } from '../postgres/migrations.ts'
import {
  ENDED,
  JOB_STATES,
  type JobCount,
  type JobDetails,
  type JobState,
  type JobsInTime,
  type JobView,
  NOT_ENDED,
} from './job.ts'
import { scripts } from './sql/scripts.generated.ts'
import { textArray } from './statements.ts'

/** Which jobs, as the statement takes it. */
export interface ListQuery {
  readonly states: readonly JobState[]
  readonly names?: readonly string[] | undefined
  readonly ids?: readonly string[] | undefined
  readonly since?: Date | undefined
  readonly before?: Date | undefined
  readonly after?: string | undefined
  readonly limit: number
}

/** Reads the tables of the jobs for people to look at. Every call is one statement, and rejects with a `StoreError`. */
export class JobViews {
  readonly #connections: PostgresConnections
  readonly #schema: string

  constructor(connections: PostgresConnections, schema: string) {
    this.#connections = connections
    this.#schema = schema
  }

  /** Newest first. */
  async list(query: ListQuery): Promise<readonly JobView[]> {
    const jobs = await this.#list(query, { withDetails: false })
    return jobs.map(({ payload: _, result: __, failedAttempts: ___, children: ____, ...view }) => view)
  }

  async find(query: ListQuery): Promise<JobDetails | null> {
    const [job = null] = await this.#list(query, { withDetails: true })
    return job
  }

  /** The children of a job, in their order. */
  async children(id: string): Promise<readonly JobDetails[]> {
    const job = await this.find({ states: JOB_STATES, ids: [id], limit: 1 })
    const ids = job?.children ?? []
    if (ids.length === 0) return []
    const found = await this.#list({ states: JOB_STATES, ids, limit: ids.length }, { withDetails: true })
    const byId = new Map(found.map((child) => [child.id, child]))
    return ids.flatMap((child) => byId.get(child) ?? [])
  }

  async count(): Promise<readonly JobCount[]> {
    const rows = await this.#query(scripts.count, [], { doing: 'counting jobs' })
    return rows.map(({ name, state, count, oldest_ms }) => ({
      name: String(name),
      state: state as JobState,
      count: Number(count),
      oldestMs: Math.max(0, Number(oldest_ms)),
    }))
  }

  async countOverTime({
    names,
    stepMs,
    steps,
  }: {
    readonly names: readonly string[] | undefined
    readonly stepMs: number
    readonly steps: number
  }): Promise<readonly JobsInTime[]> {
    const parameters = [names === undefined ? null : textArray(names), String(stepMs), String(steps)]
    const rows = await this.#query(scripts.countOverTime, parameters, { doing: 'counting jobs' })
    return rows.map(({ step }) => withDates(JSON.parse(String(step)) as RawRow) as unknown as JobsInTime)
  }

  async #list(query: ListQuery, details: { readonly withDetails: boolean }): Promise<JobDetails[]> {
    const { text, parameters } = listStatement(query, details)
    // Those by ids are asked often, for waits.
    const isRare = query.ids === undefined
    const rows = await this.#query(text, parameters, { doing: 'looking at jobs', isRare })
    return rows.map(({ job }) => detailsOf(JSON.parse(String(job)) as RawRow))
  }

  async #query(
    text: string,
    parameters: readonly (string | null)[],
    { doing, isRare = false }: { readonly doing: string; readonly isRare?: boolean },
  ) {
    try {
      return await this.#connections.query(inSchema(text, this.#schema), parameters, { isRare })
    } catch (error) {
      throw storeErrorOf(error, { doing, page: 'docs/jobs.md', schema: this.#schema })
    }
  }
}

/** The statement of a list, with the conditions that this list has. */
export function listStatement(
  query: ListQuery,
  { withDetails }: { readonly withDetails: boolean },
): { readonly text: string; readonly parameters: readonly string[] } {
  const { conditions, parameters } = conditionsOf(query, [String(query.limit), String(withDetails)])
  const where = (among: readonly JobState[]) => [stateIn(query.states, among), ...conditions].join(' and ')
  const text = scripts.list.replace(/{not_ended}$/m, where(NOT_ENDED)).replace(/{ended}$/m, where(ENDED))
  return { text, parameters }
}

/** As constants, because PostgreSQL finds the index of dead jobs by them, and passes over a table that has none of the states. */
function stateIn(states: readonly JobState[], among: readonly JobState[]): string {
  const some = among.filter((state) => states.includes(state))
  if (some.length === among.length) return 'true'
  return some.length === 0 ? 'false' : `state in (${some.map((state) => `'${state}'`).join(', ')})`
}

/** Only the conditions that the list has. Their parameters stand behind the first ones. */
function conditionsOf(
  { names, ids, since, before, after }: ListQuery,
  first: readonly string[],
): { readonly conditions: readonly string[]; readonly parameters: readonly string[] } {
  const given: readonly (readonly [condition: string, parameter: string | undefined])[] = [
    ['name = any ($::text::text[])', names && textArray(names)],
    ['id = any ($::text::bigint[])', ids && `{${ids.join(',')}}`],
    ['enqueued_at >= $::text::timestamptz', since?.toISOString()],
    ['enqueued_at < $::text::timestamptz', before?.toISOString()],
    ['id < $::text::bigint', after],
  ]
  const parameters = [...first]
  const conditions: string[] = []
  for (const [condition, parameter] of given) {
    if (parameter === undefined) continue
    parameters.push(parameter)
    conditions.push(condition.replace('$', `$${parameters.length}`))
  }
  return { conditions, parameters }
}

/** A row as it comes in JSON, with its instants in milliseconds. */
type RawRow = Record<string, unknown>

function detailsOf(row: RawRow): JobDetails {
  for (const attempt of (row['failedAttempts'] ?? []) as RawRow[]) withDates(attempt)
  return withDates(row) as unknown as JobDetails
}

const DATES = ['enqueuedAt', 'startedAt', 'dueAt', 'endedAt', 'endedAt', 'from']

/** Changes the object itself, which was just parsed. */
function withDates(row: RawRow): RawRow {
  for (const name of DATES) {
    const instant = row[name]
    if (typeof instant === 'number') row[name] = new Date(instant)
  }
  return row
}
