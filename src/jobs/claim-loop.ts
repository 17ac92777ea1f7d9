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
  /** How many more jobs may run, when so many of the running ones are about to end. */
  readonly freePlaces: (ending: number) => number
  /** The ids of the jobs that run. */
  readonly runningIds: () => readonly string[]
  /** Starts a job. `askedAt`: before its claim was sent. */
  readonly start: (facts: JobFacts, askedAt: Instant) => void
  /** A claim has succeeded or failed. */
  readonly onClaimEnd: () => void
  readonly onError: (error: unknown) => void
}

/**
 * Claims jobs, one claim at a time. It claims
 *
 * - when a message says that a job is ready,
 * - when a place becomes free and the last claim left jobs behind,
 * - when a job is due by what the last claim answered,
 * - and otherwise every `pollMs`.
 */
export class ClaimLoop {
  readonly #options: ClaimLoopOptions
  #isStopped = false
  #isClaiming = false
  /** There may be jobs that the last claim did not bring. */
  #mayHaveMore = true
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
    this.#mayHaveMore = true
    // After a failure the pause between two attempts goes on.
    if (this.#failures === 0) void this.#claim()
  }

  /** Places have become free. Many that become free in one turn of the event loop are one claim. */
  onFree(): void {
    if (!this.#mayHaveMore || this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      void this.#claim()
    })
  }

  /** A claim to send in the statement that ends so many jobs; undefined when there is nothing to claim. */
  piggyback(ending: number): PiggybackedClaim | undefined {
    return this.#mayHaveMore && this.#failures === 0 ? this.#begin(ending) : undefined
  }

  /**
   * Starts the jobs of a claim whose answer was lost, so that the stopped worker gives them back. Otherwise nobody would run
   * them until their leases end, and that would count as a failure. Gives up after two attempts, or when `isOver`.
   */
  async recoverLost(isOver: () => boolean): Promise<void> {
    for (let attempt = 1; this.#lostAnAnswer && !isOver() && attempt <= 2; attempt += 1) {
      const askedAt = now(systemClock)
      try {
        const { jobs } = await this.#options.tables.claim(this.#request(0))
        this.#lostAnAnswer = false
        for (const facts of jobs) this.#options.start(facts, askedAt)
      } catch (error) {
        this.#options.onError(error)
      }
    }
  }

  async #claim(): Promise<void> {
    const claim = this.#begin(0)
    if (claim === undefined) return
    const askedAt = now(systemClock)
    try {
      claim.claimed(await this.#options.tables.claim(claim.request), askedAt)
    } catch (error) {
      claim.failed(error)
    }
  }

  #begin(ending: number): PiggybackedClaim | undefined {
    const free = this.#options.freePlaces(ending)
    if (this.#isClaiming || this.#isStopped || free <= 0) return undefined
    clearTimeout(this.#timer)
    this.#isClaiming = true
    this.#mayHaveMore = false
    return {
      request: this.#request(free),
      claimed: (claim, askedAt) => {
        this.#lostAnAnswer = false
        this.#failures = 0
        this.#isClaiming = false
        this.#take(claim, askedAt)
        this.#options.onClaimEnd()
      },
      failed: (error) => {
        this.#isClaiming = false
        this.#lostAnAnswer = true
        this.#mayHaveMore = true
        this.#failures += 1
        this.#options.onError(error)
        this.#claimIn(backoffMs(RETRYING, this.#failures))
        this.#options.onClaimEnd()
      },
    }
  }

  #request(limit: number): ClaimRequest {
    const { names, worker, ttlMs, runningIds } = this.#options
    return { names, limit, worker, ttlMs, known: this.#lostAnAnswer ? runningIds() : undefined }
  }

  #take({ jobs, againMs }: ClaimResult, askedAt: Instant): void {
    const { wakes, start, pollMs } = this.#options
    wakes.probe()
    for (const facts of jobs) start(facts, askedAt)
    if (againMs === 0) this.#mayHaveMore = true
    this.onFree()
    this.#claimIn(Math.min(againMs ?? Number.POSITIVE_INFINITY, pollMs * (0.9 + Math.random() / 5)))
  }

  /** The timer keeps the process alive: a worker is there to work. */
  #claimIn(delayMs: number): void {
    clearTimeout(this.#timer)
    if (this.#isStopped) return
    this.#timer = setTimeout(() => {
      this.#mayHaveMore = true
      void this.#claim()
    }, delayMs)
  }
}

export const RETRYING: Backoff = { firstMs: 100, longestMs: 3000, jitter: 0.5 }
