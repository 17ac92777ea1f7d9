import type { Instant } from '../base/clock.ts'
import { isHoldfastError, LeaseLostError } from '../errors.ts'
import { COMPLETED, claimedJob, expiredError, failed, GIVEN_BACK, type Settling } from './claimed-job.ts'
import type { ClaimedJob, FailOptions, FailOutcome, JobFacts, RunningJob, SettleOptions } from './job.ts'
import type { LeaseTime } from './lease-time.ts'
import type { End } from './settler.ts'

/**
 * One job in one worker, from its claim until it is settled: its lease, its signal, and whether somebody has settled
 * it.
 */
export class Run {
  readonly facts: JobFacts
  readonly job: RunningJob
  /**
   * What the handler itself has made of the job. Where that was in a transaction, nobody knows yet whether it commits.
   */
  settledAs: 'completed' | FailOutcome | undefined
  /** What the handler itself has asked for, outside a transaction, and nobody knows whether it happened. */
  unanswered: End | undefined
  isLost = false
  isCutOff = false
  /** Its handler is over, and how it ended cannot be recorded before somebody's transaction ends. */
  isHeldUp = false
  readonly #settling: Settling
  readonly #startedAt = performance.now()
  /** Made when it is first asked for: most handlers never look at it. */
  #controller: AbortController | undefined
  readonly #lease: LeaseTime
  #settlements = 0
  #cutOff: (error: unknown) => void = () => {}

  constructor(facts: JobFacts, { lease, settling }: { lease: LeaseTime; settling: Settling }) {
    this.facts = facts
    this.#lease = lease
    this.#settling = settling
    this.job = new HandledJob(facts, this)
  }

  async complete(options?: SettleOptions): Promise<void> {
    const { complete } = this.#claimed
    await this.#asked(complete(options), options, () => COMPLETED)
    this.settledAs = 'completed'
  }

  async fail(error: unknown, options?: FailOptions): Promise<FailOutcome> {
    const { fail } = this.#claimed
    const outcome = await this.#asked(fail(error, options), options, () => failed(error, options))
    this.settledAs = outcome
    return outcome
  }

  async giveBack(options?: SettleOptions): Promise<void> {
    const { giveBack } = this.#claimed
    await this.#asked(giveBack(options), options, () => GIVEN_BACK)
    this.settledAs = 'ready'
  }

  get #claimed(): ClaimedJob {
    return claimedJob(this.facts, this.#lease, this.#settling)
  }

  async #asked<Outcome>(
    settlement: Promise<Outcome>,
    options: SettleOptions | undefined,
    end: () => End,
  ): Promise<Outcome> {
    try {
      return await this.settling(settlement)
    } catch (error) {
      const isUnknown = isHoldfastError(error, 'store-unavailable')
      if (isUnknown && options?.transaction === undefined) this.unanswered = end()
      throw error
    }
  }

  /** Until its answer is there, a renewal that no longer finds the attempt has learned nothing: it may have been settled. */
  async settling<Outcome>(settlement: Promise<Outcome>): Promise<Outcome> {
    this.#settlements += 1
    try {
      return await settlement
    } finally {
      this.#settlements -= 1
    }
  }

  /** Resolves and rejects as the handler does, and rejects when that is no longer waited for. */
  async until(handled: unknown): Promise<void> {
    if (typeof (handled as { then?: unknown } | null | undefined)?.then !== 'function') return
    await new Promise<unknown>((resolve, reject) => {
      this.#cutOff = reject
      ;(handled as PromiseLike<unknown>).then(resolve, reject)
      if (this.isCutOff) reject(this.signal.reason)
    })
  }

  get runsForMs(): number {
    return performance.now() - this.#startedAt
  }

  /** How long the lease may still be believed in; not positive when it is over. */
  get remainingMs(): number {
    return this.#lease.remainingMs
  }

  /** The database has confirmed it, asked at that instant. */
  renewed(askedAt: Instant): void {
    this.#lease.renewed(askedAt)
  }

  /** By the clocks, as no timer fires while the event loop is blocked. */
  loseIfOver(): void {
    if (this.#lease.isOver) this.lose('expired')
  }

  assertHeld(): void {
    this.loseIfOver()
    if (this.isLost || this.isCutOff) throw this.signal.reason
  }

  /** Another worker may have the job from now on, or has it. */
  lose(reason: 'expired' | 'evicted'): void {
    if (this.isLost || this.settledAs !== undefined) return
    if (reason === 'evicted' && this.#settlements > 0) return
    this.isLost = true
    this.#abort(reason === 'expired' ? expiredError(this.facts, this.#lease) : evictedError(this.facts))
  }

  /** Asks the handler to end, and waits for it no longer. */
  cut(error: Error): void {
    this.isCutOff = true
    this.#abort(error)
    this.#cutOff(error)
  }

  #abort(reason: Error): void {
    this.#controller ??= new AbortController()
    this.#controller.abort(reason)
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    return this.#controller.signal
  }
}

function evictedError({ id, name }: JobFacts): LeaseLostError {
  return new LeaseLostError(
    `The job ${id} (${name}) is no longer this worker's: it was cancelled, or its lease ran out and another worker has it.`,
    { key: id, reason: 'evicted' },
  )
}

/**
 * What a handler sees. Its methods need no `this`, and are made when they are asked for: most handlers ask for none, and
 * making them for each job cost two fifths of a worker's processor time.
 */
class HandledJob implements RunningJob {
  readonly id: string
  readonly name: string
  readonly payload: unknown
  readonly attempt: number
  readonly failures: number
  readonly maxAttempts: number
  readonly priority: number
  readonly key: string | null
  readonly group: string | null
  readonly enqueuedAt: Date
  readonly #run: Run

  constructor(facts: JobFacts, run: Run) {
    this.id = facts.id
    this.name = facts.name
    this.payload = facts.payload
    this.attempt = facts.attempt
    this.failures = facts.failures
    this.maxAttempts = facts.maxAttempts
    this.priority = facts.priority
    this.key = facts.key
    this.group = facts.group
    this.enqueuedAt = facts.enqueuedAt
    this.#run = run
  }

  get signal(): AbortSignal {
    // A handler that has blocked the event loop, and asks now whether it may go on, must not be told by a late timer.
    if (!this.#run.isCutOff) this.#run.loseIfOver()
    return this.#run.signal
  }

  get assertHeld(): RunningJob['assertHeld'] {
    return () => this.#run.assertHeld()
  }

  get complete(): RunningJob['complete'] {
    return (options) => this.#run.complete(options)
  }

  get fail(): RunningJob['fail'] {
    return (error, options) => this.#run.fail(error, options)
  }

  get giveBack(): RunningJob['giveBack'] {
    return (options) => this.#run.giveBack(options)
  }
}
