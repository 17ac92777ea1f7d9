import type { Duration } from '../base/duration.ts'
import type { SqlClient } from '../postgres/executor.ts'

/**
 * What is known of a job that was claimed. Its `attempt` is the fence of the claim: it rises each time the job is
 * claimed.
 */
export interface JobFacts<Payload = unknown> {
  readonly id: string
  readonly name: string
  readonly payload: Payload
  /** 1 for the first claim. Never falls and never repeats, not even when a dead job is retried. */
  readonly attempt: number
  /** How many attempts have failed before this one, or were lost with their worker. */
  readonly failures: number
  /** The job is dead once this many have failed. */
  readonly maxAttempts: number
  readonly priority: number
  readonly key: string | null
  readonly group: string | null
  /** By the database's clock. */
  readonly enqueuedAt: Date
}

export interface SettleOptions {
  /**
   * The caller's open transaction, in which the job ends together with what it did: exactly once. Of pg, postgres.js,
   * Kysely, Drizzle, Prisma, or what has a `query(text, parameters)`. Default: a transaction of its own.
   */
  readonly transaction?: SqlClient | undefined
}

export interface FailOptions extends SettleOptions {
  /** False: the job is dead at once, however many attempts it has left. Default: true. */
  readonly retry?: boolean | undefined
  /** How long until the next attempt, instead of the job's backoff: milliseconds or `'5m'`. 0: at once. */
  readonly retryIn?: Duration | undefined
}

/** What became of a job whose attempt failed or was given back. */
export type FailOutcome = 'ready' | 'delayed' | 'dead' | 'superseded'

/** A job that was claimed, with its ways to end. */
export interface ClaimedJob<Payload = unknown> extends JobFacts<Payload> {
  /**
   * Looks at the clocks on the spot: returns while no other worker can have the job. Call it before a step that cannot be
   * taken back, and before the work of each job of a batch. It asks nobody, so a job that was cancelled may pass.
   *
   * @throws {LeaseLostError} when the lease is over, also where the event loop was blocked and no timer has fired.
   */
  assertHeld(): void
  /**
   * The job is done. Calls of the same moment share a statement.
   *
   * @throws {LeaseLostError} when this attempt is not the one that runs: nothing was changed, and a transaction given
   * is to be rolled back, which throwing on from it does.
   * @throws {StoreError} `store-unavailable`: nobody knows. Calling again is safe.
   */
  complete(options?: SettleOptions): Promise<void>
  /**
   * The attempt failed: the job is tried again later, or dead. Resolves with what became of it.
   *
   * @throws as {@link complete}.
   */
  fail(error: unknown, options?: FailOptions): Promise<FailOutcome>
  /**
   * Gives the job back unharmed: it is ready again at once, and this attempt does not count as a failure.
   *
   * @throws as {@link complete}.
   */
  giveBack(options?: SettleOptions): Promise<void>
}

/**
 * What a handler is given. The worker renews its lease, and settles it when the handler is over. Its methods need no `this`,
 * but a copy (`{ ...job }`) has neither them nor the signal.
 */
export interface RunningJob<Payload = unknown> extends ClaimedJob<Payload> {
  /**
   * Aborts with a {@link LeaseLostError} when the job is no longer this worker's (before another one can have it),
   * with `task-failed` after `maxRun`, and with {@link ClosedError} when the grace of `stop` is over. Pass it on to
   * whatever the handler awaits. While the handler blocks the event loop the signal cannot abort; reading `job.signal`
   * afterwards looks at the clocks, as `assertHeld()` does.
   */
  readonly signal: AbortSignal
}

/**
 * `ready`: may be claimed. `blocked`: another job of its group comes first. `delayed`: until `runAt`, or its next
 * attempt. `running`: a worker has it. `completed`. `dead`: it failed too often, or was not to be retried.
 * `cancelled`: by a person. `superseded`: it failed while a newer job with its key waited, which stands for both.
 */
export type JobState =
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
  'ready',
  'blocked',
  'delayed',
  'running',
  'completed',
  'dead',
  'cancelled',
  'superseded',
]

/** A job as people look at it. All times are the database's. */
export interface JobView extends JobFacts {
  readonly state: JobState
  /** Who runs it, or was the last to. */
  readonly worker: string | null
  /** Why its last failed attempt failed, or why it was cancelled. */
  readonly error: string | null
  readonly startedAt: Date | null
  /** When a delayed job may start, or the lease of a running one ends. */
  readonly dueAt: Date | null
  readonly finishedAt: Date | null
  /** How long ago it was enqueued, in milliseconds. */
  readonly ageMs: number
}

export interface JobCount {
  readonly name: string
  readonly state: JobState
  readonly count: number
  /** How long ago the oldest of them was enqueued, in milliseconds. */
  readonly oldestMs: number
}
