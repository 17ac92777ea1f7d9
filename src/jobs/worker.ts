import { type Backoff, backoffMs } from '../base/backoff.ts'
import { type Instant, now, paused, systemClock } from '../base/clock.ts'
import { ClosedError, HoldfastError, isHoldfastError } from '../errors.ts'
import { COMPLETED, failed, GIVEN_BACK, lostError, type Settling } from './claimed-job.ts'
import type { FailOutcome, JobFacts, RunningJob } from './job.ts'
import type { JobTables } from './job-tables.ts'
import { LeaseTime } from './lease-time.ts'
import { Run } from './run.ts'
import type { Companion, End } from './settler.ts'
import type { Claim, ClaimRequest } from './statements.ts'
import type { Wakes } from './wakes.ts'

export type JobHandler<Payload = unknown> = (job: RunningJob<Payload>) => unknown

/**
 * What became of an attempt that did not end well. `lost`: it was no longer this worker's, which changes nothing in
 * the database.
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
  /** On a connection of its own, so that claims and settlements cannot hold up a renewal. */
  readonly renewals: JobTables
  readonly settling: Settling
  readonly wakes: Wakes
}

/**
 * Claims as many jobs as it has places, runs them, and settles them. It claims again when it is woken, when it has a
 * place and the last claim left some behind, when the database said that something is due, and otherwise every
 * `pollInterval`.
 */
export class JobWorker {
  readonly #handlers: ReadonlyMap<string, JobHandler>
  readonly #settings: WorkerSettings
  readonly #parts: WorkerParts
  readonly #runs = new Set<Run>()
  #isStopping = false
  /** Stopped, and the time is over for what was to be given back: nothing is tried any more. */
  #hasGivenUp = false
  #isClaiming = false
  #mayHaveMore = true
  #lostAnAnswer = false
  #failures = 0
  #claimTimer: NodeJS.Timeout | undefined
  #claimsSoon = false
  #watchTimer: NodeJS.Timeout | undefined
  #renewAt = 0
  #renewing = 0
  #whenIdle: (() => void)[] = []

  constructor(handlers: ReadonlyMap<string, JobHandler>, settings: WorkerSettings, parts: WorkerParts) {
    this.#handlers = handlers
    this.#settings = settings
    this.#parts = parts
    parts.settling.settler.companion = (ended) => {
      return this.#mayHaveMore && this.#failures === 0 ? this.#startClaim(ended) : undefined
    }
  }

  get running(): number {
    return this.#runs.size
  }

  start(): void {
    this.#parts.wakes.add(this)
    void this.#claim()
  }

