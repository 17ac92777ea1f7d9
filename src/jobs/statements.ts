import type { FailOutcome, JobFacts } from './job.ts'
import type { JobEntry, KeyRules } from './new-job.ts'
import { scripts as scheduleScripts } from './schedules/sql/scripts.generated.ts'
import { scripts } from './sql/scripts.generated.ts'

/** A worker may have two attempts of one job at once: an old one whose handler is not over, and the one that runs. */
export interface AttemptId {
  readonly id: string
  readonly attempt: number
}

/** One attempt of a job. */
export interface Attempt extends AttemptId {
  readonly group: string | null
}

/** An attempt that has completed its job. */
export interface Completed extends Attempt {
  /** JSON. Null: none. */
  readonly result: string | null
}

/** The end of an attempt that did not complete its job. */
export interface Uncompleted extends Attempt {
  /** Null when the job is given back unharmed. */
  readonly reason: string | null
  readonly retry: boolean
  readonly retry_in_ms: number | null
}

export interface Settlement {
  /** In order of their ids and attempts: the function finds the attempt of an id by a binary search. */
  readonly done: readonly Completed[]
  readonly others: readonly Uncompleted[]
}

export interface Settled {
  /** The done attempts that were not the ones that ran. Nothing was changed. */
  readonly lost: readonly AttemptId[]
  /** The done attempts that another transaction holds up. Nothing was changed yet: ask again alone. */
  readonly busy: readonly AttemptId[]
  /** What became of each of the others; null if its attempt was not the one that ran; `busy`: nothing yet, ask again alone. */
  readonly outcomes: readonly (FailOutcome | 'busy' | null)[]
}

export interface ClaimRequest {
  readonly names: readonly string[]
  /** How many jobs to claim that are begun at once. */
  readonly limit: number
  /** How many further ones to claim ahead. If their leases are lost, that does not count as a failure. */
  readonly ahead: number
  readonly worker: string
  readonly ttlMs: number
  /** After a lost answer: every attempt that the worker knows it has. Its other attempts are delivered again. */
  readonly known?: readonly AttemptId[] | undefined
}

export interface ClaimResult {
  readonly jobs: readonly JobFacts[]
  /** After how long another claim may bring more; null when no time is known. */
  readonly againMs: number | null
  /** Whether a limit has kept jobs back: a job that ends may let another one begin. */
  readonly isLimited: boolean
  /** After a lost answer: its statement still runs, so its jobs cannot be delivered yet. */
  readonly earlierRuns: boolean
}

/** The attempts whose leases were not renewed. */
export interface NotRenewed {
  /** They no longer run. */
  readonly gone: readonly AttemptId[]
  /** Another transaction was just changing their rows. */
  readonly skipped: readonly AttemptId[]
}

export interface JobLease extends AttemptId {
  /** Whether its handler was called. A job that was claimed ahead and is not begun is given back if its lease is lost. */
  readonly begun: boolean
}

/** Of payloads or results in one statement. A larger one may take too long, and so may its repetition. A claim has the same limit. */
export const MOST_CHARACTERS = 4_194_304

/**
 * One entry for each version. A published entry never changes. A later version keeps every function that an older one calls,
 * because older processes go on working while a fleet is updated.
 */
export const MIGRATIONS: readonly string[] = [
  [
    scripts.version1Tables,
    scripts.version1Enqueue,
    scripts.version1Settle,
    scripts.version1Leases,
    scripts.version1Claimants,
    scripts.version1Claim,
    scripts.version1Upkeep,
    scripts.version1Limits,
    scripts.version1Watch,
    scripts.version1Backlog,
    scripts.version1Children,
    scripts.version1Public,
    scheduleScripts.version1Schedules,
  ].join('\n'),
]

export const ENQUEUE_ONE: string = `to_json(jobs_enqueue_one(
  $1::text, $2::text, $3::text::smallint, $4::text, $5::text, $6::text::integer, $7::text::integer, $8::text::bigint,
  $9::text::bigint, $10::text::bigint, $11::text::timestamptz, own_trace => $12::text
)::text)`
export const ENQUEUE_UNIQUE: string = `to_json(jobs_enqueue_unique(
  $1::text, $2::text, $3::text::smallint, $4::text, $5::text, $6::text::integer, $7::text::integer, $8::text::bigint,
  $9::text::bigint, $10::text::bigint, $11::text::timestamptz, $13::text::boolean, $14::text::bigint, $15::text, $12::text
)::text)`
export const CLAIM: string =
  'jobs_claim($1::text::text[], $2::text::integer, $3::text::integer, $4::text, $5::text::bigint, $6::text::bigint[], $7::text::integer[])'
