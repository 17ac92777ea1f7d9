/**
 * Jobs in PostgreSQL. See [Jobs](../../docs/jobs.md).
 *
 * @module
 */
export { inBatches, type JobBatchOptions, type JobBatchWork } from './batches.ts'
export { createJobs } from './create-jobs.ts'
export {
  type ClaimedJob,
  type CompleteOptions,
  type FailedAttempt,
  type FailOptions,
  type FailOutcome,
  JOB_STATES,
  type JobBacklog,
  type JobCount,
  type JobDetails,
  type JobFacts,
  type JobState,
  type JobsInTime,
  type JobView,
  type RunningJob,
  type SettleOptions,
} from './job.ts'
export { type JobEvent, type JobEvents, jobEvents } from './job-events.ts'
export type {
  BacklogOptions,
  ClaimOptions,
  CountOverTimeOptions,
  Drained,
  DrainOptions,
  JobFilter,
  JobPage,
  JobSelection,
  Jobs,
  JobsOptions,
  ListOptions,
  PauseOptions,
  WaitForOptions,
  Worker,
} from './jobs.ts'
export type { NamedLimit, NameLimit } from './name-limits.ts'
export type {
  EnqueueArguments,
  EnqueueOptions,
  IfChildFails,
  IfTaken,
  JobOptions,
  NewJob,
} from './new-job.ts'
export { openJobs } from './open.ts'
export type { JobFailure } from './run-settlement.ts'
export type { WorkOptions } from './work-options.ts'
export type { JobHandler } from './worker.ts'