  /** A job of that name is ready; null: any may be. */
  wake(name: string | null): void {
    if (name !== null && !this.#handlers.has(name)) return
    this.#mayHaveMore = true
    // While the database cannot be asked, its own pace is kept.
    if (this.#failures === 0) void this.#claim()
  }

  /**
   * Resolves when no job runs here any more: given back after the grace. Where the database does not take them back within
   * {@link GIVE_BACK_MS} after it, their leases are left to run out.
   */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true
    this.#parts.wakes.delete(this)
    clearTimeout(this.#claimTimer)
    const grace = setTimeout(() => this.#cutAll(), Math.min(graceMs, LONGEST_TIMER_MS))
    if (graceMs === 0) this.#cutAll()
    let limit: NodeJS.Timeout | undefined
    const late = new Promise<void>((resolve) => {
      limit = setTimeout(resolve, Math.min(graceMs + GIVE_BACK_MS, LONGEST_TIMER_MS))
    })
    await Promise.race([late, this.#ended()])
    clearTimeout(grace)
    clearTimeout(limit)
    clearTimeout(this.#watchTimer)
    this.#hasGivenUp = true
  }

  async #ended(): Promise<void> {
    await this.#idle()
    await this.#giveBackUnseen()
  }

  /** What a claim took whose answer was lost: it would be nobody's until its lease ends, and that counts as a failure. */
  async #giveBackUnseen(): Promise<void> {
    for (let attempt = 1; this.#lostAnAnswer && !this.#hasGivenUp && attempt <= 2; attempt += 1) {
      const askedAt = now(systemClock)
      try {
        const { jobs } = await this.#parts.tables.claim(this.#request(0))
        this.#lostAnAnswer = false
        // Stopped, so it begins none of them.
        for (const facts of jobs) void this.#run(facts, askedAt)
      } catch (error) {
        this.#tellError(error)
      }
    }
    await this.#idle()
  }

  async #claim(): Promise<void> {
    const claim = this.#startClaim(0)
    if (claim === undefined) return
    const askedAt = now(systemClock)
    try {
      claim.claimed(await this.#parts.tables.claim(claim.request), askedAt)
    } catch (error) {
      claim.failed(error)
    }
  }

  /** One at a time. `ended`: how many of the running ones make place with the same statement. */
  #startClaim(ended: number): Companion | undefined {
    const { concurrency } = this.#settings
    let heldUp = 0
    for (const run of this.#runs) if (run.isHeldUp) heldUp += 1
    // They need no place, but neither may they pile up without end.
    const free = concurrency - this.#runs.size + ended + Math.min(heldUp, concurrency)
    if (this.#isClaiming || this.#isStopping || free <= 0) return undefined
    clearTimeout(this.#claimTimer)
    this.#isClaiming = true
    this.#mayHaveMore = false
    return {
      request: this.#request(free),
      claimed: (claim, askedAt) => {
        this.#lostAnAnswer = false
        this.#failures = 0
        this.#isClaiming = false
        this.#take(claim, askedAt)
        this.#tellIdle()
      },
      failed: (error) => {
        this.#isClaiming = false
        // It may have happened: what it brought is asked for with the next one.
        this.#lostAnAnswer = true
        this.#mayHaveMore = true
        this.#failures += 1
        this.#tellError(error)
        this.#claimIn(backoffMs(RETRYING, this.#failures))
        this.#tellIdle()
      },
    }
  }

  #request(limit: number): ClaimRequest {
    return {
      names: [...this.#handlers.keys()],
      limit,
      worker: this.#settings.name,
      ttlMs: this.#settings.ttlMs,
      known: this.#lostAnAnswer ? [...this.#runs].map(({ facts }) => facts.id) : undefined,
    }
  }

  #take({ jobs, againMs }: Claim, askedAt: Instant): void {
    this.#parts.wakes.probe()
    for (const facts of jobs) void this.#run(facts, askedAt)
    if (againMs === 0) this.#mayHaveMore = true
    if (this.#mayHaveMore) this.#claimSoon()
    this.#claimIn(
      Math.min(againMs ?? Number.POSITIVE_INFINITY, this.#settings.pollMs * (0.9 + Math.random() / 5)),
    )
  }

  /** In the next turn: many places that become free at once are one claim. */
  #claimSoon(): void {
    if (this.#claimsSoon) return
    this.#claimsSoon = true
    setImmediate(() => {
      this.#claimsSoon = false
      void this.#claim()
    })
  }

  /** Keeps the process alive: to work is what it was started for. */
  #claimIn(delayMs: number): void {
    clearTimeout(this.#claimTimer)
    if (this.#isStopping) return
    this.#claimTimer = setTimeout(() => {
      this.#mayHaveMore = true
      void this.#claim()
    }, delayMs)
  }

  async #run(facts: JobFacts, askedAt: Instant): Promise<void> {
    const lease = new LeaseTime(askedAt, this.#settings.ttlMs)
    const run = new Run(facts, { lease, settling: this.#parts.settling })
    this.#runs.add(run)
    if (this.#isStopping) run.cut(stopped())
    this.#watch()
    try {
      // Stopped while it was claimed: it is given back and never begun, or it would run here and elsewhere.
      if (run.isCutOff) throw run.job.signal.reason
      // The event loop may have been blocked since the claim was asked, also by the handler of the job before: another worker
      // may have this job by now. If nobody has it, it is ready again.
      if (lease.isOver) return void (await this.#settle(run, GIVEN_BACK))
      await run.until(this.#handlers.get(facts.name)?.(run.job))
      if (run.settledAs === undefined) await this.#settleEnded(run)
    } catch (error) {
      await this.#settleFailed(run, error)
    } finally {
      this.#runs.delete(run)
      if (this.#mayHaveMore) this.#claimSoon()
      this.#tellIdle()
    }
  }

  /** As the handler itself has asked, where it got no answer: else what it called failed would be completed. */
  async #settleEnded(run: Run): Promise<void> {
    const end = run.unanswered ?? COMPLETED
    if ((await this.#settle(run, end)) !== null || end === GIVEN_BACK) return
    this.#tellFailure(run, run.isLost ? run.job.signal.reason : lostError(run.facts), 'lost')
  }

  async #settleFailed(run: Run, error: unknown): Promise<void> {
    const isGivenBack = run.isCutOff && isHoldfastError(error, 'closed')
    const outcome = await this.#settle(run, isGivenBack ? GIVEN_BACK : (run.unanswered ?? failed(error)))
    if (isGivenBack) return
    this.#tellFailure(run, error, outcome ?? run.settledAs ?? 'lost')
  }

  /** Until the database has answered, or it makes no difference any more. */
  async #settle(run: Run, end: End): Promise<'completed' | FailOutcome | null> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const settlement = this.#parts.settling.settler.settle(run.facts, end, {
          makesPlace: !run.isHeldUp,
          onHeldUp: () => {
            run.isHeldUp = true
          },
        })
        return await run.settling(settlement)
      } catch (error) {
        this.#tellError(error)
        if (this.#isInVain(run, attempt)) return null
        await paused(systemClock, backoffMs(RETRYING, attempt))
        if (this.#hasGivenUp) return null
      }
    }
  }

  #isInVain(run: Run, attempts: number): boolean {
    if (this.#hasGivenUp || (this.#isStopping && attempts >= 5)) return true
    return run.remainingMs < -this.#settings.ttlMs
  }

  /** Looks at the leases now and then: for the end of one, of a handler's time, and for when to renew them all. */
  #watch(): void {
    if (this.#watchTimer !== undefined) return
    const { ttlMs, maxRunMs } = this.#settings
    this.#renewAt = Math.max(this.#renewAt, performance.now() + ttlMs / 6)
    const look = (): void => {
      this.#watchTimer = undefined
      let nextMs = Math.min(1000, ttlMs / 10)
      for (const run of this.#runs) {
        if (run.isCutOff) continue
        if (run.remainingMs <= 0) run.lose('expired')
        else nextMs = Math.min(nextMs, run.remainingMs)
        if (run.runsForMs >= maxRunMs) run.cut(tookTooLong(run, maxRunMs))
      }
      if (performance.now() >= this.#renewAt) void this.#renew()
      if (this.#runs.size === 0) return
      this.#watchTimer = setTimeout(look, Math.max(1, nextMs))
      this.#watchTimer.unref()
    }
    this.#watchTimer = setTimeout(look, Math.min(1000, ttlMs / 10))
    this.#watchTimer.unref()
  }

  async #renew(): Promise<void> {
    const { ttlMs } = this.#settings
    const runs = [...this.#runs].filter((run) => !run.isLost && !run.isCutOff)
    this.#renewAt = performance.now() + (ttlMs / 3) * (0.9 + Math.random() / 5)
    // A second one beside the first, in case that hangs; more would only queue.
    if (runs.length === 0 || this.#renewing >= 2) return
    this.#renewing += 1
    const askedAt = now(systemClock)
    try {
      const answer = await this.#parts.renewals.renew(
        runs.map(({ facts }) => facts),
        ttlMs,
      )
      const gone = new Set(answer.gone)
      const skipped = new Set(answer.skipped)
      for (const run of runs) {
        if (gone.has(run.facts.id)) run.lose('evicted')
        else if (!skipped.has(run.facts.id)) run.renewed(askedAt)
      }
      // Somebody was just changing them: another look well before the next turn.
      if (skipped.size > 0) this.#renewAt = performance.now() + ttlMs / 20
    } catch (error) {
      this.#tellError(error)
      this.#renewAt = Math.min(this.#renewAt, performance.now() + Math.min(1000, ttlMs / 10))
    } finally {
      this.#renewing -= 1
    }
  }

  #cutAll(): void {
    for (const run of this.#runs) if (!run.isCutOff) run.cut(stopped())
  }

  #idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenIdle.push(resolve)
      this.#tellIdle()
    })
  }

  #tellIdle(): void {
    if (this.#runs.size > 0 || this.#isClaiming) return
    for (const resolve of this.#whenIdle.splice(0)) resolve()
  }

  /** Once stopped, there is nothing that it could go on trying. */
  #tellError(error: unknown): void {
    if (!this.#hasGivenUp) this.#settings.onError(error)
  }

  #tellFailure(run: Run, error: unknown, outcome: JobFailure['outcome']): void {
    this.#settings.onFailure({ job: run.facts, error, outcome })
  }
}

/** How long a worker that stops waits, after the grace, for the database to take back what has not ended. */
const GIVE_BACK_MS = 1000

const LONGEST_TIMER_MS = 2 ** 31 - 1

const RETRYING: Backoff = { firstMs: 100, longestMs: 3000, jitter: 0.5 }

function stopped(): ClosedError {
  return new ClosedError(
    'The worker was stopped, and the job was given back when the grace was over (`stop({ grace })`).',
  )
}

function tookTooLong({ facts: { id, name } }: Run, maxRunMs: number): HoldfastError {
  return new HoldfastError(
    'task-failed',
    `The job ${id} (${name}) did not end within ${maxRunMs} ms (\`maxRun\`). Its signal was aborted and its place given to the next job, although its handler may still run: make it listen to \`signal\`, or allow it more time.`,
    { key: id },
  )
}
