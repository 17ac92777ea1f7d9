import type { Instant } from '../base/clock.ts'
import { nextRunNumber } from '../base/run-number.ts'
import { isHoldfastError, LeaseLostError } from '../errors.ts'
import { claimedJob, completed, expiredError, failed, GIVEN_BACK, type SettleContext } from './claimed-job.ts'
import type {
  ClaimedJob,
  CompleteOptions,
  FailOptions,
  FailOutcome,
  JobDetails,
  JobFacts,
  RunningJob,
  SettleOptions,
} from './job.ts'
import type { LeaseTime } from './lease-time.ts'
import type { AttemptEnd } from './settlement-queue.ts'

/** How a handler may settle its job. */
type OwnEnd = 'completed' | FailOutcome | 'given-back'

/** One job in one worker, from its claim until it is settled: its lease, when it began, its signal, and how it ended. */
export class JobRun {
  readonly facts: JobFacts
  readonly job: RunningJob
  /** In the events of this attempt. */
  readonly number: number = nextRunNumber()
  /** How the handler itself has settled the job. `mayRollBack`: in a transaction, and nobody knows yet whether that commits. */
  settled: { readonly as: OwnEnd; readonly mayRollBack: boolean } | undefined
  /** The end that the handler asked for outside a transaction, when no answer came: it may or may not have happened. */
  unanswered: AttemptEnd | undefined
  isLost = false
  isCutOff = false
  /** The handler has ended, but its end cannot be recorded before another transaction ends. */
  isHeldUp = false
  readonly #settling: SettleContext
  readonly #claimedAt = performance.now()
  #isBegun = false
  #begunAt = 0
  #endedAt: number | undefined
  /** How many looks of the lease watch have found it waiting for a place. */
  looks = 0
  /** Made on first use: most handlers never look at their signal. */
  #controller: AbortController | undefined
  readonly #lease: LeaseTime
  #settlements = 0
  #rejectUntil: (error: unknown) => void = () => {}

  constructor(facts: JobFacts, { lease, settling }: { lease: LeaseTime; settling: SettleContext }) {
    this.facts = facts
    this.#lease = lease
    this.#settling = settling
    this.job = new HandledJob(facts, this)
  }

  async complete(options?: CompleteOptions): Promise<void> {
    const { complete } = this.#claimed
    await this.#asked(complete(options), options, () => completed(options ?? {}, this.#settling))
    this.#settledBy('completed', options)
  }

  async fail(error: unknown, options?: FailOptions): Promise<FailOutcome> {
    const { fail } = this.#claimed
    const outcome = await this.#asked(fail(error, options), options, () => failed(error, options))
    this.#settledBy(outcome, options)
    return outcome
  }

  async giveBack(options?: SettleOptions): Promise<void> {
    const { giveBack } = this.#claimed
    await this.#asked(giveBack(options), options, () => GIVEN_BACK)
    this.#settledBy('given-back', options)
  }

  setProgress(progress: unknown): Promise<void> {
    return this.#claimed.setProgress(progress)
  }

  /** Resolves when the progress that the handler has told is stored, or has failed. Undefined if all of it is. */
  get progressUnderWay(): Promise<unknown> | undefined {
    return this.#settling.progress.underWay(this.facts)
  }

  children(): Promise<readonly JobDetails[]> {
    return this.#settling.views.children(this.facts.id)
  }

