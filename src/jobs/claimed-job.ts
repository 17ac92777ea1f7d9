import { checkOptions } from '../base/arguments.ts'
import { parseDuration } from '../base/duration.ts'
import { messageOf, reportOf } from '../base/thrown.ts'
import { InvalidArgumentError, LeaseLostError, StoreError } from '../errors.ts'
import type { ClaimedJob, CompleteOptions, FailOptions, FailOutcome, JobFacts, SettleOptions } from './job.ts'
import type { JobTables } from './job-tables.ts'
import type { JobViews } from './job-views.ts'
import { jsonText } from './json-text.ts'
import type { LeaseTime } from './lease-time.ts'
import { HOLD_RANGE } from './options.ts'
import type { ProgressReports } from './progress-reports.ts'
import type { AttemptEnd, SettlementQueue } from './settlement-queue.ts'
import type { Attempt } from './statements.ts'

/** The statements that settle attempts. */
export interface SettleContext {
  readonly tables: JobTables
  readonly queue: SettlementQueue
  readonly progress: ProgressReports
  readonly views: JobViews
  readonly keepsCompleted: boolean
  readonly maxPayloadBytes: number
}

export const COMPLETED: AttemptEnd = { how: 'completed', result: null }
export const GIVEN_BACK: AttemptEnd = { how: 'other', reason: null, retry: true, retry_in_ms: null }

/** What settles one attempt. */
interface SettlingAttempt extends Pick<SettleContext, 'tables' | 'queue' | 'progress' | 'keepsCompleted'> {
  readonly lease: LeaseTime
}

/** The facts of a claim with its ways to end. Methods need no `this`. */
export function claimedJob(facts: JobFacts, lease: LeaseTime, settling: SettleContext): ClaimedJob {
  const { tables, queue, progress, keepsCompleted } = settling
  const context = { tables, queue, progress, keepsCompleted, lease }
  return {
    // One by one: a spread with methods behind it takes 5 µs.
    id: facts.id,
    name: facts.name,
    payload: facts.payload,
    attempt: facts.attempt,
    failures: facts.failures,
    maxAttempts: facts.maxAttempts,
    priority: facts.priority,
    key: facts.key,
    group: facts.group,
    enqueuedAt: facts.enqueuedAt,
    waitedMs: facts.waitedMs,
    trace: facts.trace,
    assertHeld() {
      if (lease.isOver) throw expiredError(facts, lease)
    },
    async complete(options = {}) {
      await settle(facts, completed(options, settling), options, context)
    },
    async fail(error, options = {}) {
      return (await settle(facts, failed(error, options), options, context)) as FailOutcome
    },
    async giveBack(options = {}) {
      checkOptions(options, ['transaction'])
      await settle(facts, GIVEN_BACK, options, context)
    },
    setProgress(value) {
      const stored = progress.report(facts, value).then(({ isCurrent }) => {
        if (!isCurrent) throw lostError(facts, lease)
      })
      // Often nobody awaits it. Then it must not end the process.
      stored.catch(() => {})
      return stored
    },
    children: () => settling.views.children(facts.id),
  }
}

export function completed(
  options: CompleteOptions,
  { maxPayloadBytes }: Pick<SettleContext, 'maxPayloadBytes'>,
): AttemptEnd {
  checkOptions(options, ['transaction', 'result'])
  const { result } = options
  if (result === undefined) return COMPLETED
  return { how: 'completed', result: jsonText('result', result, { maxBytes: maxPayloadBytes }) }
}

export function failed(error: unknown, options: FailOptions = {}): AttemptEnd {
  checkOptions(options, ['transaction', 'retry', 'retryIn'])
  const { retry = true, retryIn } = options
  const retryInMs = retryIn === undefined ? null : parseDuration('retryIn', retryIn, HOLD_RANGE)
  return { how: 'other', reason: reasonOf(error), retry, retry_in_ms: retryInMs }
}

async function settle(
  attempt: Attempt,
  end: AttemptEnd,
  { transaction }: SettleOptions,
  { tables, queue, progress, keepsCompleted, lease }: SettlingAttempt,
): Promise<'completed' | FailOutcome> {
  const progressUnderWay = progress.underWay(attempt)
  if (progressUnderWay !== undefined) await progressUnderWay
  const outcome =
    transaction === undefined
      ? await queue.settle(attempt, end)
      : await settleIn(transaction, attempt, { end, tables, keepsCompleted })
  if (outcome === null) throw lostError(attempt, lease)
  return outcome
}

async function settleIn(
  transaction: SettleOptions['transaction'],
  { id, attempt, group }: Attempt,
  {
    end,
    tables,
    keepsCompleted,
  }: { readonly end: AttemptEnd; readonly tables: JobTables; readonly keepsCompleted: boolean },
): Promise<'completed' | FailOutcome | null> {
  const { lost, outcomes } = await tables.settle(
    end.how === 'completed'
      ? { done: [{ id, attempt, group, result: end.result }], others: [] }
      : { done: [], others: [{ ...end, id, attempt, group }] },
    { keepsCompleted, transaction },
  )
  if (end.how === 'completed') return lost.length === 0 ? 'completed' : null
  return (outcomes[0] as FailOutcome | null | undefined) ?? null
}

/**
 * The database says that the attempt no longer runs. If its lease has ended by our clocks, it ran out. Otherwise somebody has
 * cancelled or settled the job meanwhile.
 */
export function lostError(
  { id, attempt }: Pick<Attempt, 'id' | 'attempt'>,
  { remainingMs }: Pick<LeaseTime, 'remainingMs'>,
): LeaseLostError {
  return new LeaseLostError(
    `Attempt ${attempt} of the job ${id} is not the one that runs (its lease ran out, it was cancelled, or it is settled already), so nothing was changed. Roll back what it did, or leave it to the next attempt.`,
    { key: id, reason: remainingMs <= 0 ? 'expired' : 'evicted' },
  )
}

/** The database has not answered for so long that its answer makes no difference any more, or until the worker was stopped. */
export function unsettledError({ id, name, attempt }: JobFacts, cause: unknown): StoreError {
  return new StoreError(
    'store-unavailable',
    `Attempt ${attempt} of the job ${id} (${name}) has ended, but the database did not confirm it, so nobody knows whether the job is settled. If it is not, another worker runs it again when its lease has ended.`,
    { key: id, cause },
  )
}

/** What the handler has returned cannot be kept. */
export function resultError({ id, name }: JobFacts, cause: unknown): InvalidArgumentError {
  return new InvalidArgumentError(
    `The job ${id} (${name}) was completed without its result. ${messageOf(cause)} If it has none, let its handler return nothing.`,
    { key: id, cause },
  )
}

export function answeredTooLate({ ttlMs }: LeaseTime): StoreError {
  return new StoreError(
    'store-unavailable',
    `The claim took longer than the \`ttl\` of ${ttlMs} ms, so its jobs were given back and none was begun. Claim again, with a longer \`ttl\`, and do not block the event loop for as long.`,
  )
}

export function expiredError({ id, name }: JobFacts, { ttlMs }: LeaseTime): LeaseLostError {
  return new LeaseLostError(
    `The lease of the job ${id} (${name}) ran out: the database has not confirmed it within ${ttlMs} ms (\`ttl\`). Another worker may run the job now.`,
    { key: id, reason: 'expired' },
  )
}

/** The text of an error, without the characters that PostgreSQL cannot store. */
function reasonOf(error: unknown): string {
  return reportOf(error).replace(/\0|\p{Cs}/gu, '\ufffd')
}
