import type { Duration } from '../base/duration.ts'
import type { SqlClient } from '../postgres/executor.ts'

/** A job and one attempt at it. */
export interface JobFacts<Payload = unknown> {
  /** The id of the job, which `enqueue` has returned. */
  readonly id: string
  /** The name under which the job was enqueued. */
  readonly name: string
  /** What was enqueued with the job, read from JSON. */
  readonly payload: Payload
  /** The number of the claim, and its fence: 1 for the first. It rises with each claim, also after a dead job is retried. */
  readonly attempt: number
  /** How many earlier attempts have failed, or were lost with their worker. */
  readonly failures: number
  /** The job is dead once this many attempts have failed. */
  readonly maxAttempts: number
  /** Jobs with a larger priority are claimed first. */
  readonly priority: number
  /** The unique key of the job. `null`: it has none. */
  readonly key: string | null
  /** The group whose jobs start in order. `null`: it has none. */
  readonly group: string | null
  /** By the database's clock. */
  readonly enqueuedAt: Date
  /** How long it was ready, or blocked by its group, before this attempt was claimed, in milliseconds. A delay does not count. */
  readonly waitedMs: number
  /** The `traceparent` of the span that enqueued the job, by W3C Trace Context. `null`: it was not traced. */
  readonly trace: string | null
}

/** How to end an attempt. */
export interface SettleOptions {
  /**
   * The caller's open transaction. The job and the writes of that transaction take effect together, and so exactly once.
   * From pg, postgres.js, Kysely, Drizzle or Prisma, or any object with `query(text, parameters)`. Default: a transaction of
   * its own.
   */
  readonly transaction?: SqlClient | undefined
}

/** How to complete a job. */
export interface CompleteOptions extends SettleOptions {
  /** What `find` and `waitFor` show as the `result`: JSON of up to `maxPayloadBytes`. Default: null. */
  readonly result?: unknown
}

/** How to end an attempt as failed. */
export interface FailOptions extends SettleOptions {
  /** `false`: the job is dead at once, however many attempts are left. Default: true. */
  readonly retry?: boolean | undefined
  /** How long until the next attempt, instead of the job's backoff: milliseconds or `'5m'`. 0: at once. */
  readonly retryIn?: Duration | undefined
}

/** The state of a job after its attempt failed or was given back. */
export type FailOutcome = 'ready' | 'delayed' | 'dead' | 'superseded'

/** A job that was claimed, with its ways to end. */
export interface ClaimedJob<Payload = unknown> extends JobFacts<Payload> {
  /**
   * Reads the clocks and returns if no other worker can have the job yet. Call it before a step that cannot be undone, and
   * before the work of each job of a batch. It does not ask the database, so it does not notice a cancelled job.
   *
   * @throws {LeaseLostError} if the lease has ended, even if a blocked event loop has kept all timers from firing.
   */
  assertHeld(): void
  /**
   * Completes the job. Calls in the same turn of the event loop share a statement.
   *
   * @throws {LeaseLostError} if this attempt is not the current one. Nothing was changed. If you gave a `transaction`, let
   * the error pass, so that the transaction is rolled back.
   * @throws {StoreError} `store-unavailable`: no answer came, so the job may be completed. You may call again.
   */
  complete(options?: CompleteOptions): Promise<void>
  /**
   * Ends the attempt as failed. The job runs again later, or is dead. Resolves with its new state.
   *
   * @throws like {@link complete}.
   */
  fail(error: unknown, options?: FailOptions): Promise<FailOutcome>
  /**
   * Gives the job back: it is ready again at once, and this attempt does not count as a failure.
   *
   * @throws like {@link complete}.
   */
  giveBack(options?: SettleOptions): Promise<void>
  /**
   * Stores how far the job is, for `list`, `find` and those who wait for the job: JSON of up to 8,000 bytes. While a request is
   * on its way, only the latest value is kept for the next one, so you may call it as often as you like. You need not await it: the
   * last value is stored before the job is settled.
   *
   * @throws {LeaseLostError} if this attempt is not the current one.
   * @throws {StoreError} `store-unavailable`: no answer came. The job goes on.
   */
  setProgress(progress: unknown): Promise<void>
  /**
   * The children that were given to `enqueue`, with their results, in that order. Empty: it has none.
   *
   * @throws {StoreError} `store-unavailable`: no answer came. The job goes on.
   */
  children(): Promise<readonly JobDetails[]>
}

/**
 * The job that a handler receives. The worker renews its lease, and settles it when the handler ends. Its methods need no
 * `this`. A copy (`{ ...job }`) has no methods and no signal.
 */
export interface RunningJob<Payload = unknown> extends ClaimedJob<Payload> {
  /**
   * Aborts when the handler has to end. Pass it to everything that the handler awaits. The reason is
   *
   * - a {@link LeaseLostError} if the lease has ended, before another worker can have the job,
   * - a `TaskFailedError` after `maxRun`,
   * - a {@link ClosedError} after the grace of `stop`.
   *
   * The signal cannot abort while the handler blocks the event loop. To read `job.signal` afterwards checks the clocks, as
   * `assertHeld()` does.
   */
  readonly signal: AbortSignal
}

