import type { JobCount, JobState, JobsInTime } from '../jobs/index.ts'

/** One page of jobs, newest first. Times are in milliseconds since 1970, by the clock of the database. */
export interface JobsJson {
  /** `undefined` until they were read. */
  readonly jobs: readonly JobRowJson[] | undefined
  /** For `after`, to get the next page. `null`: there are no more. */
  readonly next: string | null
  /** The jobs by name and state; `undefined` until they were counted. */
  readonly counts: readonly JobCount[] | undefined
  /** The jobs that were enqueued and that ended over time, oldest step first. */
  readonly steps: readonly JobStepJson[] | undefined
  /** Why the jobs could not be read. */
  readonly message: string | undefined
}

/** One job. */
export interface JobJson {
  /** `null`: there is none of this id; `undefined` until it was read. */
  readonly job: JobDetailsJson | null | undefined
  readonly message: string | undefined
}

export interface JobRowJson {
  readonly id: string
  readonly name: string
  readonly state: JobState
  readonly attempt: number
  readonly failures: number
  readonly maxAttempts: number
  readonly priority: number
  readonly key: string | undefined
  readonly group: string | undefined
  readonly worker: string | undefined
  /** In a list the first line only. */
  readonly error: string | undefined
  readonly enqueuedAt: number
  readonly startedAt: number | undefined
  readonly dueAt: number | undefined
  readonly endedAt: number | undefined
}

export interface JobDetailsJson extends JobRowJson {
  /** As indented JSON, cut if it is very long. */
  readonly payload: string
  readonly failedAttempts: readonly {
    readonly attempt: number
    readonly worker: string | undefined
    readonly startedAt: number
    readonly endedAt: number
    readonly error: string
  }[]
}

export interface JobStepJson extends Omit<JobsInTime, 'from'> {
  readonly fromAt: number
}
