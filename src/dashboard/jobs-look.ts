import { messageOf } from '../base/thrown.ts'
import { JOB_STATES, type Jobs, type JobView } from '../jobs/index.ts'

/** One view of the jobs for all viewers, read every 5 s at most: counting reads the whole table. */
export class JobsLook {
  readonly #jobs: Pick<Jobs, 'count' | 'inspect'>
  #view: object = { counts: [], jobs: [], states: JOB_STATES }
  #isLooking = false
  #nextAt = 0

  constructor(jobs: Pick<Jobs, 'count' | 'inspect'>) {
    this.#jobs = jobs
  }

  /** The last view. Reading it starts a new look when one is due. */
  get view(): object {
    if (!this.#isLooking && performance.now() >= this.#nextAt) void this.#look()
    return this.#view
  }

  async #look(): Promise<void> {
    this.#isLooking = true
    const startedAt = performance.now()
    try {
      const counts = await this.#jobs.count()
      const shown: object[] = []
      for (const state of ['running', 'dead', 'delayed'] as const) {
        let rest = JOBS_SHOWN
        for await (const job of this.#jobs.inspect({ state })) {
          if (rest === 0) break
          rest -= 1
          shown.push(jobJson(job))
        }
      }
      this.#view = { counts, jobs: shown, states: JOB_STATES, jobsAt: Date.now() }
    } catch (error) {
      const jobsMessage = messageOf(error)
      this.#view = { ...this.#view, jobsMessage }
    } finally {
      const tookMs = performance.now() - startedAt
      this.#nextAt = performance.now() + Math.max(EVERY_MS, 4 * tookMs)
      this.#isLooking = false
    }
  }
}

/** Without the payload, which may hold anything, and with the first line of the error only. */
function jobJson(job: JobView): object {
  const { id, name, state, attempt, failures, maxAttempts, worker, error, ageMs, startedAt, dueAt } = job
  return {
    id,
    name: name.slice(0, 200),
    state,
    attempt,
    failures,
    maxAttempts,
    worker: worker?.slice(0, 200),
    error: error?.split('\n')[0]?.slice(0, 500),
    ageMs,
    startedAt: startedAt?.getTime(),
    dueAt: dueAt?.getTime(),
  }
}

const JOBS_SHOWN = 50
const EVERY_MS = 5000
