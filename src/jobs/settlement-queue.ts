import { outsideOfCallers } from '../base/async-context.ts'
import { type Backoff, backoffMs } from '../base/backoff.ts'
import { type Instant, now, paused, systemClock } from '../base/clock.ts'
import { isHoldfastError, StoreError } from '../errors.ts'
import type { FailOutcome } from './job.ts'
import type { JobTables } from './job-tables.ts'
import {
  type Attempt,
  attemptKey,
  attemptKeys,
  type ClaimRequest,
  type ClaimResult,
  type Completed,
  MOST_CHARACTERS,
  type Settled,
  type Settlement,
  type Uncompleted,
} from './statements.ts'

/** How an attempt ends. */
export type AttemptEnd =
  | { readonly how: 'completed'; readonly result: string | null }
  | ({ readonly how: 'other' } & Omit<Uncompleted, keyof Attempt>)

interface PendingSettlement {
  readonly attempt: Attempt
  readonly end: AttemptEnd
  readonly freesPlace: boolean
  readonly onHeldUp: () => void
  readonly resolve: (outcome: 'completed' | FailOutcome | null) => void
  readonly reject: (error: unknown) => void
}

/**
 * Another open transaction has locked the job or its group, or has enqueued the unique key of a job that would be put back. So its
 * settlement is asked again until that transaction ends.
 */
interface HeldUp extends PendingSettlement {
  /** When to give up, on the clock of `performance.now()`. */
  readonly until: number
}

interface BatchFailure {
  error: unknown
  /** How many more settlements may be refused alone before the rest is given up. 0 if the database does not answer. */
  refusalsLeft: number
}

/** A claim that is sent in the same statement as a settlement. */
export interface PiggybackedClaim {
  readonly request: ClaimRequest
  claimed(claim: ClaimResult, askedAt: Instant): void
  failed(error: unknown): void
}

/**
 * Settles attempts, one or two statements at a time. Requests that come while statements run go together into the next one.
 */
export class SettlementQueue {
  readonly #tables: JobTables
  readonly #keepsCompleted: boolean
  /** The claim that the worker sends in the statement that ends so many of its jobs. */
  piggyback: (ending: number) => PiggybackedClaim | undefined = () => undefined
  #pending: PendingSettlement[] = []
  #heldUp: HeldUp[] = []
  #isRetrying = false
  /** How many batches are on their way. */
  #sending = 0

  constructor(tables: JobTables, { keepsCompleted }: { readonly keepsCompleted: boolean }) {
    this.#tables = tables
    this.#keepsCompleted = keepsCompleted
  }

  /**
   * Resolves with what became of the job; null when this attempt was not the one that ran. `freesPlace`: the handler has ended,
   * so the worker may have another job instead. `onHeldUp`: the settlement has to wait for another open transaction.
   */
  settle(
    attempt: Attempt,
    end: AttemptEnd,
    { freesPlace = false, onHeldUp = () => {} }: { freesPlace?: boolean; onHeldUp?: () => void } = {},
  ): Promise<'completed' | FailOutcome | null> {
    return new Promise((resolve, reject) => {
      this.#pending.push({ attempt, end, freesPlace, onHeldUp, resolve, reject })
      // In the next turn of the event loop, so that all attempts that end in this one share the statement.
      const isFirst = this.#sending === 0 && this.#pending.length === 1
      const isFull = this.#sending === 1 && this.#pending.length === BATCH
      // The statement is for all of them, and its claim begins other jobs: neither belongs to the async context of this caller.
      if (isFirst || isFull) outsideOfCallers(() => setImmediate(() => void this.#flush()))
    })
  }

  /** A second batch goes beside the first one only if it is full: small ones would cost the database more than they save. */
  async #flush(): Promise<void> {
    this.#sending += 1
    while (this.#pending.length >= (this.#sending === 1 ? 1 : BATCH)) {
      await this.#send(this.#pending.splice(0, lengthOfBatch(this.#pending)))
      // In the next turn the jobs that have ended no longer count as running. Only then can others be claimed in their place.
      await new Promise(setImmediate)
    }
    this.#sending -= 1
  }

  async #send(batch: PendingSettlement[]): Promise<void> {
    const claim = this.piggyback(batch.filter(({ freesPlace }) => freesPlace).length)
    try {
      this.#told(batch, await this.#ask(settlementOf(batch), claim))
    } catch (error) {
      claim?.failed(error)
      await this.#sendApart(batch, { error, refusalsLeft: MOST_REFUSED })
    }
  }

