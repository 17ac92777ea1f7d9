import { checkOptions, expected, parseCount } from '../base/arguments.ts'
import { type Duration, parseDuration } from '../base/duration.ts'
import { InvalidArgumentError, isHoldfastError } from '../errors.ts'
import type { SqlClient } from '../postgres/executor.ts'
import { jsonText } from './json-text.ts'
import { HOLD_RANGE, parseDate, parseIds, parseText } from './options.ts'

/** When and how often a job runs, and which jobs it must not run beside. */
export interface JobOptions {
  /** A worker claims jobs of a larger priority first. A whole number from -32768 to 32767. Default: 0. */
  readonly priority?: number | undefined
  /**
   * How long until the job may start, by the database's clock: milliseconds, or `'30s'`, `'5m'`, `'1h'`; at most 24 days.
   * Default: 0.
   */
  readonly delay?: Duration | undefined
  /** When the job may start. Instead of `delay`. */
  readonly runAt?: Date | undefined
  /**
   * A unique key. While a job of this name and key is ready, blocked or delayed (also for its next attempt), the new job is
   * not enqueued. While such a job runs, the new job is enqueued, because the data that the other one has read may be out
   * of date: see `uniqueFor`. Up to 500 bytes. Default: none.
   */
  readonly key?: string | undefined
  /**
   * How long this job keeps its `key` taken. `'waiting'`: until it runs. `'running'`: until it has ended. A duration, `'10m'`: until
   * it has ended and this time has passed since it was enqueued. Up to 24 days. Default: `'waiting'`.
   */
  readonly uniqueFor?: 'waiting' | 'running' | Duration | undefined
  /**
   * What happens to the waiting job that has the `key` already. `'keep'`: nothing. `'update'`: it gets the new payload. `'postpone'`: it
   * gets the new payload, and if it is delayed, it starts when the new one would have started. If it is pending, it starts then or
   * after its children, whichever is later. `enqueue` resolves with the id of the job that it has changed. Default: `'keep'`.
   */
  readonly ifTaken?: IfTaken | undefined
  /**
   * Jobs of one group start in order, whatever their names, and run one at a time: see `groupLimit`. Up to 500 bytes. Default: none.
   */
  readonly group?: string | undefined
  /**
   * How many jobs of the `group` may run at once: this job begins while fewer of them run. If they differ, the smallest limit counts
   * among this job and those that run. From 1 to 1000. Default: 1.
   */
  readonly groupLimit?: number | undefined
  /** The job is dead once this many attempts have failed, or were lost with their worker. From 1 to 1000. Default: 10. */
  readonly maxAttempts?: number | undefined
  /** The pause before the second attempt. It doubles for each further one, less up to a half at random. Default: `'1s'`. */
  readonly backoff?: Duration | undefined
  /** The longest wait between two attempts. Default: `'1h'`. */
  readonly maxBackoff?: Duration | undefined
  /**
   * The ids of up to 1000 jobs that have to be completed first. Until then this job is `pending`, also if its `delay` is over. They are
   * kept until this job has ended, and its handler reads them with `job.children()`. Not beside `ifTaken`. Default: none.
   */
  readonly children?: readonly string[] | undefined
  /**
   * What happens if a child ends as dead, cancelled or superseded. `'cancel'`: this job is cancelled. `'run'`: this job runs when all
   * its children have ended. `'wait'`: this job waits until somebody retries the child and it is completed. Default: `'cancel'`.
   */
  readonly ifChildFails?: IfChildFails | undefined
}

/** What `enqueue` does if a job with the same key is there: see {@link JobOptions}. */
export type IfTaken = 'keep' | 'update' | 'postpone'

/** What becomes of a job whose child was not completed: see {@link JobOptions}. */
export type IfChildFails = 'cancel' | 'run' | 'wait'

/** Options of one `enqueue`. */
export interface EnqueueOptions extends JobOptions {
  /**
   * The caller's open transaction: the job exists when that commits, and only then. From pg, postgres.js, Kysely, Drizzle or
   * Prisma, or any object with `query(text, parameters)`. Default: a transaction of its own.
   */
  readonly transaction?: SqlClient | undefined
}

/**
 * One job of `enqueueAll`. Its payload is JSON. If the type of the payload admits null or undefined, you may leave it out,
 * and it is null.
 */
export type NewJob<Payloads extends object = Record<string, unknown>> = {
  [Name in NameOf<Payloads>]: JobOptions & { readonly name: Name } & (IsOptional<Payloads[Name]> extends true
      ? { readonly payload?: Payloads[Name] | undefined }
      : { readonly payload: Payloads[Name] })
}[NameOf<Payloads>]

/** The arguments after the name of a job: its payload, which may be left out as in {@link NewJob}, and options. */
export type EnqueueArguments<Payload> =
  IsOptional<Payload> extends true
    ? [payload?: Payload | undefined, options?: EnqueueOptions]
    : [payload: Payload, options?: EnqueueOptions]

export type NameOf<Payloads> = Extract<keyof Payloads, string>

/** Whether the payload may be left out. It is null then. */
type IsOptional<Payload> = undefined extends Payload ? true : null extends Payload ? true : false

