import { parseFunction } from '../base/arguments.ts'
import { paused, systemClock } from '../base/clock.ts'
import { type Duration, parseDuration, TTL_RANGE } from '../base/duration.ts'
import type { JobBacklog, Jobs } from '../jobs/index.ts'
import type { WorkLabels, WorkOfKind } from './work-measures.ts'

/** Whose jobs are counted at each scrape. */
export interface BacklogScrapeOptions {
  /** The jobs whose backlog the database is asked for, once at each scrape. Default: none. */
  readonly jobs?: Pick<Jobs, 'backlog'> | undefined
  /**
   * How long a scrape waits for the database: milliseconds, or `'2s'`; from 50 ms. After that `jobs_answered` is 0, and the numbers of the
   * backlog are left out of this scrape. Default: 2 s.
   */
  readonly timeout?: Duration | undefined
}

/** A number of the backlog. */
export interface AskedReading {
  readonly name: WorkOfKind<'asked'>
  readonly value: number
  readonly labels: WorkLabels
}

/** Asks for the backlog, one question at a time, and waits for no answer longer than a scrape may take. */
export class BacklogWatch {
  readonly #jobs: Pick<Jobs, 'backlog'> | undefined
  readonly #timeoutMs: number
  readonly #jobOf: (name: string) => string
  /** All places that were ever reported. What is empty now reports 0, as its last number would stay otherwise. */
  readonly #known = new Map<string, { readonly name: 'jobs' | 'oldest_job'; readonly labels: WorkLabels }>()
  #question: Promise<readonly JobBacklog[] | undefined> | undefined
  #look: Promise<readonly AskedReading[]> | undefined

  /** @throws {InvalidArgumentError} */
  constructor({ jobs, timeout = '2s' }: BacklogScrapeOptions, jobOf: (name: string) => string) {
    if (jobs !== undefined) parseFunction('jobs.backlog', jobs?.backlog)
    this.#jobs = jobs
    this.#timeoutMs = parseDuration('timeout', timeout, TTL_RANGE)
    this.#jobOf = jobOf
  }

  /** Whether there are jobs to ask for. */
  get isAsking(): boolean {
    return this.#jobs !== undefined
  }

  /** All metrics of a scrape share one look. Never rejects. */
  look(): Promise<readonly AskedReading[]> {
    this.#look ??= this.#readings().finally(() => {
      this.#look = undefined
    })
    return this.#look
  }

  async #readings(): Promise<readonly AskedReading[]> {
    if (this.#jobs === undefined) return []
    const backlog = await this.#inTime(this.#jobs)
    const answered = { name: 'jobs_answered', value: backlog === undefined ? 0 : 1, labels: {} } as const
    return backlog === undefined ? [answered] : [answered, ...this.#numbersOf(backlog)]
  }

  /** `undefined`: no answer in time. A question that is still open is not asked a second time. */
  async #inTime(jobs: Pick<Jobs, 'backlog'>): Promise<readonly JobBacklog[] | undefined> {
    this.#question ??= ask(jobs).finally(() => {
      this.#question = undefined
    })
    const answered = new AbortController()
    const late = paused(systemClock, this.#timeoutMs, answered.signal).then(() => undefined)
    try {
      return await Promise.race([this.#question, late])
    } finally {
      answered.abort()
    }
  }

  #numbersOf(backlog: readonly JobBacklog[]): readonly AskedReading[] {
    const numbers = new Map<string, number>()
    for (const { name, state, count, oldestMs } of backlog) {
      const job = this.#jobOf(name)
      for (const each of STATES) this.#know('jobs', { job, state: each })
      const place = this.#know('jobs', { job, state })
      numbers.set(place, (numbers.get(place) ?? 0) + count)
      const oldest = this.#know('oldest_job', { job })
      numbers.set(oldest, Math.max(numbers.get(oldest) ?? 0, (oldestMs ?? 0) / 1000))
    }
    return Array.from(this.#known, ([place, one]) => ({ ...one, value: numbers.get(place) ?? 0 }))
  }

  #know(name: 'jobs' | 'oldest_job', labels: WorkLabels): string {
    const place = `${name} ${labels.job} ${labels.state}`
    if (!this.#known.has(place)) this.#known.set(place, { name, labels })
    return place
  }
}

async function ask(jobs: Pick<Jobs, 'backlog'>): Promise<readonly JobBacklog[] | undefined> {
  try {
    return await jobs.backlog()
  } catch {
    // The metric `jobs_answered` tells of it. A scrape has the other metrics all the same.
    return undefined
  }
}

const STATES: readonly JobBacklog['state'][] = ['ready', 'blocked', 'delayed', 'dead']