export const SETTLE: string =
  'jobs_settle($1::text::bigint[], $2::text::integer[], $3::text::text[], $4::text::text[], $5::text::json, $6::text::boolean, $7::text::boolean)'

export function enqueueParameters(entry: JobEntry): (string | null)[] {
  return [
    entry.name,
    entry.payload,
    String(entry.priority),
    entry.unique_key,
    entry.group_key,
    String(entry.group_limit),
    String(entry.max_attempts),
    String(entry.backoff_ms),
    String(entry.max_backoff_ms),
    entry.delay_ms === null ? null : String(entry.delay_ms),
    entry.run_at,
    entry.trace ?? null,
  ]
}

export function keyParameters({ holds_key, key_ms, if_taken }: KeyRules): (string | null)[] {
  return [String(holds_key), key_ms === null ? null : String(key_ms), if_taken]
}

/** A list of jobs as JSON. What is usual is left out. */
export function entriesText(entries: readonly JobEntry[]): string {
  return JSON.stringify(entries.map(({ keyRules, ...entry }) => ({ ...entry, ...keyRules })))
}

export function claimParameters({
  names,
  limit,
  ahead,
  worker,
  ttlMs,
  known,
}: ClaimRequest): (string | null)[] {
  const lists = known === undefined ? [null, null] : idsAndAttempts(known)
  return [textArray(names), String(limit), String(ahead), worker, String(ttlMs), ...lists]
}

export function settleParameters(
  { done, others }: Settlement,
  { keepsCompleted, isPatient }: { readonly keepsCompleted: boolean; readonly isPatient: boolean },
): (string | null)[] {
  return [
    ...idsAndAttempts(done),
    done.some(({ result }) => result !== null) ? textArray(done.map(({ result }) => result)) : null,
    textArray([...groupsOf(done), ...groupsOf(others)]),
    others.length === 0 ? null : JSON.stringify(others),
    String(keepsCompleted),
    String(isPatient),
  ]
}

function idsAndAttempts(attempts: readonly AttemptId[]): [ids: string, attempts: string] {
  return [
    `{${attempts.map(({ id }) => id).join(',')}}`,
    `{${attempts.map(({ attempt }) => attempt).join(',')}}`,
  ]
}

function groupsOf(attempts: readonly Attempt[]): readonly string[] {
  return attempts.flatMap(({ group }) => group ?? [])
}

/** The attempts of an answer, to look them up by {@link attemptKey}. */
export function attemptKeys(attempts: readonly AttemptId[]): ReadonlySet<string> {
  return new Set(attempts.map(attemptKey))
}

export function attemptKey({ id, attempt }: AttemptId): string {
  return `${id}/${attempt}`
}

/** Each job is an array: half as long as an object, to write and to read. */
export interface RawClaim {
  readonly jobs: readonly (readonly [
    id: string,
    texts: readonly [name: string, key: string | null, group: string | null, trace: string | null],
    payload: unknown,
    priority: number,
    attempt: number,
    failures: number,
    maxAttempts: number,
    enqueuedAt: number,
    waitedMs: number,
  ])[]
  readonly again_ms: number | null
  readonly limited: boolean
  readonly earlier_runs: boolean
}

export function claimOf({ jobs, again_ms, limited, earlier_runs }: RawClaim): ClaimResult {
  const facts = jobs.map(
    ([
      id,
      [name, key, group, trace],
      payload,
      priority,
      attempt,
      failures,
      maxAttempts,
      enqueuedAt,
      waitedMs,
    ]): JobFacts => ({
      id,
      name,
      payload,
      priority,
      key,
      group,
      attempt,
      failures,
      maxAttempts,
      enqueuedAt: new Date(enqueuedAt),
      waitedMs,
      trace,
    }),
  )
  return { jobs: facts, againMs: again_ms, isLimited: limited, earlierRuns: earlier_runs }
}

export function textArray(texts: readonly (string | null)[]): string {
  const quoted = texts.map((text) => (text === null ? 'null' : `"${text.replace(/["\\]/g, '\\$&')}"`))
  return `{${quoted.join(',')}}`
}
