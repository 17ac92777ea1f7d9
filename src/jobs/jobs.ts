import type { Duration } from '../base/duration.ts'
import type { StopOptions } from '../index.ts'
import type { SqlClient } from '../postgres/executor.ts'
import type { ClaimedJob, JobBacklog, JobCount, JobDetails, JobState, JobsInTime, JobView } from './job.ts'
import type { NamedLimit, NameLimit } from './name-limits.ts'
import type { EnqueueArguments, NameOf, NewJob } from './new-job.ts'
import type { JobFailure } from './run-settlement.ts'
import type { WorkOptions } from './work-options.ts'
import type { JobHandler } from './worker.ts'

/** Where the jobs are, how long ended jobs are kept, and how many connections are used. */
export interface JobsOptions {
  /** The schema with the tables, made by `migrate()`. Default: `holdfast`. */
  readonly schema?: string | undefined
  /**
   * How long completed jobs are kept: milliseconds, or `'30s'`, `'5m'`, `'1h'`; up to 24 days, or `Infinity`. With 0 a job
   * is deleted as it completes. Then a `complete` that is repeated after a lost answer rejects with a `LeaseLostError`,
   * like one that came too late. Default: `'1h'`.
   */
  readonly keepCompleted?: Duration | undefined
  /** How long jobs that are dead, cancelled or superseded are kept. Default: `'336h'` (14 days). */
  readonly keepEnded?: Duration | undefined
  /** The largest payload, in bytes of JSON. Default: 1,048,576. */
  readonly maxPayloadBytes?: number | undefined
  /**
   * The largest number of connections for all statements except renewals. Workers open up to three more: one to listen, one to
   * renew leases, and another one while a renewal has no answer. Default: 3.
   */
  readonly maxConnections?: number | undefined
}

/** How far to count. */
export interface BacklogOptions {
  /**
   * How many jobs to count of each name that is ready, and of each other state, from 1 to 1,000,000. It bounds what the call costs: about
   * a millisecond for each thousand. Default: 10,000.
   */
  readonly most?: number | undefined
}

/** How many jobs to claim, and for how long. */
export interface ClaimOptions {
  /** The largest number of jobs to claim, from 1 to 1000. Default: 1. */
  readonly limit?: number | undefined
  /**
   * How long the leases of the claimed jobs last: milliseconds or `'30s'`. They are not renewed. After that another worker
   * may claim the jobs that are not settled. Default: `'30s'`.
   */
  readonly ttl?: Duration | undefined
  /** A name for people, which `inspect` and `holdfast jobs` show as the `worker`. Default: `pid` and the process id. */
  readonly label?: string | undefined
}

/** Which jobs: those that fit everything given here. */
export interface JobFilter {
  /** Default: all. */
  readonly state?: JobState | readonly JobState[] | undefined
  /** Default: all. */
  readonly name?: string | readonly string[] | undefined
  /** Default: all. */
  readonly id?: string | readonly string[] | undefined
  /** Jobs that were enqueued at this time or later, by the database's clock. Default: any time. */
  readonly since?: Date | undefined
  /** Jobs that were enqueued before this time, by the database's clock. Default: any time. */
  readonly before?: Date | undefined
}

/** Which jobs, and which page of them. */
export interface ListOptions extends JobFilter {
  /** The page after this one: the `next` of a page. Default: the first page. */
  readonly after?: string | undefined
  /** How many jobs a page has at most, from 1 to 1000. Default: 50. */
  readonly limit?: number | undefined
}

/** A page of jobs. */
export interface JobPage {
  /** The newest first. */
  readonly jobs: readonly JobView[]
  /** For `after`, to get the next page. `null`: there are no more. */
  readonly next: string | null
}

/** How long to wait for a job. */
export interface WaitForOptions {
  /** Ends the wait: it rejects with `signal.reason`. `AbortSignal.timeout(30_000)` is a time limit. Default: no limit. */
  readonly signal?: AbortSignal | undefined
}

/** How long a pause waits. */
export interface PauseOptions {
  /** Whether to wait until no job of the name runs. Default: false. */
  readonly untilIdle?: boolean | undefined
  /** Ends the wait: it rejects with `signal.reason`. `AbortSignal.timeout(30_000)` is a time limit. Default: no limit. */
  readonly signal?: AbortSignal | undefined
}

/** How to run the jobs that there are. */
export interface DrainOptions extends WorkOptions {
  /** Runs delayed jobs at once, and makes the attempts of failing jobs without their backoffs. Default: false: it leaves them. */
  readonly skipDelays?: boolean | undefined
}