  #settledBy(as: OwnEnd, options: SettleOptions | undefined): void {
    this.settled = { as, mayRollBack: options?.transaction !== undefined }
  }

  get #claimed(): ClaimedJob {
    return claimedJob(this.facts, this.#lease, this.#settling)
  }

  async #asked<Outcome>(
    settlement: Promise<Outcome>,
    options: SettleOptions | undefined,
    end: () => AttemptEnd,
  ): Promise<Outcome> {
    try {
      return await this.settling(settlement)
    } catch (error) {
      const isUnknown = isHoldfastError(error, 'store-unavailable')
      if (isUnknown && options?.transaction === undefined) this.unanswered = end()
      throw error
    }
  }

  /** While a settlement has no answer, a renewal that finds the attempt gone proves nothing: the attempt may be settled. */
  async settling<Outcome>(settlement: Promise<Outcome>): Promise<Outcome> {
    this.#settlements += 1
    try {
      return await settlement
    } finally {
      this.#settlements -= 1
    }
  }

  /** The end that completes the job with what its handler has returned. */
  completedWith(result: unknown): AttemptEnd {
    return completed({ result }, this.#settling)
  }

  /** Settles as the handler's promise does. Rejects at once when the job is cut off. */
  async until(handled: unknown): Promise<unknown> {
    if (typeof (handled as { then?: unknown } | null | undefined)?.then !== 'function') return handled
    return new Promise<unknown>((resolve, reject) => {
      this.#rejectUntil = reject
      ;(handled as PromiseLike<unknown>).then(resolve, reject)
      if (this.isCutOff) reject(this.signal.reason)
    })
  }

  /** The handler is about to be called. */
  begin(): void {
    this.#isBegun = true
    this.#begunAt = performance.now()
  }

  /** The handler has ended, or is waited for no longer. What is left is to settle the job. */
  end(): void {
    this.#endedAt = performance.now()
  }

  get isEnded(): boolean {
    return this.#endedAt !== undefined
  }

  /** How long it has waited here for a place, as long as it is not begun. */
  get claimedForMs(): number {
    return Math.max(0, (this.#isBegun ? this.#begunAt : performance.now()) - this.#claimedAt)
  }

  get isBegun(): boolean {
    return this.#isBegun
  }

  /** How long the handler has run, up to now or to its end. */
  get runsForMs(): number {
    return this.#isBegun ? (this.#endedAt ?? performance.now()) - this.#begunAt : 0
  }

  /** How long this process may still rely on the lease; not positive when it has ended. */
  get remainingMs(): number {
    return this.#lease.remainingMs
  }

  /** The database has confirmed the lease. `askedAt`: before the request was sent. */
  renewed(askedAt: Instant): void {
    this.#lease.renewed(askedAt)
  }

  /** Looks at the clocks: no timer fires while the event loop is blocked. */
  loseIfOver(): void {
    if (this.#lease.isOver) this.lose('expired')
  }

  assertHeld(): void {
    this.loseIfOver()
    if (this.isLost || this.isCutOff) throw this.signal.reason
  }

  /** From now on another worker may have the job, or it has ended. */
  lose(reason: 'expired' | 'evicted'): void {
    if (this.isLost || this.settled?.mayRollBack === false) return
    if (reason === 'evicted') {
      if (this.#settlements > 0) return
      // Most likely its transaction has committed. Then the lease does not matter any more.
      if (this.settled !== undefined) {
        this.settled = { ...this.settled, mayRollBack: false }
        return
      }
    }
    this.isLost = true
    this.#abort(reason === 'expired' ? expiredError(this.facts, this.#lease) : evictedError(this.facts))
  }

  /** Aborts the handler's signal, and waits for the handler no longer. */
  cutOff(error: Error): void {
    this.isCutOff = true
    this.#abort(error)
    this.#rejectUntil(error)
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
    `The job ${id} (${name}) is no longer this worker's: it was cancelled, or the database has ended its lease before its time.`,
    { key: id, reason: 'evicted' },
  )
}

/**
 * The argument of a handler. Its methods need no `this`. They are made on first use: most handlers use none, and making
 * them for each job cost two fifths of a worker's processor time.
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
  readonly waitedMs: number
  readonly trace: string | null
  readonly #run: JobRun

  constructor(facts: JobFacts, run: JobRun) {
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
    this.waitedMs = facts.waitedMs
    this.trace = facts.trace
    this.#run = run
  }

  get signal(): AbortSignal {
    // No timer has fired while a handler blocked the event loop. When it looks now, the clocks have to answer.
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

  get setProgress(): RunningJob['setProgress'] {
    return (progress) => this.#run.setProgress(progress)
  }

  get children(): RunningJob['children'] {
    return () => this.#run.children()
  }
}
