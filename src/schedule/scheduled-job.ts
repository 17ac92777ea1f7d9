import type { Owner, StopOptions } from '../index.ts'
import type { TickResult } from './marks.ts'
import type { FinishedRun } from './run.ts'

/** The state of a job that the store, and so every process, knows at this moment. */
export interface ScheduleStatus {
  /** The next tick by this machine's clock; `undefined` when none is to come. */
  readonly nextAt: Date | undefined
  /** The process that runs the job now, and when the run began by this machine's clock. */
  readonly running: { readonly owner: Owner; readonly startedAt: Date } | undefined
  /**
   * The later one of the last two ticks that is settled. `skipped`: it overlapped with a run. The store remembers a tick until
   * the next one, and then for as long as it may be made up for and 5 minutes more.
   */
  readonly last:
    | {
        readonly scheduledAt: Date
        readonly endedAt: Date
        readonly result: TickResult
        readonly owner: Owner
      }
    | undefined
}

/** One job of a schedule. */
export interface ScheduledJob {
  /** The name under which the job was added. */
  readonly name: string
  /** The cron expression. */
  readonly expression: string
  /** The time zone in which the expression counts. */
  readonly timezone: string
  /** The next tick by this machine's clock; `undefined` when none is to come. */
  readonly nextAt: Date | undefined
  /** The last run that ended in this process. */
  readonly last: FinishedRun | undefined
  /**
   * Runs the work here and now, as soon as no other run of this job is going on anywhere. In addition to the ticks: none is
   * replaced by it, and nobody takes it over should this process die.
   *
   * @throws what the work throws; {@link AcquireTimeoutError} when another run took longer than the `wait` of the locks;
   * {@link ClosedError} when the job is stopped; {@link StoreError}.
   */
  runNow(): Promise<FinishedRun>
  /** Asks the store. Costs a few requests. */
  status(): Promise<ScheduleStatus>
  /** As `stop()` of the schedule, for this job only. Its name may be added again afterwards. */
  stop(options?: StopOptions): Promise<void>
}
