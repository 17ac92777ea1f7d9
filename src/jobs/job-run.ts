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

/** What a handler asks for when it settles its job. */
interface AskedEnd<Outcome> extends SettleOptions {
  readonly as: (outcome: Outcome) => OwnEnd
  /** The same for the worker, which asks again if no answer comes. */
  readonly end: () => AttemptEnd
}

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
  /** The settlements that the handler has asked for, as long as they have no answer. */
  readonly #asking = new Set<Promise<unknown>>()
  #rejectUntil: (error: unknown) => void = () => {}

  constructor(facts: JobFacts, { lease, settling }: { lease: LeaseTime; settling: SettleContext }) {
    this.facts = facts
    this.#lease = lease
    this.#settling = settling
    this.job = new HandledJob(facts, this)
  }

  complete(options?: CompleteOptions): Promise<void> {
    const { complete } = this.#claimed
    return this.#ask(complete(options), {
      transaction: options?.transaction,
      as: () => 'completed',
      end: () => completed(options ?? {}, this.#settling),
    })
  }

  fail(error: unknown, options?: FailOptions): Promise<FailOutcome> {
    const { fail } = this.#claimed
    return this.#ask(fail(error, options), {
      transaction: options?.transaction,
      as: (outcome) => outcome,
      end: () => failed(error, options),
    })
  }

  giveBack(options?: SettleOptions): Promise<void> {
    const { giveBack } = this.#claimed
    return this.#ask(giveBack(options), {
      transaction: options?.transaction,
      as: () => 'given-back',
      end: () => GIVEN_BACK,
    })
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

  get #claimed(): ClaimedJob {
    return claimedJob(this.facts, this.#lease, this.#settling)
  }

  /**
   * The handler need not await what it has asked for: the worker does. The worker asks again for what got no answer, and reports
   * a lost job, so neither may end the process as an unhandled rejection.
   */
  #ask<Outcome>(settlement: Promise<Outcome>, asked: AskedEnd<Outcome>): Promise<Outcome> {
    const answer = this.#answered(settlement, asked)
    this.#asking.add(answer)
    const isOver = (): boolean => this.#asking.delete(answer)
    answer.then(isOver, (error: unknown) => {
      isOver()
      if (isHoldfastError(error, 'store-unavailable') || isHoldfastError(error, 'lease-lost'))
        told.catch(() => {})
    })
    const told = answer.then((outcome) => outcome)
    return told
  }

  async #answered<Outcome>(
    settlement: Promise<Outcome>,
    { transaction, as, end }: AskedEnd<Outcome>,
  ): Promise<Outcome> {
    try {
      const outcome = await this.settling(settlement)
      this.settled = { as: as(outcome), mayRollBack: transaction !== undefined }
      return outcome
    } catch (error) {
      const isUnknown = isHoldfastError(error, 'store-unavailable')
      if (isUnknown && transaction === undefined) this.unanswered = end()
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

  /**
   * Calls the handler. Settles as it does, once the settlements that it has asked for have their answers. Rejects at once when the job
   * is cut off.
   */
  async handle(call: () => unknown): Promise<unknown> {
    try {
      const handled = call()
      const isPromise = typeof (handled as { then?: unknown } | null | undefined)?.then === 'function'
      const value = isPromise ? await this.#untilCutOff(handled as PromiseLike<unknown>) : handled
      if (this.#asking.size > 0) await this.#untilAnswered()
      return value
    } catch (error) {
      if (this.#asking.size > 0 && !this.isCutOff) await this.#untilAnswered().catch(() => {})
      throw error
    }
  }

  /** If the worker settled the job before, the handler's own settlement would be refused. */
  async #untilAnswered(): Promise<void> {
    // The end of one may have led to another one.
    while (this.#asking.size > 0) await this.#untilCutOff(Promise.allSettled(this.#asking))
  }

  #untilCutOff<Value>(promise: PromiseLike<Value>): Promise<Value> {
    return new Promise((resolve, reject) => {
      this.#rejectUntil = reject
      promise.then(resolve, reject)
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

  /** How long its settlement has taken up to now. */
  get settlesForMs(): number {
    return this.#endedAt === undefined ? 0 : performance.now() - this.#endedAt
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
