import { outsideOfCallers } from '../base/async-context.ts'
import { backoffMs } from '../base/backoff.ts'
import { type Instant, now, systemClock } from '../base/clock.ts'
import type { JobFacts } from './job.ts'
import type { JobTables } from './job-tables.ts'
import { RETRYING } from './pauses.ts'
import type { PiggybackedClaim } from './settlement-queue.ts'
import type { AttemptId, ClaimRequest, ClaimResult } from './statements.ts'
import type { JobWakes } from './wakes.ts'

export interface ClaimLoopOptions {
  readonly tables: JobTables
  readonly wakes: JobWakes
  /** The names of the jobs to claim. */
  readonly names: readonly string[]
  readonly worker: string
  readonly ttlMs: number
  readonly pollMs: number
  /** How many jobs to claim now. `ending`: how many jobs of the worker are in the statement that is about to be sent. */
  readonly demand: (ending: number) => Demand
  /** All attempts that the worker has. */
  readonly known: () => readonly AttemptId[]
  /** Takes the jobs of a claim. `askedAt`: before the claim was sent. */
  readonly take: (jobs: readonly JobFacts[], askedAt: Instant) => void
  readonly onError: (error: unknown) => void
}

export interface Demand {
  /** How many jobs would begin at once. */
  readonly places: number
  /** How many further ones to claim ahead. */
  readonly ahead: number
}

export interface Recovery {
  /** Whether the worker tries nothing any more. */
  readonly isOver: () => boolean
  /** Waits before the next try. */
  readonly pause: (failures: number) => Promise<void>
}

/**
 * - `idle`: a claim may begin at any time. When the timer fires, the loop looks again.
 * - `claiming`: a claim is on its way.
 * - `pausing`: the last claim failed. The next one begins when the timer fires.
 * - `draining`: stopped while a claim was on its way.
 * - `stopped`: no claim is on its way, and none begins.
 */
type ClaimState = 'idle' | 'claiming' | 'pausing' | 'draining' | 'stopped'

/**
 * Claims jobs, one claim at a time. It claims
 *
 * - when a message says that a job is ready,
 * - when the worker can take jobs and the last claim left some behind,
 * - when a job is due by what the last claim answered,
 * - when the answer to the last claim was lost, after a pause, to take its jobs,
 * - and otherwise every `pollMs`.
 */
export class ClaimLoop {
  readonly #options: ClaimLoopOptions
  #state: ClaimState = 'idle'
  /**
   * The jobs that there may be to claim.
   *
   * - `nothing`: the last claim left nothing behind.
   * - `something`: a message came, or it is time to look. A claim ahead would cost the first job some time.
   * - `not-ahead`: the next job may not be claimed ahead, so the next claim waits for a free place.
   * - `more`: the last claim brought all that it asked for.
   * - `limited`: a limit has kept jobs back. When a job ends, the limit may allow another one.
   */
  #left: 'nothing' | 'something' | 'not-ahead' | 'more' | 'limited' = 'something'
  /** How many claims in a row have failed. */
  #failures = 0
  /**
   * When to ask for the jobs of claims that failed, in the time of `performance.now()`. Each of them may have happened. While the
   * statement of such a claim still runs, the loop asks now and then, and claims other jobs meanwhile.
   */
  #recoverAt = Number.POSITIVE_INFINITY
  #timer: NodeJS.Timeout | undefined
  #isScheduled = false
  #onDrained: () => void = () => {}

  constructor(options: ClaimLoopOptions) {
    this.#options = options
  }

  start(): void {
    this.#look()
  }