/**
 * - `pending`: waits for its children.
 * - `ready`: may be claimed.
 * - `blocked`: another job of its group comes first.
 * - `delayed`: waits for its `runAt` or `delay`, or for its next attempt.
 * - `running`: a worker has it. If the worker claimed it ahead, it begins as soon as there is a place.
 * - `completed`: done.
 * - `dead`: it failed too often, or failed with `retry: false`.
 * - `cancelled`: ended by `cancel`.
 * - `superseded`: it failed while a newer job with its key waited. The newer job stands for both.
 */
export type JobState =
  | 'pending'
  | 'ready'
  | 'blocked'
  | 'delayed'
  | 'running'
  | 'completed'
  | 'dead'
  | 'cancelled'
  | 'superseded'

/** In the order in which a job may go through them. */
export const JOB_STATES: readonly JobState[] = [
  'pending',
  'ready',
  'blocked',
  'delayed',
  'running',
  'completed',
  'dead',
  'cancelled',
  'superseded',
]

/** In the order in which a job may go through them. */
export const NOT_ENDED: readonly JobState[] = ['pending', 'ready', 'blocked', 'delayed', 'running']
export const ENDED: readonly JobState[] = JOB_STATES.filter((state) => !NOT_ENDED.includes(state))

/** A job as `list` and `inspect` show it. All times are from the database's clock. */
export interface JobView extends Omit<JobFacts, 'payload' | 'waitedMs' | 'trace'> {
  /** Where the job stands. */
  readonly state: JobState
  /** How many jobs of its `group` may run at once. 1 without a group. */
  readonly groupLimit: number
  /** The name of the worker that runs it, or ran it last. */
  readonly worker: string | null
  /** The error of its last failed attempt, or the reason of its cancel. */
  readonly error: string | null
  /** What its handler has last given to `setProgress`. `null`: nothing. */
  readonly progress: unknown
  /** When it was claimed for its latest attempt. */
  readonly startedAt: Date | null
  /** When a delayed job may start, or when the lease of a running job ends. */
  readonly dueAt: Date | null
  /** When the job was completed, cancelled or superseded, or became dead. `null`: it has not ended. */
  readonly endedAt: Date | null
  /** How long ago it was enqueued, in milliseconds. */
  readonly ageMs: number
}

/** A job as `find` and `waitFor` show it: with its payload, its result, and what became of its attempts. */
export interface JobDetails extends JobView {
  /** What was enqueued with the job, read from JSON. */
  readonly payload: unknown
  /** What its handler has returned, read from JSON. `null`: nothing, or the job is not completed. */
  readonly result: unknown
  /** The ids of its children. Empty: it has none. */
  readonly children: readonly string[]
  /** The attempts that have failed or were lost with their worker, in order: the latest 100. */
  readonly failedAttempts: readonly FailedAttempt[]
}

/** An attempt that has failed, or whose worker was not heard of within its lease. */
export interface FailedAttempt {
  /** The number of the attempt. */
  readonly attempt: number
  /** The name of the worker that had the job. */
  readonly worker: string | null
  /** When it was claimed for this attempt. */
  readonly startedAt: Date
  /** When the database recorded the failure. */
  readonly endedAt: Date
  /** The stack of the error or its message, of up to 4,000 characters. */
  readonly error: string
}

/** How many jobs were enqueued, and how many ended, within a time. Jobs that were deleted meanwhile are not among them. */
export interface JobsInTime {
  /** When this time begins, by the database's clock. */
  readonly from: Date
  /** How many were enqueued. */
  readonly enqueued: number
  /** How many were completed. */
  readonly completed: number
  /** How many became dead. */
  readonly dead: number
  /** How many were cancelled. */
  readonly cancelled: number
  /** How many were superseded. */
  readonly superseded: number
}

/** How many jobs of one name are yet to be done in one way, as `backlog` counts them. */
export interface JobBacklog {
  /** The name of the jobs. */
  readonly name: string
  /** `ready`: a worker could have them now. */
  readonly state: 'ready' | 'blocked' | 'delayed' | 'dead'
  /** How many they are. */
  readonly count: number
  /**
   * For how long the oldest of them has been ready or blocked, in milliseconds. A delay does not count. Of `ready` jobs it is the oldest
   * one of the next hundred of each priority. `null` for `delayed` and `dead`.
   */
  readonly oldestMs: number | null
  /** Whether there are more than were counted. */
  readonly isMore: boolean
}

/** How many jobs there are of one name in one state. */
export interface JobCount {
  /** The name of the jobs. */
  readonly name: string
  /** The state that they are in. */
  readonly state: JobState
  /** How many they are. */
  readonly count: number
  /** How long ago the oldest of these jobs was enqueued, in milliseconds. */
  readonly oldestMs: number
}
