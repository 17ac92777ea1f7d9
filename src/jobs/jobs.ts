import type { Duration } from '../base/duration.ts'
import type { StopOptions } from '../index.ts'
import type { SqlClient } from '../postgres/executor.ts'
import type { ClaimedJob, JobCount, JobState, JobView } from './job.ts'
import type { EnqueueArguments, NameOf, NewJob } from './new-job.ts'
import type { WorkOptions } from './work-options.ts'
import type { JobHandler } from './worker.ts'

export interface JobsOptions {
  /** The schema with the tables, made by `migrate()`. Default: `holdfast`. */
  readonly schema?: string | undefined
  /**
   * How long completed jobs are kept: milliseconds, or `'30s'`, `'5m'`, `'1h'`; up to 24 days, or `Infinity`. With 0
   * they are deleted as they complete, and a `complete` that is repeated after a lost answer cannot be told from a
   * late one. Default: `'1h'`.
   */
  readonly keepCompleted?: Duration | undefined
  /** How long jobs that are dead, cancelled or superseded are kept. Default: `'336h'` (14 days). */
  readonly keepEnded?: Duration | undefined
  /** The largest payload, in bytes of JSON. Default: 1,048,576. */
  readonly maxPayloadBytes?: number | undefined
  /**
   * How many connections of its own it opens at most, besides one to renew leases and one to listen, both for
   * workers. Default: 2.
   */
  readonly maxConnections?: number | undefined
}

export interface ClaimOptions {
  /** How many at most, from 1 to 1000. Default: 1. */
  readonly limit?: number | undefined
  /**
   * How long until another worker may have them, unless they are settled: milliseconds or `'30s'`. Nobody renews
   * them. Default: `'30s'`.
   */
  readonly ttl?: Duration | undefined
  /** Who claims, for people to read. Default: `pid` and the number of the process. */
  readonly worker?: string | undefined
}

export interface InspectOptions {
  /** Default: all. */
  readonly state?: JobState | readonly JobState[] | undefined
  /** Default: all. */
  readonly name?: string | readonly string[] | undefined
  /** Begins after the job of this id. */
  readonly after?: string | undefined
}

/** Takes jobs and runs them, until it is stopped. It keeps the process alive. */
export interface Worker {
  /** How many jobs it has at this moment. */
  readonly running: number
  /**
   * Takes no new jobs, and resolves when none runs here any more. What is left after `grace` (20 s, `Infinity` allowed) is asked to end through
   * its signal, and given back to other workers. If the database does not answer, it resolves one second after the grace all
   * the same; others may then have these jobs when their leases are over, after `ttl`, and that counts as a failure of
   * theirs. Never rejects. Repeatable.
   */
  stop(options?: StopOptions): Promise<void>
  /** `stop()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** What `createJobs` makes. */
export interface Jobs<Payloads extends object = Record<string, unknown>> {
  /**
   * Makes or updates the tables: once, before the first job, or at every start. Any number of processes may call it
   * at once, and when there is nothing to do it only reads.
   *
   * @throws {StoreError} when the tables are newer than this library, or the role may not make them.
   */
  migrate(): Promise<void>
  /**
   * Adds a job. Resolves with its id, and with null when a job with its `key` waits already.
   *
   * @throws {InvalidArgumentError} the payload is not JSON or too large, or an option is not what it should be.
   * Nothing is enqueued.
   * @throws {StoreError} `store-unavailable`: no answer, so it may have been enqueued. Inside a `transaction`, that
   * decides.
   */
  enqueue<Name extends NameOf<Payloads>>(
    name: Name,
    ...payloadAndOptions: EnqueueArguments<Payloads[Name]>
  ): Promise<string | null>
  /**
   * Adds many jobs in one statement: all of them or none. Resolves and throws as {@link enqueue}, in the same order.
   */
  enqueueAll(
    jobs: readonly NewJob<Payloads>[],
    options?: { readonly transaction?: SqlClient | undefined },
  ): Promise<readonly (string | null)[]>
  /**
   * Starts a worker. A handler that returns completes its job; one that throws fails it, and the job is tried again
   * after its backoff. **A job runs at least once**: a process may die, or lose its lease, when the work is done and
   * the job is not yet completed. `job.complete({ transaction })` in the transaction of the work makes its effect
   * happen exactly once.
   */
  work(
    handlers: { readonly [Name in NameOf<Payloads>]?: JobHandler<Payloads[Name]> },
    options?: WorkOptions,
  ): Worker
  /**
   * Claims jobs for a loop of your own, most urgent first; an empty array when there are none. Nobody renews their
   * leases: call `job.assertHeld()` before the work of each.
   *
   * @throws {StoreError} `store-unavailable`: no answer, or one that came after the `ttl`. Nothing was begun.
   */
  claim<Name extends NameOf<Payloads>>(
    names: Name | readonly Name[],
    options?: ClaimOptions,
  ): Promise<readonly ClaimedJob<Payloads[Name]>[]>
  /** Jobs in order of their ids, read a page at a time; what changes meanwhile may be seen or not. */
  inspect(options?: InspectOptions): AsyncIterable<JobView>
  /** One job, or null when there is none (any more). */
  find(id: string): Promise<JobView | null>
  /** How many jobs there are of each name and state. Reads all of both tables. */
  count(): Promise<readonly JobCount[]>
  /**
   * Makes dead, cancelled or superseded jobs ready again, with all their attempts. Resolves with the ids of those for
   * which that worked: not where there is no such job, nor where a job with the same key waits.
   */
  retry(ids: string | readonly string[]): Promise<readonly string[]>
  /**
   * Ends a job that is not over, and resolves with whether there was one. A worker that runs it is told with its next
   * renewal, after a third of its `ttl` at most, and cannot complete it.
   */
  cancel(id: string, options: { readonly reason: string }): Promise<boolean>
  /** Forgets jobs that are over, before their time. Resolves with the ids of those that were there. */
  remove(ids: string | readonly string[]): Promise<readonly string[]>
  /** Deletes the jobs that are over for longer than they are kept. Workers do it every half minute. */
  cleanUp(): Promise<void>
  /** Stops the workers, with the grace, and ends its connections. Repeatable. */
  close(options?: StopOptions): Promise<void>
  /** `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}
