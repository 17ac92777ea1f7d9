import { inContextOfItsOwn, outsideOfCallers } from '../base/async-context.ts'
import { type Instant, LONGEST_TIMER_MS } from '../base/clock.ts'
import { ClosedError } from '../errors.ts'
import { ClaimLoop, type Demand } from './claim-loop.ts'
import type { SettleContext } from './claimed-job.ts'
import type { JobFacts, RunningJob } from './job.ts'
import { jobTopics } from './job-events.ts'
import { JobRun } from './job-run.ts'
import type { JobTables } from './job-tables.ts'
import { LeaseTime } from './lease-time.ts'
import { LeaseWatch } from './lease-watch.ts'
import { Pace } from './pace.ts'
import { Pauses, STOPPING } from './pauses.ts'
import { type HandlerOutcome, type JobFailure, type Phase, RunSettlement } from './run-settlement.ts'
import type { JobWakes } from './wakes.ts'

/**
 * Does the work of one job. The job is completed when the promise resolves, and the attempt has failed when it rejects. What it
 * resolves with is the result of the job, if it is JSON.
 */
export type JobHandler<Payload = unknown> = (job: RunningJob<Payload>) => unknown

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
 * Claims jobs, runs as many at once as it has places, and settles them. A job that it has is
 *
 * - waiting: claimed ahead, so that the next claim costs no time,
 * - running: it has a place until its handler ends,
 * - or being settled.
 *
 * It claims no more ahead than it is likely to begin within {@link AHEAD_MS}, by the pace of its latest jobs. A worker whose jobs
 * take long claims none ahead.
 */
export class JobWorker {
  readonly #handlers: ReadonlyMap<string, JobHandler>
  readonly #settings: WorkerSettings
  readonly #parts: WorkerParts
  /** All jobs that it has. */
  readonly #runs = new Set<JobRun>()
  /** In the order in which they begin. */
  readonly #waiting: JobRun[] = []
  #placesTaken = 0
  readonly #pace = new Pace()
  readonly #claims: ClaimLoop
  readonly #leases: LeaseWatch
  readonly #settlement: RunSettlement
  #phase: Phase = 'working'
  /** What was reported last. */
  #reported: unknown
  #isBeginning = false
  readonly #pauses = new Pauses()
  /** Resolves when the worker was stopped and no job is left here. */
  #ended: Promise<void> | undefined
  #onIdle: () => void = () => {}