/** What `drain` has done. */
export interface Drained {
  /** How many times it called a handler. */
  readonly attempts: number
  /** The attempts that failed, in order. Empty if you gave an `onFailure`. */
  readonly failures: readonly JobFailure[]
}

/** The jobs to change: an id, some ids, or a filter that has at least one property. */
export type JobSelection = string | readonly string[] | JobFilter

/** For which time to count, and in which steps. */
export interface CountOverTimeOptions {
  /** How far back: milliseconds, or `'1h'`; up to 24 days, and up to 1000 steps. Default: `'1h'`. */
  readonly span?: Duration | undefined
  /** The length of a step. Default: `'1m'`. */
  readonly step?: Duration | undefined
  /** Default: all. */
  readonly name?: string | readonly string[] | undefined
}

/** Claims jobs and runs them until it is stopped. It keeps the process alive. */
export interface Worker {
  /** How many jobs the worker has now: those that run, that are being settled, and that it has claimed ahead. */
  readonly jobCount: number
  /**
   * Claims no more jobs, gives back those that have not begun, and resolves when no job runs here any more. After `grace`
   * (default 20 s, `Infinity` allowed) it aborts the signals of the jobs that still run, and gives these jobs back to other workers.
   *
   * If the database does not answer, `stop` resolves one second after the grace. Then other workers may claim these jobs
   * when their leases have ended, after `ttl`. That counts as a failure, unless the job was claimed ahead and may not have begun.
   * Never rejects. May be called again.
   */
  stop(options?: StopOptions): Promise<void>
  /** `stop()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}

/** What `createJobs` makes. */
export interface Jobs<Payloads extends object = Record<string, unknown>> {
  /**
   * Creates or updates the tables. Call it once before the first job, or at every start. Any number of processes may call it
   * at the same time. If the tables are up to date, it only reads.
   *
   * @throws {StoreError} if the tables are newer than this library, or the role may not create them.
   */
  migrate(): Promise<void>
  /**
   * Adds a job. Resolves with its id. If its `key` is taken, the job is not added: then it resolves with the id of the waiting job that
   * `ifTaken` has changed, or with null if no job was changed.
   *
   * @throws {InvalidArgumentError} if the payload is not JSON or too large, or an option is not valid. Nothing is
   * enqueued.
   * @throws {StoreError} `store-unavailable`: no answer came, so the job may have been enqueued. With `transaction` the job
   * exists only if that transaction commits.
   */
  enqueue<Name extends NameOf<Payloads>>(
    name: Name,
    ...payloadAndOptions: EnqueueArguments<Payloads[Name]>
  ): Promise<string | null>
  /**
   * Adds many jobs in one transaction: all of them or none. Resolves with one result for each job, in the same order. Results
   * and errors are those of {@link enqueue}.
   */
  enqueueAll(
    jobs: readonly NewJob<Payloads>[],
    options?: { readonly transaction?: SqlClient | undefined },
  ): Promise<readonly (string | null)[]>
  /**
   * Starts a worker. If a handler returns, its job is completed. If it throws, the attempt has failed, and the job runs again
   * after its backoff.
   *
   * **A job runs at least once**: a process may die or lose its lease after the work and before the job is completed. To
   * make the effect happen exactly once, call `job.complete({ transaction })` in the transaction of the work.
   */
  work(
    handlers: { readonly [Name in NameOf<Payloads>]?: JobHandler<Payloads[Name]> },
    options?: WorkOptions,
  ): Worker
  /**
   * Runs the jobs of these names until none is ready, blocked by another of them, or running: also jobs that the handlers enqueue. For
   * tests, and for programs that end. Jobs that other workers run are waited for.
   *
   * @throws {StoreError} `store-unavailable`: no answer came; {@link ClosedError} when these jobs are closed. The handlers that ran have
   * ended.
   */
  drain(
    handlers: { readonly [Name in NameOf<Payloads>]?: JobHandler<Payloads[Name]> },
    options?: DrainOptions,
  ): Promise<Drained>
  /**
   * Claims jobs for a loop of your own, most urgent first. Resolves with an empty array if there are none. Their leases are
   * not renewed, so call `job.assertHeld()` before the work of each.
   *
   * @throws {StoreError} `store-unavailable`: no answer came, or it came after the `ttl`. No job was begun.
   */
  claim<Name extends NameOf<Payloads>>(
    names: Name | readonly Name[],
    options?: ClaimOptions,
  ): Promise<readonly ClaimedJob<Payloads[Name]>[]>
  /** A page of the jobs, newest first. Jobs that are enqueued meanwhile do not move the pages that follow. */
  list(options?: ListOptions): Promise<JobPage>
  /** Iterates over all jobs that fit, newest first. It asks for a page at a time, and may miss changes that happen meanwhile. */
  inspect(filter?: JobFilter): AsyncIterable<JobView>
  /** The job with this id, with its payload and its failed attempts. `null`: there is none, or it was deleted. */
  find(id: string): Promise<JobDetails | null>
  /**
   * Resolves with the job when it has ended, and with its `state` and `result`. A job that fails and is tried again has not ended.
   * `null`: there is no such job, or it was deleted.
   *
   * @throws {ClosedError} when these jobs are closed. While the database does not answer, it waits on.
   */
  waitFor(id: string, options?: WaitForOptions): Promise<JobDetails | null>
  /**
   * Iterates over the changes of a job: as it is now, then after each change of its state, its attempt or its progress, up to its
   * end. Changes that follow each other quickly may come as one. It rejects as {@link waitFor}.
   */
  watch(id: string, options?: WaitForOptions): AsyncIterable<JobView>
  /** Counts the jobs of each name and state. Reads both tables completely. */
  count(): Promise<readonly JobCount[]>
  /**
   * How many jobs of each name wait, are blocked, delayed or dead, and for how long the oldest has waited. Made for metrics and health
   * checks: it reads at most `most` jobs of each by an index, where `count` reads all.
   *
   * @throws {StoreError} when the database does not answer within 10 s.
   */
  backlog(options?: BacklogOptions): Promise<readonly JobBacklog[]>
  /**
   * Counts how many jobs were enqueued and how many ended in each step of time, oldest first. It counts the jobs that the tables
   * still have: completed ones for `keepCompleted`, the others that have ended for `keepEnded`. Reads both tables completely.
   */
  countOverTime(options?: CountOverTimeOptions): Promise<readonly JobsInTime[]>
  /**
   * Makes dead, cancelled or superseded jobs ready again, with all their attempts left. Resolves with the ids of the jobs
   * that it changed. It leaves a job out if a job with the same key waits.
   *
   * By a filter, it changes 1000 jobs in a transaction. If it rejects, it has changed some of the jobs: call it again.
   *
   * @throws {StoreError} `store-unavailable`: other transactions have locked some of the jobs for 1.5 s. The others are changed.
   */
  retry(selection: JobSelection): Promise<readonly string[]>
  /**
   * Ends jobs that have not ended yet. Resolves with the ids of the jobs that it changed. If a worker runs such a job, it learns of
   * this by a message, or at its next renewal within a third of its `ttl`, and cannot complete the job.
   *
   * By a filter, and while other transactions have locked jobs, it works as {@link retry}.
   */
  cancel(selection: JobSelection, options: { readonly reason: string }): Promise<readonly string[]>
  /**
   * Deletes jobs that have ended, before `keepCompleted` or `keepEnded` does. Resolves with the ids that it deleted.
   *
   * By a filter, and while other transactions have locked jobs, it works as {@link retry}.
   */
  remove(selection: JobSelection): Promise<readonly string[]>
  /**
   * Limits the jobs of a name in all processes together, from the next claim on. It replaces the limit that the name has, and `{}`
   * removes it. A process may call it at every start.
   */
  setLimit(name: NameOf<Payloads>, limit: NameLimit): Promise<void>
  /**
   * No claim takes a job of this name from then on, in any process, until {@link resume}. Jobs of a claim that has begun, or claimed
   * ahead, still run, and jobs may be enqueued. With `untilIdle` it resolves when these have ended, too: then no job of the name runs.
   *
   * @throws {ClosedError} when these jobs are closed while it waits. While the database does not answer, it waits on. The name stays
   * paused, however the wait ends.
   */
  pause(name: NameOf<Payloads>, options?: PauseOptions): Promise<void>
  /** Lets the jobs of a paused name begin again. */
  resume(name: NameOf<Payloads>): Promise<void>
  /** The names that are paused or have a limit. */
  limits(): Promise<readonly NamedLimit[]>
  /**
   * Deletes jobs that ended longer ago than they are kept. Then looks at groups for about half a second: a transaction at REPEATABLE READ
   * may have left one whose jobs all wait. The next call goes on with further groups. Workers call it every 30 seconds.
   */
  cleanUp(): Promise<void>
  /** Stops the workers and the firing of stored schedules, with the grace, and closes the connections. May be called again. */
  close(options?: StopOptions): Promise<void>
  /** `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void>
}