/** A job in the shape that the SQL functions take. */
export interface JobEntry {
  readonly position: number
  readonly name: string
  readonly payload: string
  readonly priority: number
  readonly unique_key: string | null
  readonly group_key: string | null
  readonly group_limit: number
  readonly max_attempts: number
  readonly backoff_ms: number
  readonly max_backoff_ms: number
  readonly delay_ms: number | null
  readonly run_at: string | null
  /** What is not usual about its key. */
  readonly keyRules: KeyRules | undefined
  /** The traceparent of the span that enqueues it. */
  readonly trace?: string | undefined
  /** Undefined: it has none. */
  readonly children: readonly string[] | undefined
  readonly if_child_fails: IfChildFails | undefined
}

/** How long a job keeps its unique key, and what another one with it does. */
export interface KeyRules {
  readonly holds_key: boolean
  readonly key_ms: number | null
  readonly if_taken: IfTaken
}

/** @throws {InvalidArgumentError} that says which of several jobs is wrong. */
export function parseNewJobs(
  jobs: readonly NewJob[],
  limits: { readonly maxPayloadBytes: number },
): readonly JobEntry[] {
  // A hole of the array is no job, either.
  return Array.from(jobs, (job, position) => {
    try {
      return parseNewJob(job, position, limits)
    } catch (error) {
      if (jobs.length === 1 || !isHoldfastError(error, 'invalid-argument')) throw error
      const message = error.message.replace(/^Expected `(?!jobs\[)/, `Expected \`jobs[${position}].`)
      throw new InvalidArgumentError(message, { cause: error.cause })
    }
  })
}

/** The names of {@link JobOptions}. */
export const JOB_OPTIONS: readonly string[] = [
  'priority',
  'delay',
  'runAt',
  'key',
  'uniqueFor',
  'ifTaken',
  'group',
  'groupLimit',
  'maxAttempts',
  'backoff',
  'maxBackoff',
  'children',
  'ifChildFails',
]

export function parseNewJob(
  job: NewJob,
  position: number,
  { maxPayloadBytes }: { readonly maxPayloadBytes: number },
): JobEntry {
  if (typeof job !== 'object' || job === null) throw expected(`jobs[${position}]`, 'an object', job)
  const { name, payload, ...options } = job
  checkOptions(options, JOB_OPTIONS)
  const {
    priority = 0,
    delay,
    runAt,
    key,
    group,
    groupLimit = 1,
    maxAttempts = 10,
    backoff = '1s',
    maxBackoff = '1h',
  } = options
  if (delay !== undefined && runAt !== undefined) throw expected('runAt', 'left out beside `delay`', runAt)
  if (group === undefined && options.groupLimit !== undefined)
    throw expected('group', 'given beside `groupLimit`', group)
  return {
    position,
    name: parseText('name', name),
    payload: jsonText('payload', payload, { maxBytes: maxPayloadBytes }),
    priority: parseCount('priority', priority, { least: -32768, most: 32767 }),
    unique_key: key === undefined ? null : parseText('key', key),
    group_key: group === undefined ? null : parseText('group', group),
    group_limit: parseCount('groupLimit', groupLimit, { least: 1, most: 1000 }),
    max_attempts: parseCount('maxAttempts', maxAttempts, { least: 1, most: 1000 }),
    backoff_ms: parseDuration('backoff', backoff, HOLD_RANGE),
    max_backoff_ms: parseDuration('maxBackoff', maxBackoff, HOLD_RANGE),
    delay_ms: delay === undefined ? null : parseDuration('delay', delay, HOLD_RANGE),
    run_at: runAt === undefined ? null : parseDate('runAt', runAt).toISOString(),
    keyRules: parseKeyRules(options),
    ...parseChildren(options),
  }
}

const IF_CHILD_FAILS: readonly IfChildFails[] = ['cancel', 'run', 'wait']

function parseChildren({
  children,
  ifChildFails,
  ifTaken,
}: JobOptions): Pick<JobEntry, 'children' | 'if_child_fails'> {
  if (children === undefined) {
    if (ifChildFails === undefined) return { children: undefined, if_child_fails: undefined }
    throw expected('children', 'given beside `ifChildFails`', children)
  }
  const policy = ifChildFails ?? 'cancel'
  if (!IF_CHILD_FAILS.includes(policy))
    throw expected('ifChildFails', `one of ${IF_CHILD_FAILS.join(', ')}`, policy)
  if (!Array.isArray(children) || children.length > MOST_CHILDREN)
    throw expected('children', `an array of up to ${MOST_CHILDREN} ids of jobs`, children)
  if (ifTaken !== undefined && ifTaken !== 'keep')
    throw expected('ifTaken', 'left out beside `children`', ifTaken)
  if (children.length === 0) return { children: undefined, if_child_fails: undefined }
  return { children: [...new Set(parseIds('children', children))], if_child_fails: policy }
}

const MOST_CHILDREN = 1000

const IF_TAKEN: readonly IfTaken[] = ['keep', 'update', 'postpone']

function parseKeyRules({ key, uniqueFor = 'waiting', ifTaken = 'keep' }: JobOptions): KeyRules | undefined {
  if (!IF_TAKEN.includes(ifTaken)) throw expected('ifTaken', `one of ${IF_TAKEN.join(', ')}`, ifTaken)
  const isWhile = uniqueFor === 'waiting' || uniqueFor === 'running'
  const rules = {
    holds_key: uniqueFor !== 'waiting',
    key_ms: isWhile ? null : parseDuration('uniqueFor', uniqueFor, HOLD_RANGE),
    if_taken: ifTaken,
  }
  if (uniqueFor === 'waiting' && ifTaken === 'keep') return undefined
  if (key === undefined) throw expected('key', 'given beside `uniqueFor` or `ifTaken`', key)
  return rules
}
