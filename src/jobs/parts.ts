import { expected } from '../base/arguments.ts'
import { processWide } from '../base/process-wide.ts'
import type { JobTables } from './job-tables.ts'
import type { JobWakes } from './wakes.ts'

/** What the schedules of the jobs use, too: the same connections and the same subscription. */
export interface JobsParts {
  readonly tables: JobTables
  readonly wakes: JobWakes
  readonly maxPayloadBytes: number
  readonly assertOpen: () => void
  /** `close()` of the jobs stops these before it closes the connections. */
  readonly endWithJobs: Set<{ stop(): Promise<void> }>
}

const known = processWide('parts of jobs', () => new WeakMap<object, JobsParts>())

export function rememberParts(jobs: object, parts: JobsParts): void {
  known.set(jobs, parts)
}

/** @throws {InvalidArgumentError} when `jobs` is not what `createJobs` has made. */
export function partsOf(jobs: unknown): JobsParts {
  const parts = typeof jobs === 'object' && jobs !== null ? known.get(jobs) : undefined
  if (parts !== undefined) return parts
  throw expected('jobs', 'what createJobs(…) or openJobs(…) returns', jobs)
}
