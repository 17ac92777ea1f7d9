export type {
  PgQueryable,
  PostgresJsQueryable,
  SqlClient,
  SqlExecutor,
  SqlRow,
} from '../postgres/executor.ts'
export type {
  ClaimedJob,
  FailOptions,
  FailOutcome,
  JobCount,
  JobFacts,
  JobState,
  JobView,
  RunningJob,
  SettleOptions,
} from './job.ts'
export {
  type ClaimOptions,
  createJobs,
  type InspectOptions,
  type Jobs,
  type JobsOptions,
  type StopOptions,
  type Worker,
} from './jobs.ts'
export type { EnqueueOptions, JobOptions, NewJob } from './new-job.ts'
export type { WorkOptions } from './work-options.ts'
export type { JobFailure, JobHandler } from './worker.ts'
