import type { JobCount } from '../jobs/index.ts'
import { jobDetailsJson, jobRowJson, jobStepJson } from './job-json.ts'
import type { JobDetailsJson, JobJson, JobRowJson, JobStepJson, JobsJson } from './job-view-json.ts'
import { JOB_SPANS, type JobsRequest, jobFilterOf } from './jobs-request.ts'
import type { DashboardOptions } from './options.ts'
import { SharedLook } from './shared-look.ts'

/** What the dashboard asks of the jobs. */
export type DashboardJobs = NonNullable<DashboardOptions['jobs']>

type JobList = Pick<JobsJson, 'jobs' | 'next'>

/** Reads the jobs for the open pages. Pages with the same request share a look. */
export class JobsLook {
  readonly #jobs: DashboardJobs
  readonly #lists: Map<string, SharedLook<JobList>> = new Map()
  readonly #details: Map<string, SharedLook<JobDetailsJson | null>> = new Map()
  readonly #steps: Map<string, SharedLook<readonly JobStepJson[]>> = new Map()
  readonly #counts: SharedLook<readonly JobCount[]>

  constructor(jobs: DashboardJobs) {
    this.#jobs = jobs
    this.#counts = new SharedLook(() => jobs.count(), COUNTS_REST_MS)
  }

  /** Resolves once the jobs were read. Their counts may come later, as counting reads whole tables. */
  async ready(request: JobsRequest): Promise<void> {
    await (request.view === 'job' ? this.#jobOf(request) : this.#listOf(request)).ready()
  }

  /** The last view. Reading it starts the looks that are due. */
  view(request: JobsRequest): JobsJson | JobJson {
    for (const looks of [this.#lists, this.#details, this.#steps]) forget(looks)
    if (request.view === 'job') {
      const { value, message } = this.#jobOf(request).latest
      return { job: value, message }
    }
    const list = this.#listOf(request).latest
    const counts = this.#counts.latest
    const steps = this.#stepsOf(request).latest
    return {
      jobs: list.value?.jobs,
      next: list.value?.next ?? null,
      counts: counts.value,
      steps: steps.value,
      message: list.message ?? counts.message ?? steps.message,
    }
  }

  /** The newest jobs that fit the filter, for an export. */
  async all({ filter }: Extract<JobsRequest, { view: 'jobs' }>): Promise<readonly JobRowJson[]> {
    const found: JobRowJson[] = []
    let after: string | undefined
    do {
      const { jobs, next } = await this.#jobs.list({
        ...jobFilterOf(filter),
        after,
        limit: EXPORTED_TOGETHER,
      })
      found.push(...jobs.map(jobRowJson))
      after = next ?? undefined
    } while (after !== undefined && found.length < MOST_EXPORTED)
    return found
  }

  /** Resolves once every view shows what the caller has just changed. */
  async refresh(): Promise<void> {
    const looks = [...this.#lists.values(), ...this.#details.values(), ...this.#steps.values(), this.#counts]
    await Promise.all(looks.map((look) => look.again()))
  }

  #listOf({ filter, after }: Extract<JobsRequest, { view: 'jobs' }>): SharedLook<JobList> {
    return known(this.#lists, JSON.stringify([filter, after]), () => {
      const read = async (): Promise<JobList> => {
        const { jobs, next } = await this.#jobs.list({ ...jobFilterOf(filter), after, limit: PAGE_JOBS })
        return { jobs: jobs.map(jobRowJson), next }
      }
      return new SharedLook(read, LIST_REST_MS)
    })
  }

  #jobOf({ id }: Extract<JobsRequest, { view: 'job' }>): SharedLook<JobDetailsJson | null> {
    return known(this.#details, id, () => {
      const read = async (): Promise<JobDetailsJson | null> => {
        const job = await this.#jobs.find(id)
        return job === null ? null : jobDetailsJson(job)
      }
      return new SharedLook(read, LIST_REST_MS)
    })
  }

  #stepsOf({ filter, span }: Extract<JobsRequest, { view: 'jobs' }>): SharedLook<readonly JobStepJson[]> {
    const { name } = filter
    return known(this.#steps, JSON.stringify([span, name]), () => {
      const read = async (): Promise<readonly JobStepJson[]> =>
        (await this.#jobs.countOverTime({ ...JOB_SPANS[span], name })).map(jobStepJson)
      return new SharedLook(read, COUNTS_REST_MS)
    })
  }
}

function known<T>(looks: Map<string, SharedLook<T>>, name: string, make: () => SharedLook<T>): SharedLook<T> {
  const look = looks.get(name) ?? make()
  looks.set(name, look)
  return look
}

function forget(looks: Map<string, SharedLook<unknown>>): void {
  const before = performance.now() - UNUSED_MS
  for (const [name, { askedAt }] of looks) if (askedAt < before) looks.delete(name)
}

const PAGE_JOBS = 50
const EXPORTED_TOGETHER = 500
/** The page says so, too. */
const MOST_EXPORTED = 10_000
const LIST_REST_MS = 1000
const COUNTS_REST_MS = 5000
const UNUSED_MS = 30_000
