import { backoffMs } from '../base/backoff.ts'
import { type Instant, paused, systemClock } from '../base/clock.ts'
import { ClosedError, isHoldfastError } from '../errors.ts'
import { ClaimLoop, RETRYING } from './claim-loop.ts'
import { COMPLETED, failed, GIVEN_BACK, lostError, type SettleContext } from './claimed-job.ts'
import type { FailOutcome, JobFacts, RunningJob } from './job.ts'
import { JobRun } from './job-run.ts'
import type { JobTables } from './job-tables.ts'
import { LeaseTime } from './lease-time.ts'
import { LeaseWatch } from './lease-watch.ts'
import type { AttemptEnd } from './settlement-queue.ts'
import type { JobWakes } from './wakes.ts'

export type JobHandler<Payload = unknown> = (job: RunningJob<Payload>) => unknown

/**
 * What became of an attempt that did not end well. `lost`: the job was no longer this worker's, and the database was not
 * changed.
 */
export interface JobFailure {
  readonly job: JobFacts
  readonly error: unknown
  readonly outcome: FailOutcome | 'completed' | 'lost'
}

export interface WorkerSettings {
  readonly concurrency: number
  readonly ttlMs: number
  readonly maxRunMs: number
  readonly pollMs: number
  readonly name: string
  /** Neither of them throws. */
  readonly onFailure: (failure: JobFailure) => void
  readonly onError: (error: unknown) => void
}

export interface WorkerParts {
  readonly tables: JobTables
  /** On a connection of its own, so that claims and settlements cannot delay a renewal. */
  readonly renewals: JobTables
  readonly settling: SettleContext
  readonly wakes: JobWakes
}

/**
 * `working`: claims and runs jobs. `stopping`: claims none, and waits for those that run. `stopped`: tries nothing any more,
 * although a handler may still run.
 */
type Phase = 'working' | 'stopping' | 'stopped'

/** Claims as many jobs as it has places, runs them, and settles them. */
export class JobWorker {
  readonly #handlers: ReadonlyMap<string, JobHandler>
  readonly #settings: WorkerSettings
  readonly #parts: WorkerParts
  readonly #runs = new Set<JobRun>()
  readonly #claims: ClaimLoop
  readonly #leases: LeaseWatch
  #phase: Phase = 'working'
  #whenIdle: (() => void)[] = []

