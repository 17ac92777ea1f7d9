import { type Backoff, backoffMs } from '../base/backoff.ts'
import { type Instant, now, systemClock } from '../base/clock.ts'
import type { JobFacts } from './job.ts'
import type { JobTables } from './job-tables.ts'
import type { PiggybackedClaim } from './settlement-queue.ts'
import type { ClaimRequest, ClaimResult } from './statements.ts'
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
  /** The ids of all jobs that the worker has. */
  readonly knownIds: () => readonly string[]
  /** Takes the jobs of a claim. `askedAt`: before the claim was sent. */
  readonly take: (jobs: readonly JobFacts[], askedAt: Instant) => void
  /** A claim has succeeded or failed. */
  readonly onClaimEnd: () => void
  readonly onError: (error: unknown) => void
}

export interface Demand {
  /** How many jobs would begin at once. */
  readonly places: number
  /** How many further ones to claim ahead. */
  readonly ahead: number
}

/**
 * Claims jobs, one claim at a time. It claims
 *
 * - when a message says that a job is ready,
 * - when the worker can take jobs and the last claim left some behind,
 * - when a job is due by what the last claim answered,
 * - and otherwise every `pollMs`.
 */
export class ClaimLoop {
  readonly #options: ClaimLoopOptions
  #isStopped = false
  #isClaiming = false
  /**
   * What there may be to claim.
   *
   * - `nothing`: the last claim left nothing behind.
   * - `something`: a message came, or it is time to look. A claim ahead would cost the first job some time.
   * - `not-ahead`: the next job may not be claimed ahead, so the next claim waits for a free place.
   * - `more`: the last claim brought all that it asked for.
   */
  #left: 'nothing' | 'something' | 'not-ahead' | 'more' = 'something'
  /** A claim may have happened whose answer was lost: the next one asks for its jobs, too. */
  #lostAnAnswer = false
  /** How many claims in a row have failed. */
  #failures = 0
  #timer: NodeJS.Timeout | undefined
  #isScheduled = false

  constructor(options: ClaimLoopOptions) {
    this.#options = options
  }

  get isClaiming(): boolean {
    return this.#isClaiming
  }

  start(): void {
    void this.#claim()
  }

  stop(): void {
    this.#isStopped = true
    clearTimeout(this.#timer)
  }

  /** A job is ready. */
  wake(): void {
    if (this.#left === 'nothing') this.#left = 'something'
    // After a failure the pause between two attempts goes on.
    if (this.#failures === 0) void this.#claim()
  }

  /** The demand may have grown. All that it grows by in one turn of the event loop is one claim. */
  claimSoon(): void {
    if (this.#left === 'nothing' || this.#isScheduled || this.#isClaiming || this.#failures > 0) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      void this.#claim()
    })
  }

  /**
   * A claim to send in the statement that ends so many jobs, so that both wait for the disk once; undefined when there is nothing
   * to claim. A claim ahead goes beside that statement, because neither has to wait for the other.
   */
  piggyback(ending: number): PiggybackedClaim | undefined {
    if (this.#left === 'nothing' || this.#failures > 0) return undefined
    const demand = this.#demand(ending)
    if (demand.ahead === 0) return this.#begin(demand)
    this.claimSoon()
    return undefined
  }

  /**
   * Takes the jobs of a claim whose answer was lost, so that the stopped worker gives them back. Otherwise nobody would run
   * them until their leases end, and for jobs that were not claimed ahead that would count as a failure. Gives up after two
   * attempts, or when `isOver`.
   */
  async recoverLost(isOver: () => boolean): Promise<void> {
    for (let attempt = 1; this.#lostAnAnswer && !isOver() && attempt <= 2; attempt += 1) {
      const askedAt = now(systemClock)
      try {
        const { jobs } = await this.#options.tables.claim(this.#request(NO_DEMAND))
        this.#lostAnAnswer = false
        this.#options.take(jobs, askedAt)
      } catch (error) {
        this.#options.onError(error)
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
    if (this.#isClaiming || this.#isStopped) return undefined
    const asked = demand.places + demand.ahead
    if (asked <= 0) return undefined
    clearTimeout(this.#timer)
    this.#isClaiming = true
    this.#left = 'nothing'
    // What was lost comes first, and alone: it may be as many as the worker can take.
    const request = this.#request(this.#lostAnAnswer ? NO_DEMAND : demand)
    return {
      request,
      claimed: (claim, askedAt) => {
        this.#failures = 0
        this.#isClaiming = false
        if (this.#lostAnAnswer) this.#left = 'something'
        else if (claim.againMs === 0) this.#left = claim.jobs.length < asked ? 'not-ahead' : 'more'
        this.#lostAnAnswer = false
        this.#take(claim, askedAt)
        this.#options.onClaimEnd()
      },
      failed: (error) => {
        this.#isClaiming = false
        this.#lostAnAnswer = true
        this.#left = 'something'
        this.#failures += 1
        this.#options.onError(error)
        this.#claimIn(backoffMs(RETRYING, this.#failures))
        this.#options.onClaimEnd()
      },
    }
  }

  #request({ places, ahead }: Demand): ClaimRequest {
    const { names, worker, ttlMs, knownIds } = this.#options
    const known = this.#lostAnAnswer ? knownIds() : undefined
    return { names, limit: places, ahead, worker, ttlMs, known }
  }

  #take({ jobs, againMs }: ClaimResult, askedAt: Instant): void {
    const { wakes, take, pollMs } = this.#options
    wakes.probe()
    take(jobs, askedAt)
    this.claimSoon()
    // 0: there are more, and they are claimed as soon as the worker can take them.
    this.#claimIn(Math.min(againMs || Number.POSITIVE_INFINITY, pollMs * (0.9 + Math.random() / 5)))
  }

  /** The timer keeps the process alive: a worker is there to work. */
  #claimIn(delayMs: number): void {
    clearTimeout(this.#timer)
    if (this.#isStopped) return
    this.#timer = setTimeout(() => {
      if (this.#left === 'nothing') this.#left = 'something'
      void this.#claim()
    }, delayMs)
  }
}

const NO_DEMAND: Demand = { places: 0, ahead: 0 }

export const RETRYING: Backoff = { firstMs: 100, longestMs: 3000, jitter: 0.5 }
