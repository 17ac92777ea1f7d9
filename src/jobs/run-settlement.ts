import { isHoldfastError } from '../errors.ts'
import { COMPLETED, failed, GIVEN_BACK, lostError, resultError, unsettledError } from './claimed-job.ts'
import type { FailOutcome, JobFacts } from './job.ts'
import type { JobRun } from './job-run.ts'
import { type Pauses, RETRYING, STOPPING } from './pauses.ts'
import type { AttemptEnd, SettlementQueue } from './settlement-queue.ts'

/**
 * The outcome of an attempt that did not end well.
 *
 * - `lost`: the job was no longer this worker's, and the database was not changed.
 * - `unknown`: the database did not answer. If the job is not settled, another worker runs it again when its lease has
 *   ended.
 */
export interface JobFailure {
  /** The job and the attempt. */
  readonly job: JobFacts
  /** What the handler threw, or why the job could not be settled. */
  readonly error: unknown
  /** What became of the job. */
  readonly outcome: FailOutcome | 'completed' | 'lost' | 'unknown'
}

/** What became of a job whose handler has ended, and why, unless all went well. */
export interface HandledEnd {
  readonly outcome: JobFailure['outcome'] | 'given-back'
  readonly error: unknown
}

/** How a handler has ended. */
export type HandlerOutcome =
  | { readonly tag: 'returned'; readonly value: unknown }
  | { readonly tag: 'threw'; readonly error: unknown }

/** The database's result of an attempt, or the reason why it is unknown. */
type SettleAnswer =
  | { readonly tag: 'settled'; readonly outcome: 'completed' | FailOutcome }
  | { readonly tag: 'lost' }
  | { readonly tag: 'unknown'; readonly cause: unknown }

/**
 * `working`: claims and runs jobs. `stopping`: claims none, and waits for those that run. `stopped`: tries nothing any more,
 * although a handler may still run.
 */
export type Phase = 'working' | 'stopping' | 'stopped'

export interface RunSettlementOptions {
  readonly queue: SettlementQueue
  readonly ttlMs: number
  /** The present phase of the worker. */
  readonly phase: () => Phase
  /** The worker ends them when it stops. */
  readonly pauses: Pauses
  readonly onFailure: (failure: JobFailure) => void
  readonly onError: (error: unknown) => void
}

/** Settles the jobs of a worker. It tries until the database answers, and reports what did not end well. */
export class RunSettlement {
  readonly #options: RunSettlementOptions
  /** The names whose handlers have returned what cannot be kept. It is reported once: a handler mostly returns the same again. */
  readonly #withoutResult = new Set<string>()

  constructor(options: RunSettlementOptions) {
    this.#options = options
  }

  async giveBack(run: JobRun): Promise<void> {
    await this.#settle(run, GIVEN_BACK)
  }

  /** Settles a job whose handler has ended. */
  async end(run: JobRun, outcome: HandlerOutcome): Promise<HandledEnd> {
    if (outcome.tag === 'threw') return this.#settleFailed(run, outcome.error)
    if (run.settled === undefined) return this.#settleReturned(run, outcome.value)
    return { outcome: run.settled.as, error: undefined }
  }

  /** If the handler itself has asked for an end and got no answer, asks for the same end again; else completes the job. */
  async #settleReturned(run: JobRun, result: unknown): Promise<HandledEnd> {
    const end = run.unanswered ?? this.#completedWith(run, result)
    const settled = await this.#settle(run, end)
    if (end === GIVEN_BACK) return { outcome: 'given-back', error: undefined }
    switch (settled.tag) {
      case 'settled':
        return { outcome: settled.outcome, error: undefined }
      case 'lost':
        return this.#reportFailure(
          run,
          run.isLost ? run.job.signal.reason : lostError(run.facts, run),
          'lost',
        )
      case 'unknown':
        return this.#reportFailure(run, unsettledError(run.facts, settled.cause), 'unknown')
      default:
        return settled satisfies never
    }
  }

  /** The work is done, so a result that cannot be kept is no reason to do it again. */
  #completedWith(run: JobRun, result: unknown): AttemptEnd {
    try {
      return run.completedWith(result)
    } catch (error) {
      const { name } = run.facts
      if (!this.#withoutResult.has(name)) this.#options.onError(resultError(run.facts, error))
      this.#withoutResult.add(name)
      return COMPLETED
    }
  }

  async #settleFailed(run: JobRun, error: unknown): Promise<HandledEnd> {
    if (run.isCutOff && isHoldfastError(error, 'closed')) return this.#giveBackCutOff(run)
    const settled = await this.#settle(run, run.unanswered ?? failed(error))
    return this.#reportFailure(run, error, outcomeOf(settled, run))
  }

  /** The worker has stopped before the handler has ended. The handler may have settled its job before. */
  async #giveBackCutOff(run: JobRun): Promise<HandledEnd> {
    const { settled: before } = run
    if (before !== undefined && !before.mayRollBack) return { outcome: before.as, error: undefined }
    const answer = await this.#settle(run, GIVEN_BACK)
    // Its transaction has committed.
    const isSettled = before !== undefined && answer.tag === 'lost'
    return { outcome: isSettled ? before.as : 'given-back', error: undefined }
  }

  #settle(run: JobRun, end: AttemptEnd): Promise<SettleAnswer> {
    return run.settling(this.#settleInTries(run, end))
  }

  /** Tries until the database answers, or until the answer makes no difference any more. */
  async #settleInTries(run: JobRun, end: AttemptEnd): Promise<SettleAnswer> {
    const { progressUnderWay } = run
    // Afterwards it would be refused, and the last value lost.
    if (progressUnderWay !== undefined) await progressUnderWay
    for (let failures = 1; ; failures += 1) {
      try {
        const outcome = await this.#options.queue.settle(run.facts, end, {
          freesPlace: !run.isHeldUp,
          onHeldUp: () => {
            run.isHeldUp = true
          },
        })
        return outcome === null ? { tag: 'lost' } : { tag: 'settled', outcome }
      } catch (error) {
        this.#options.onError(error)
        if (!this.#isInVain(run)) {
          await this.#options.pauses.after(
            failures,
            this.#options.phase() === 'working' ? RETRYING : STOPPING,
          )
          if (this.#options.phase() !== 'stopped') continue
        }
        return { tag: 'unknown', cause: error }
      }
    }
  }

  #isInVain(run: JobRun): boolean {
    return this.#options.phase() === 'stopped' || run.remainingMs < -this.#options.ttlMs
  }

  #reportFailure(run: JobRun, error: unknown, outcome: JobFailure['outcome']): HandledEnd {
    this.#options.onFailure({ job: run.facts, error, outcome })
    return { outcome, error }
  }
}

/** The outcome of an attempt that its handler may have settled itself before. */
function outcomeOf(settled: SettleAnswer, { settled: before }: JobRun): JobFailure['outcome'] {
  if (settled.tag === 'settled') return settled.outcome
  if (before === undefined || (settled.tag === 'unknown' && before.mayRollBack)) return settled.tag
  return before.as === 'given-back' ? 'ready' : before.as
}