  constructor(handlers: ReadonlyMap<string, JobHandler>, settings: WorkerSettings, parts: WorkerParts) {
    const { ttlMs, maxRunMs, pollMs, name } = settings
    const onError = (error: unknown): void => this.#reportError(error)
    this.#handlers = handlers
    this.#settings = settings
    this.#parts = parts
    this.#claims = new ClaimLoop({
      tables: parts.tables,
      wakes: parts.wakes,
      names: [...handlers.keys()],
      worker: name,
      ttlMs,
      pollMs,
      freePlaces: (ending) => this.#freePlaces(ending),
      runningIds: () => [...this.#runs].map(({ facts }) => facts.id),
      start: (facts, askedAt) => void this.#run(facts, askedAt),
      onClaimEnd: () => this.#notifyIdle(),
      onError,
    })
    this.#leases = new LeaseWatch({ runs: this.#runs, tables: parts.renewals, ttlMs, maxRunMs, onError })
    parts.settling.queue.piggyback = (ending) => this.#claims.piggyback(ending)
  }

  get running(): number {
    return this.#runs.size
  }

  start(): void {
    this.#parts.wakes.add(this)
    this.#claims.start()
  }

  /** A job of that name is ready; null: any job may be. */
  wake(name: string | null): void {
    if (name === null || this.#handlers.has(name)) this.#claims.wake()
  }

  /**
   * Resolves when no job runs here any more. Jobs that are left after the grace are given back. If the database does not take
   * them within {@link GIVE_BACK_MS} after it, they stay until their leases end.
   */
  async stop(graceMs: number): Promise<void> {
    if (this.#phase === 'working') this.#phase = 'stopping'
    this.#parts.wakes.delete(this)
    this.#claims.stop()
    const grace = setTimeout(() => this.#cutOffAll(), Math.min(graceMs, LONGEST_TIMER_MS))
    if (graceMs === 0) this.#cutOffAll()
    let limit: NodeJS.Timeout | undefined
    const late = new Promise<void>((resolve) => {
      limit = setTimeout(resolve, Math.min(graceMs + GIVE_BACK_MS, LONGEST_TIMER_MS))
    })
    await Promise.race([late, this.#ended()])
    clearTimeout(grace)
    clearTimeout(limit)
    this.#leases.stop()
    this.#phase = 'stopped'
  }

  async #ended(): Promise<void> {
    await this.#idle()
    await this.#claims.recoverLost(() => this.#phase === 'stopped')
    await this.#idle()
  }

  /** Jobs that are held up need no place. But not more of them than `concurrency`, or they would pile up without end. */
  #freePlaces(ending: number): number {
    const { concurrency } = this.#settings
    let heldUp = 0
    for (const run of this.#runs) if (run.isHeldUp) heldUp += 1
    return concurrency - this.#runs.size + ending + Math.min(heldUp, concurrency)
  }

  async #run(facts: JobFacts, askedAt: Instant): Promise<void> {
    const lease = new LeaseTime(askedAt, this.#settings.ttlMs)
    const run = new JobRun(facts, { lease, settling: this.#parts.settling })
    this.#runs.add(run)
    if (this.#phase !== 'working') run.cutOff(stopped())
    this.#leases.start()
    try {
      // Stopped while the job was claimed. It is given back and never begun, or it would run here and elsewhere.
      if (run.isCutOff) throw run.job.signal.reason
      // The event loop may have been blocked since the claim was sent, also by the handler of the job before. Then another
      // worker may have this job. If none has it, it is ready again.
      if (lease.isOver) return void (await this.#settle(run, GIVEN_BACK))
      await run.until(this.#handlers.get(facts.name)?.(run.job))
      if (run.settledAs === undefined) await this.#settleEnded(run)
    } catch (error) {
      await this.#settleFailed(run, error)
    } finally {
      this.#runs.delete(run)
      this.#claims.onFree()
      this.#notifyIdle()
    }
  }

  /** If the handler itself has asked for an end and got no answer, asks for the same end again; else completes the job. */
  async #settleEnded(run: JobRun): Promise<void> {
    const end = run.unanswered ?? COMPLETED
    if ((await this.#settle(run, end)) !== null || end === GIVEN_BACK) return
    this.#reportFailure(run, run.isLost ? run.job.signal.reason : lostError(run.facts), 'lost')
  }

  async #settleFailed(run: JobRun, error: unknown): Promise<void> {
    const isGivenBack = run.isCutOff && isHoldfastError(error, 'closed')
    const outcome = await this.#settle(run, isGivenBack ? GIVEN_BACK : (run.unanswered ?? failed(error)))
    if (isGivenBack) return
    this.#reportFailure(run, error, outcome ?? run.settledAs ?? 'lost')
  }

  /** Tries until the database answers, or until the answer makes no difference any more. */
  async #settle(run: JobRun, end: AttemptEnd): Promise<'completed' | FailOutcome | null> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const settlement = this.#parts.settling.queue.settle(run.facts, end, {
          freesPlace: !run.isHeldUp,
          onHeldUp: () => {
            run.isHeldUp = true
          },
        })
        return await run.settling(settlement)
      } catch (error) {
        this.#reportError(error)
        if (this.#isInVain(run, attempt)) return null
        await paused(systemClock, backoffMs(RETRYING, attempt))
        if (this.#phase === 'stopped') return null
      }
    }
  }

  #isInVain(run: JobRun, attempts: number): boolean {
    if (this.#phase === 'stopped' || (this.#phase === 'stopping' && attempts >= 5)) return true
    return run.remainingMs < -this.#settings.ttlMs
  }

  #cutOffAll(): void {
    for (const run of this.#runs) if (!run.isCutOff) run.cutOff(stopped())
  }

  #idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenIdle.push(resolve)
      this.#notifyIdle()
    })
  }

  #notifyIdle(): void {
    if (this.#runs.size > 0 || this.#claims.isClaiming) return
    for (const resolve of this.#whenIdle.splice(0)) resolve()
  }

  /** After the stop there is nothing left that the worker could go on trying. */
  #reportError(error: unknown): void {
    if (this.#phase !== 'stopped') this.#settings.onError(error)
  }

  #reportFailure(run: JobRun, error: unknown, outcome: JobFailure['outcome']): void {
    this.#settings.onFailure({ job: run.facts, error, outcome })
  }
}

/** How long a worker that stops waits, after the grace, for the database to take back what has not ended. */
const GIVE_BACK_MS = 1000

const LONGEST_TIMER_MS = 2 ** 31 - 1

function stopped(): ClosedError {
  return new ClosedError(
    'The worker was stopped, and the job was given back when the grace was over (`stop({ grace })`).',
  )
}