  /**
   * Begins no more claims. Resolves when the last one has ended and its jobs are taken, so that the worker gives them back: also if
   * the answer was lost. Otherwise nobody would run these jobs until their leases end, and for jobs that were not claimed ahead
   * that would count as a failure.
   */
  async stop(recovery: Recovery): Promise<void> {
    clearTimeout(this.#timer)
    if (this.#state === 'claiming') {
      this.#state = 'draining'
      await new Promise<void>((resolve) => {
        this.#onDrained = resolve
      })
    } else this.#state = 'stopped'
    await this.#recoverLost(recovery)
  }

  /** A job is ready. */
  wake(): void {
    if (this.#left === 'nothing' || this.#left === 'limited') this.#left = 'something'
    void this.#claim()
  }

  /**
   * A job has ended that its handler had settled. It sends no settlement in which a claim could go, and a limit may allow another job. A
   * claim that is under way may have counted this one.
   */
  settledJobEnded(): void {
    const mayBeLimited = this.#left === 'limited' || (this.#left === 'nothing' && this.#state === 'claiming')
    if (mayBeLimited) this.#left = 'something'
  }

  /** The demand may have grown. All that it grows by in one turn of the event loop is one claim. */
  claimSoon(): void {
    // A limit allows no more than at the last claim until a job ends, or until the time that the claim has answered.
    if (this.#left === 'nothing' || this.#left === 'limited') return
    if (this.#isScheduled || this.#state !== 'idle') return
    this.#isScheduled = true
    outsideOfCallers(() =>
      setImmediate(() => {
        this.#isScheduled = false
        void this.#claim()
      }),
    )
  }

  /**
   * A claim to send in the statement that ends so many jobs, so that both wait for the disk once; undefined when there is nothing
   * to claim. A claim ahead goes beside that statement, because neither has to wait for the other.
   */
  piggyback(ending: number): PiggybackedClaim | undefined {
    if (this.#left === 'nothing') return undefined
    const demand = this.#demand(ending)
    // The jobs of a lost answer may be many, and the settlement must not wait for them.
    if (demand.ahead === 0 && !this.#isRecoveryDue()) return this.#begin(demand)
    this.claimSoon()
    return undefined
  }

  /** Takes the jobs of claims that failed. Gives up when `isOver`, or when the leases of these jobs must have ended. */
  async #recoverLost({ isOver, pause }: Recovery): Promise<void> {
    const { tables, take, onError, ttlMs } = this.#options
    const inVainAt = performance.now() + 2 * ttlMs
    const isInVain = () => isOver() || performance.now() > inVainAt
    for (let tries = 1; this.#recoverAt < Number.POSITIVE_INFINITY && !isInVain(); tries += 1) {
      const askedAt = now(systemClock)
      try {
        const { jobs, earlierRuns } = await tables.claim(this.#recovery())
        if (!earlierRuns) this.#recoverAt = Number.POSITIVE_INFINITY
        take(jobs, askedAt)
        if (earlierRuns && jobs.length === 0) await pause(tries)
      } catch (error) {
        onError(error)
        await pause(tries)
      }
    }
  }

  async #claim(): Promise<void> {
    const claim = this.#begin(this.#demand(0))
    if (claim === undefined) return
    const askedAt = now(systemClock)
    try {
      claim.claimed(await this.#options.tables.claim(claim.request), askedAt)
    } catch (error) {
      claim.failed(error)
    }
  }

  #demand(ending: number): Demand {
    const demand = this.#options.demand(ending)
    const isAhead = this.#left === 'more' || (this.#left === 'not-ahead' && demand.places > 0)
    return isAhead ? demand : { places: demand.places, ahead: 0 }
  }

  #begin(demand: Demand): PiggybackedClaim | undefined {
    if (this.#state !== 'idle') return undefined
    const asked = demand.places + demand.ahead
    const recoversLost = this.#isRecoveryDue()
    // No worker renews the jobs of a lost answer, so the loop asks for them even if no place is free.
    if (asked <= 0 && !recoversLost) return undefined
    clearTimeout(this.#timer)
    this.#state = 'claiming'
    this.#left = 'nothing'
    // The jobs of a lost answer come first, and alone: they may be as many as the worker can take.
    const request = recoversLost ? this.#recovery() : this.#request(demand)
    return {
      request,
      claimed: (claim, askedAt) => {
        this.#failures = 0
        if (recoversLost) {
          this.#left = 'something'
          this.#recoverAt = claim.earlierRuns ? performance.now() + pauseOf(claim) : Number.POSITIVE_INFINITY
        } else if (claim.againMs === 0) this.#left = claim.jobs.length < asked ? 'not-ahead' : 'more'
        // A message that came meanwhile may say that the limit is wider than the claim has read.
        else if (claim.isLimited && this.#left === 'nothing') this.#left = 'limited'
        this.#claimEnded('idle')
        this.#take(claim, askedAt)
      },
      failed: (error) => {
        this.#left = 'something'
        this.#failures += 1
        this.#recoverAt = performance.now()
        this.#claimEnded('pausing')
        this.#options.onError(error)
        this.#lookIn(backoffMs(RETRYING, this.#failures))
      },
    }
  }

  #claimEnded(next: 'idle' | 'pausing'): void {
    if (this.#state === 'draining') {
      this.#state = 'stopped'
      this.#onDrained()
    } else this.#state = next
  }

  #isRecoveryDue(): boolean {
    return performance.now() >= this.#recoverAt
  }

  #recovery(): ClaimRequest {
    return { ...this.#request(NO_DEMAND), known: this.#options.known() }
  }

  #request({ places, ahead }: Demand): ClaimRequest {
    const { names, worker, ttlMs } = this.#options
    return { names, limit: places, ahead, worker, ttlMs }
  }

  #take({ jobs, againMs }: ClaimResult, askedAt: Instant): void {
    const { wakes, take } = this.#options
    take(jobs, askedAt)
    // After that, because it need not be done before the handlers start.
    wakes.probe()
    this.claimSoon()
    // 0: there are more, and they are claimed as soon as the worker can take them.
    this.#lookIn(Math.min(againMs || Number.POSITIVE_INFINITY, this.#nextLookMs()))
  }

  /** The timer runs while the loop is idle or pauses. It keeps the process alive: a worker is there to work. */
  #lookIn(delayMs: number): void {
    clearTimeout(this.#timer)
    if (this.#state !== 'idle' && this.#state !== 'pausing') return
    this.#timer = outsideOfCallers(() => setTimeout(() => this.#look(), delayMs))
  }

  #look(): void {
    this.#state = 'idle'
    if (this.#left === 'nothing' || this.#left === 'limited') this.#left = 'something'
    void this.#claim()
    if (this.#state === 'idle') this.#lookIn(this.#nextLookMs())
  }

  #nextLookMs(): number {
    const pollMs = this.#options.pollMs * (0.9 + Math.random() / 5)
    // Timers may fire a little too early.
    return Math.min(pollMs, Math.max(1, this.#recoverAt - performance.now()))
  }
}

const NO_DEMAND: Demand = { places: 0, ahead: 0 }

/** How often to ask for the jobs of a lost answer while its statement runs. */
const EARLIER_RUNS_MS = 200

/** Until the next question about the jobs of a lost answer. If some came, the next part can be had at once. */
function pauseOf({ jobs }: ClaimResult): number {
  return jobs.length === 0 ? EARLIER_RUNS_MS : 0
}