  /** The batch has failed. If the database has refused it, maybe because of one job, each half goes alone. */
  async #sendApart(batch: readonly PendingSettlement[], failure: BatchFailure): Promise<void> {
    if (!isHoldfastError(failure.error, 'store-refused')) failure.refusalsLeft = 0
    else if (batch.length === 1) failure.refusalsLeft -= 1
    if (batch.length === 1 || failure.refusalsLeft === 0) {
      for (const { reject } of batch) reject(failure.error)
      return
    }
    const middle = Math.ceil(batch.length / 2)
    for (const half of [batch.slice(0, middle), batch.slice(middle)]) {
      if (failure.refusalsLeft === 0) {
        for (const { reject } of half) reject(failure.error)
        continue
      }
      try {
        this.#told(half, await this.#ask(settlementOf(half), undefined))
      } catch (error) {
        failure.error = error
        await this.#sendApart(half, failure)
      }
    }
  }

  #told(batch: readonly PendingSettlement[], settled: Settled): void {
    for (const [pending, outcome] of outcomesOf(batch, settled)) {
      if (outcome !== 'busy') pending.resolve(outcome)
      else {
        pending.onHeldUp()
        // One that was held up before keeps its limit.
        this.#heldUp.push({ until: performance.now() + HELD_UP_MS, ...pending })
      }
    }
    void this.#settleHeldUp()
  }

  /**
   * Runs beside the batches, which must not wait for another open transaction. All settlements that are held up go into one
   * statement. Otherwise one transaction that has locked many jobs would occupy all connections.
   */
  async #settleHeldUp(): Promise<void> {
    if (this.#isRetrying) return
    this.#isRetrying = true
    for (let round = 1; this.#heldUp.length > 0; round += 1) {
      await paused(systemClock, backoffMs(HELD_UP, round))
      const batch = this.#heldUp.splice(0, lengthOfBatch(this.#heldUp))
      try {
        const settled = await this.#ask(settlementOf(batch), undefined)
        const again: HeldUp[] = []
        for (const [one, outcome] of outcomesOf(batch, settled)) {
          if (outcome !== 'busy') one.resolve(outcome)
          else if (performance.now() < one.until) again.push(one)
          else one.reject(heldUpError(one.attempt))
        }
        // The statement tries no key after the first that is busy. So another one goes first next time.
        this.#heldUp.push(...again.slice(1), ...again.slice(0, 1))
      } catch (error) {
        await this.#sendApart(batch, { error, refusalsLeft: MOST_REFUSED })
      }
    }
    this.#isRetrying = false
  }

  async #ask(settlement: Settlement, piggybacked: PiggybackedClaim | undefined): Promise<Settled> {
    const keepsCompleted = this.#keepsCompleted
    if (piggybacked === undefined) return this.#tables.settle(settlement, { keepsCompleted })
    const askedAt = now(systemClock)
    const { request } = piggybacked
    const { settled, claim } = await this.#tables.settleAndClaim(settlement, { keepsCompleted, request })
    piggybacked.claimed(claim, askedAt)
    return settled
  }
}

/** If so many jobs of a batch are refused one by one, the database refuses whatever is asked, and the rest is not tried alone. */
const MOST_REFUSED = 8
/** A larger batch gains nothing, and others wait longer for the connection. */
const BATCH = 500

/** How many of the first ones go into one statement. */
function lengthOfBatch(pending: readonly PendingSettlement[]): number {
  let characters = 0
  const end = pending.findIndex(({ end }, index) => {
    if (end.how === 'completed') characters += end.result?.length ?? 0
    return index > 0 && (index >= BATCH || characters > MOST_CHARACTERS)
  })
  return end === -1 ? pending.length : end
}

/** How often to ask again while another transaction is open. */
export const HELD_UP: Backoff = { firstMs: 50, longestMs: 400, jitter: 0.5 }

/** How long a settlement may be held up before it rejects. Its caller then asks again or gives up. */
export const HELD_UP_MS = 1500

function settlementOf(batch: readonly PendingSettlement[]): Settlement {
  const done: Completed[] = []
  const others: Uncompleted[] = []
  for (const { attempt: of, end } of batch) {
    if (end.how === 'completed')
      done.push({ id: of.id, attempt: of.attempt, group: of.group, result: end.result })
    else {
      const { reason, retry, retry_in_ms } = end
      others.push({ id: of.id, attempt: of.attempt, group: of.group, reason, retry, retry_in_ms })
    }
  }
  done.sort((a, b) => Number(a.id) - Number(b.id) || a.attempt - b.attempt)
  return { done, others }
}

function outcomesOf<Pending extends PendingSettlement>(
  batch: readonly Pending[],
  { lost, busy, outcomes }: Settled,
): [Pending, 'completed' | FailOutcome | 'busy' | null][] {
  const lostKeys = attemptKeys(lost)
  const busyKeys = attemptKeys(busy)
  let others = 0
  return batch.map((pending) => {
    if (pending.end.how === 'other') {
      others += 1
      return [pending, outcomes[others - 1] ?? null]
    }
    const key = attemptKey(pending.attempt)
    return [pending, lostKeys.has(key) ? null : busyKeys.has(key) ? 'busy' : 'completed']
  })
}

function heldUpError({ id }: Attempt): StoreError {
  const message = `The job ${id} could not be settled: another transaction is open that has locked it or its group, or has enqueued a job of its name and key.`
  return new StoreError('store-unavailable', message, { key: id })
}
