import { explained } from '../../../base/explained.ts'
import { StoreError } from '../../../errors.ts'
import type { JobCount, JobDetails, JobPage, Jobs, JobsInTime } from '../../../jobs/index.ts'
import type { GivenFilter } from '../../job-filter.ts'
import { pausedNames } from '../../job-text.ts'
import { SeldomLook } from './seldom-look.ts'

/** What of the jobs is looked at. */
export interface JobsQuery {
  readonly filter: GivenFilter
  /** The page after this job. `undefined`: the first one. */
  readonly after: string | undefined
  /** The job whose page is open. */
  readonly id: string | undefined
  readonly withHistory: boolean
}

export interface JobsSeen {
  /** When the last look was answered. 0: none was. */
  readonly at: number
  readonly store: JobsStoreState
  /** `undefined`: this page of the list was not seen yet. */
  readonly page: JobPage | undefined
  /** `null`: there is no such job. `undefined`: it was not seen yet. */
  readonly job: JobDetails | null | undefined
  readonly counts: readonly JobCount[] | undefined
  /** The names that are paused. */
  readonly paused: readonly string[]
  readonly history: readonly JobsInTime[] | undefined
  /** Why there are no counts. Large tables may take longer to count than a statement may. */
  readonly countsProblem: string | undefined
  readonly historyProblem: string | undefined
}

/** `refused`: the database answers, but does not do what it was asked to, such as where the tables are missing. */
type JobsStoreState =
  | { readonly tag: 'present'; readonly lookMs: number }
  | { readonly tag: 'away'; readonly sinceAt: number; readonly message: string }
  | { readonly tag: 'refused'; readonly message: string }

export interface JobLooksOptions {
  readonly everyMs: number
  readonly onSeen: () => void
  /** Something went wrong that is not of the store, such as a name that no job can have. */
  readonly onError: (error: unknown) => void
}

/** Looks at the jobs again and again, one look at a time, and keeps what was seen while the store is away. */
export class JobLooks {
  readonly #jobs: Jobs
  readonly #options: JobLooksOptions
  readonly #counts: SeldomLook<readonly JobCount[]>
  #history: SeldomLook<readonly JobsInTime[]>
  #query: JobsQuery
  #at = 0
  #store: JobsStoreState = { tag: 'present', lookMs: 0 }
  #page: JobPage | undefined
  #job: JobDetails | null | undefined
  #paused: readonly string[] = []
  #timer: NodeJS.Timeout | undefined
  #isLooking = false
  #isDue = false
  #isStopped = false

  constructor(jobs: Jobs, query: JobsQuery, options: JobLooksOptions) {
    this.#jobs = jobs
    this.#query = query
    this.#options = options
    this.#counts = new SeldomLook(() => jobs.count(), this.#onAnswer)
    this.#history = this.#historyOf(query)
  }

  get seen(): JobsSeen {
    return {
      at: this.#at,
      store: this.#store,
      page: this.#page,
      job: this.#job,
      counts: this.#counts.latest,
      paused: this.#paused,
      history: this.#history.latest,
      countsProblem: this.#counts.problem,
      historyProblem: this.#history.problem,
    }
  }

  /** Looks at something else from now on. What was seen of the old query is forgotten where it does not fit. */
  ask(query: JobsQuery): void {
    const { filter, after, id, withHistory } = this.#query
    const isSameList = filter === query.filter && after === query.after
    if (isSameList && id === query.id && withHistory === query.withHistory) return
    if (!isSameList) this.#page = undefined
    if (id !== query.id) this.#job = undefined
    if (filter.name !== query.filter.name) this.#history = this.#historyOf(query)
    this.#query = query
    this.lookNow()
  }

  /** Also counts at once where something has changed. */
  lookNow({ hasChanged = false }: { readonly hasChanged?: boolean } = {}): void {
    if (hasChanged) this.#counts.lookNow()
    if (this.#isLooking) this.#isDue = true
    else void this.#look()
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
  }

  readonly #onAnswer = (): void => {
    if (!this.#isStopped) this.#options.onSeen()
  }

  #historyOf({ filter: { name } }: JobsQuery): SeldomLook<readonly JobsInTime[]> {
    const ask = () => this.#jobs.countOverTime({ span: HISTORY_SPAN_MS, step: HISTORY_STEP_MS, name })
    return new SeldomLook(ask, this.#onAnswer)
  }

  async #look(): Promise<void> {
    if (this.#isStopped) return
    clearTimeout(this.#timer)
    this.#isLooking = true
    this.#counts.look()
    if (this.#query.withHistory) this.#history.look()
    try {
      await this.#see(this.#query)
    } catch (error) {
      if (!(error instanceof StoreError)) {
        this.#isLooking = false
        this.#options.onError(error)
        return
      }
      this.#store = this.#failed(error)
    }
    this.#isLooking = false
    this.#onAnswer()
    const { everyMs } = this.#options
    // At most half of the time is spent looking.
    const lookMs = this.#store.tag === 'present' ? this.#store.lookMs : 0
    const waitMs = this.#isDue ? 0 : Math.max(everyMs, lookMs)
    this.#isDue = false
    if (!this.#isStopped) this.#timer = setTimeout(() => void this.#look(), waitMs)
  }

  #failed(error: StoreError): JobsStoreState {
    const message = explained(error)
    if (error.code === 'store-refused') return { tag: 'refused', message }
    return { tag: 'away', sinceAt: this.#store.tag === 'away' ? this.#store.sinceAt : Date.now(), message }
  }

  async #see(query: JobsQuery): Promise<void> {
    const begun = performance.now()
    const { filter, after, id } = query
    const [page, job, limits] = await Promise.all([
      this.#jobs.list({ ...filter, after, limit: PAGE_JOBS }),
      id === undefined ? undefined : this.#jobs.find(id),
      this.#jobs.limits(),
    ])
    // Where the last look has failed, so has the count, which rests now.
    if (this.#store.tag !== 'present') this.#counts.lookNow()
    this.#store = { tag: 'present', lookMs: performance.now() - begun }
    this.#at = Date.now()
    this.#paused = pausedNames(limits)
    // Another page may have been asked for meanwhile.
    if (filter === this.#query.filter && after === this.#query.after) this.#page = page
    if (id === this.#query.id) this.#job = job
  }
}

export const PAGE_JOBS = 50
const HISTORY_SPAN_MS = 3_600_000
const HISTORY_STEP_MS = 300_000