  constructor(handlers: ReadonlyMap<string, JobHandler>, settings: WorkerSettings, parts: WorkerParts) {
    const { ttlMs, maxRunMs, pollMs, name } = settings
    const onError = (error: unknown): void => this.reportError(error)
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
      demand: (ending) => this.#demand(ending),
      known: () => [...this.#runs].map(({ facts }) => facts),
      take: (jobs, askedAt) => this.#take(jobs, askedAt),
      onError,
    })
    const onLook = (): void => this.#giveBackStuck()
    this.#leases = new LeaseWatch({
      runs: this.#runs,
      tables: parts.renewals,
      ttlMs,
      maxRunMs,
      onLook,
      onError,
    })
    this.#settlement = new RunSettlement({
      queue: parts.settling.queue,
      ttlMs,
      phase: () => this.#phase,
      pauses: this.#pauses,
      onFailure: settings.onFailure,
      onError,
    })
    parts.settling.queue.piggyback = (ending) => this.#claims.piggyback(ending)
  }

  get jobCount(): number {
    return this.#runs.size
  }

  start(): void {
    outsideOfCallers(() => {
      this.#parts.wakes.add(this)
      this.#claims.start()
    })
  }

  /** `name`: that of jobs that are ready, or of a worker whose job was cancelled; null: jobs of any name may be ready. */
  wake(name: string | null): void {
    if (name === null || this.#handlers.has(name)) this.#claims.wake()
    if (name === this.#settings.name) this.#leases.renewSoon()
  }

  /**
   * Gives back at once what has not begun, and what still runs after the grace. Resolves when no job is left here. If the database
   * does not take the jobs within {@link GIVE_BACK_MS} after the grace, they stay until their leases end.
   */
  async stop(graceMs: number): Promise<void> {
    if (this.#phase === 'working') this.#phase = 'stopping'
    this.#parts.wakes.delete(this)
    this.#ended ??= this.#end()
    this.#giveBackWaiting()
    // They may be longer than the time that is left.
    this.#pauses.endAll()
    const grace = setTimeout(() => this.#cutOffAll(), Math.min(graceMs, LONGEST_TIMER_MS))
    if (graceMs === 0) this.#cutOffAll()
    let limit: NodeJS.Timeout | undefined
    const late = new Promise<void>((resolve) => {
      limit = setTimeout(resolve, Math.min(graceMs + GIVE_BACK_MS, LONGEST_TIMER_MS))
    })
    await Promise.race([late, this.#ended])
    clearTimeout(grace)
    clearTimeout(limit)
    this.#leases.stop()
    this.#phase = 'stopped'
    this.#pauses.endAll()
  }

  async #end(): Promise<void> {
    await this.#claims.stop({
      isOver: () => this.#phase === 'stopped',
      pause: (failures) => this.#pauses.after(failures, STOPPING),
    })
    if (this.#runs.size === 0) return
    await new Promise<void>((resolve) => {
      this.#onIdle = resolve
    })
  }

  /**
   * A job that is held up takes no place, but at most `concurrency` of them are left out: more would pile up without end. The
   * worker claims ahead once half of the waiting jobs have begun, so that each claim brings enough jobs.
   */
  #demand(ending: number): Demand {
    const { concurrency } = this.#settings
    const ahead = Math.min(MOST_AHEAD, Math.floor(this.#pace.endWithin(AHEAD_MS)))
    const waiting = this.#waiting.length
    if (waiting > ahead / 2) return { places: 0, ahead: 0 }
    let heldUp = 0
    for (const run of this.#runs) if (run.isHeldUp) heldUp += 1
    const free = concurrency + ahead - this.#runs.size + ending + Math.min(heldUp, concurrency)
    const places = Math.max(0, Math.min(free, concurrency - this.#placesTaken - waiting))
    return { places, ahead: Math.max(0, free - places) }
  }

  #take(jobs: readonly JobFacts[], askedAt: Instant): void {
    for (const facts of jobs) {
      const lease = new LeaseTime(askedAt, this.#settings.ttlMs)
      const run = new JobRun(facts, { lease, settling: this.#parts.settling })
      this.#runs.add(run)
      this.#waiting.push(run)
    }
    if (jobs.length > 0) this.#leases.start()
    // Stopped while they were claimed. They would run here and elsewhere.
    if (this.#phase !== 'working') return this.#giveBackWaiting()
    // The sort is stable, so only a larger priority passes what was claimed before.
    this.#waiting.sort((a, b) => b.facts.priority - a.facts.priority)
    this.#begin()
  }

  #begin(): void {
    while (this.#placesTaken < this.#settings.concurrency) {
      const run = this.#waiting.shift()
      if (run === undefined) break
      void this.#run(run)
    }
    this.#claims.claimSoon()
  }

  /** In a turn of its own, so that a thousand jobs that end at once do not hold the event loop. */
  #beginSoon(): void {
    if (this.#waiting.length === 0) return this.#claims.claimSoon()
    if (this.#isBeginning) return
    this.#isBeginning = true
    outsideOfCallers(() =>
      setImmediate(() => {
        this.#isBeginning = false
        this.#begin()
      }),
    )
  }

  #giveBackWaiting(): void {
    for (const run of this.#waiting.splice(0)) void this.#giveBack(run)
  }

  /**
   * Jobs were quick and have become slow: another worker may have a place for those that wait. Counted in looks, because a process
   * that stood still has looked once only, whatever the clocks say.
   */
  #giveBackStuck(): void {
    for (const run of this.#waiting) run.looks += 1
    if (this.#waiting.some(({ looks }) => looks > MOST_LOOKS)) this.#giveBackWaiting()
  }

  async #giveBack(run: JobRun): Promise<void> {
    await this.#settlement.giveBack(run)
    this.#forget(run)
  }

  #forget(run: JobRun): void {
    this.#runs.delete(run)
    this.#claims.claimSoon()
    if (this.#runs.size === 0) this.#onIdle()
  }

  async #run(run: JobRun): Promise<void> {
    // The event loop may have been blocked since the claim was sent, also by the handler of the job before. Then another
    // worker may have this job. If none has it, it is ready again.
    if (run.isLost || run.remainingMs <= 0) return this.#giveBack(run)
    this.#placesTaken += 1
    this.#pace.begun()
    run.begin()
    let outcome: HandlerOutcome
    try {
      outcome = { tag: 'returned', value: await run.handle(() => inContextOfItsOwn(() => this.#call(run))) }
    } catch (error) {
      outcome = { tag: 'threw', error }
    }
    run.end()
    this.#placesTaken -= 1
    this.#pace.ended()
    if (run.settled !== undefined) this.#claims.settledJobEnded()
    const settled = this.#settlement.end(run, outcome)
    // After that, so that a claim may go in the statement of the settlement.
    this.#beginSoon()
    const end = await settled
    if (jobTopics.ended.isHeard)
      jobTopics.ended.tell({ ...this.#attemptOf(run), ranMs: run.runsForMs, ...end })
    this.#forget(run)
  }

  #call(run: JobRun): unknown {
    const handler = this.#handlers.get(run.facts.name)
    return jobTopics.begun.runAround(
      () => ({
        ...this.#attemptOf(run),
        waitedMs: run.facts.waitedMs + run.claimedForMs,
        trace: run.facts.trace,
      }),
      () => handler?.(run.job),
    )
  }

  #attemptOf({ number: run, facts: { id, name, attempt, failures, maxAttempts } }: JobRun) {
    return { run, id, name, attempt, failures, maxAttempts, worker: this.#settings.name }
  }

  #cutOffAll(): void {
    for (const run of this.#runs) if (!run.isCutOff) run.cutOff(stopped())
  }

  /** One failure may concern hundreds of jobs. After the stop there is nothing left that the worker could go on trying. */
  reportError(error: unknown): void {
    if (this.#phase === 'stopped' || error === this.#reported) return
    this.#reported = error
    this.#settings.onError(error)
  }
}

/** How long a worker that stops waits, after the grace, for the database to take back what has not ended. */
export const GIVE_BACK_MS = 1000

/** A claim behind a busy database takes some 10 ms, and one over a continent 50. */
const AHEAD_MS = 50
/** The next claim is sent when half of these have begun, and more than a few hundred jobs in one statement save nothing. */
const MOST_AHEAD = 2000
/** Waiting jobs are given back at the third look of the lease watch: after half a second or more, or sooner if `ttl` is below 2.5 s. */
const MOST_LOOKS = 2

function stopped(): ClosedError {
  return new ClosedError(
    'The worker was stopped, and the job was given back when the grace was over (`stop({ grace })`).',
  )
}
