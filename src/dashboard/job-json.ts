import { shortened } from '../base/text.ts'
import type { JobDetails, JobsInTime, JobView } from '../jobs/index.ts'
import type { JobDetailsJson, JobRowJson, JobStepJson } from './job-view-json.ts'

/** Without the payload, and with the first line of the error only. */
export function jobRowJson(job: JobView): JobRowJson {
  const { id, name, state, attempt, failures, maxAttempts, priority, worker, error } = job
  return {
    id,
    name,
    state,
    attempt,
    failures,
    maxAttempts,
    priority,
    key: job.key ?? undefined,
    group: job.group ?? undefined,
    worker: worker ?? undefined,
    error: error?.split('\n')[0]?.slice(0, ROW_ERROR),
    enqueuedAt: job.enqueuedAt.getTime(),
    startedAt: job.startedAt?.getTime(),
    dueAt: job.dueAt?.getTime(),
    endedAt: job.endedAt?.getTime(),
  }
}

export function jobDetailsJson(job: JobDetails): JobDetailsJson {
  return {
    ...jobRowJson(job),
    error: job.error ?? undefined,
    payload: shortened(JSON.stringify(job.payload, undefined, 2) ?? '', LONGEST_PAYLOAD),
    failedAttempts: job.failedAttempts.map(({ attempt, worker, startedAt, endedAt, error }) => ({
      attempt,
      worker: worker ?? undefined,
      startedAt: startedAt.getTime(),
      endedAt: endedAt.getTime(),
      error,
    })),
  }
}

export function jobStepJson({ from, ...counts }: JobsInTime): JobStepJson {
  return { ...counts, fromAt: from.getTime() }
}

const ROW_ERROR = 500
const LONGEST_PAYLOAD = 65_536
