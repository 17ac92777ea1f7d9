import { type Backoff, backoffMs } from '../base/backoff.ts'
import { type Instant, now, paused, systemClock } from '../base/clock.ts'
import { StoreError } from '../errors.ts'
import type { FailOutcome } from './job.ts'
import type { JobTables } from './job-tables.ts'
import type { Attempt, Claim, ClaimRequest, Failure, Settled, Settlement } from './statements.ts'

/** How an attempt ends. */
export type End = { readonly how: 'completed' } | ({ readonly how: 'other' } & Omit<Failure, keyof Attempt>)

interface Pending {
  readonly attempt: Attempt
  readonly end: End
  readonly makesPlace: boolean
  readonly onHeldUp: () => void
  readonly resolve: (outcome: 'completed' | FailOutcome | null) => void
  readonly reject: (error: unknown) => void
}

/** Somebody's open transaction decides whether it may wait again. */
interface HeldUp extends Pending {
  readonly failure: Failure
  readonly until: number
}

/** A claim that goes along with a settlement. */
export interface Companion {
  readonly request: ClaimRequest
  claimed(claim: Claim, askedAt: Instant): void
  failed(error: unknown): void
}

/** Sends the ends of attempts: one statement at a time, with all that came up meanwhile. */
export class Settler {
  readonly #tables: JobTables
  readonly #keepsCompleted: boolean
  /** What its worker would like to claim, when so many places become free. */
  companion: (ended: number) => Companion | undefined = () => undefined
  #pending: Pending[] = []
  #heldUp: HeldUp[] = []
  #retries = false
  #busy = false

  constructor(tables: JobTables, { keepsCompleted }: { readonly keepsCompleted: boolean }) {
    this.#tables = tables
    this.#keepsCompleted = keepsCompleted
  }

  /**
   * Resolves with what became of the job, null when the attempt was not the one that ran. `makesPlace`: its handler is over,
   * so that its worker may have another job instead. `onHeldUp`: it takes as long as somebody's open transaction.
   */
  settle(
    attempt: Attempt,
    end: End,
    { makesPlace = false, onHeldUp = () => {} }: { makesPlace?: boolean; onHeldUp?: () => void } = {},
  ): Promise<'completed' | FailOutcome | null> {
    return new Promise((resolve, reject) => {
      this.#pending.push({ attempt, end, makesPlace, onHeldUp, resolve, reject })
      // In the next turn: what ends in the same turn shares the statement.
      if (this.#busy || this.#pending.length > 1) return
      setImmediate(() => void this.#flush())
    })
  }

  async #flush(): Promise<void> {
    this.#busy = true
    while (this.#pending.length > 0) {
      await this.#send(this.#pending.splice(0, BATCH))
      // In the next turn, when what has ended is no longer counted as running: else nothing could be claimed with it.
      await new Promise(setImmediate)
    }
    this.#busy = false
  }

  async #send(batch: readonly Pending[]): Promise<void> {
    const done: Pending[] = []
    const others: Pending[] = []
    const failures: Failure[] = []
    for (const pending of batch) {
      const { end, attempt: of } = pending
      if (end.how === 'completed') done.push(pending)
      else {
        const { reason, retry, retry_in_ms } = end
        others.push(pending)
        failures.push({ id: of.id, attempt: of.attempt, group: of.group, reason, retry, retry_in_ms })
      }
    }
    const companion = this.companion(batch.filter(({ makesPlace }) => makesPlace).length)
    try {
      const settlement = { done: done.map(({ attempt }) => attempt), others: failures }
      const { lost, outcomes } = await this.#ask(settlement, companion)
      const lostIds = new Set(lost)
      for (const { attempt, resolve } of done) resolve(lostIds.has(attempt.id) ? null : 'completed')
      for (const [index, pending] of others.entries()) {
        const outcome = outcomes[index] ?? null
        if (outcome !== 'busy') pending.resolve(outcome)
        else {
          const failure = failures[index] as Failure
          pending.onHeldUp()
          this.#heldUp.push({ ...pending, failure, until: performance.now() + HELD_UP_MS })
        }
      }
      void this.#settleHeldUp()
    } catch (error) {
      for (const { reject } of batch) reject(error)
      companion?.failed(error)
    }
  }

  /**
   * Beside the batches, which must not wait for somebody's open transaction that has enqueued the same unique key. All of
   * them in one statement, or a transaction with many keys would take the connections from everybody else.
   */
  async #settleHeldUp(): Promise<void> {
    if (this.#retries) return
    this.#retries = true
    for (let round = 1; this.#heldUp.length > 0; round += 1) {
      await paused(systemClock, backoffMs(HELD_UP, round))
      const batch = this.#heldUp.splice(0, BATCH)
      try {
        const settlement = { done: [], others: batch.map(({ failure }) => failure) }
        const { outcomes } = await this.#tables.settle(settlement, { keepsCompleted: this.#keepsCompleted })
        const again = batch.filter((one, index) => {
          const outcome = outcomes[index] ?? null
          if (outcome !== 'busy') one.resolve(outcome)
          else if (performance.now() < one.until) return true
          else one.reject(heldUpError(one.failure))
          return false
        })
        // Behind the first one the others were not tried: next time another one is first.
        this.#heldUp.push(...again.slice(1), ...again.slice(0, 1))
      } catch (error) {
        for (const { reject } of batch) reject(error)
      }
    }
    this.#retries = false
  }

  async #ask(settlement: Settlement, companion: Companion | undefined): Promise<Settled> {
    const keepsCompleted = this.#keepsCompleted
    if (companion === undefined) return this.#tables.settle(settlement, { keepsCompleted })
    const askedAt = now(systemClock)
    const { request } = companion
    const { settled, claim } = await this.#tables.settleAndClaim(settlement, { keepsCompleted, request })
    companion.claimed(claim, askedAt)
    return settled
  }
}

/** Beyond it nothing is gained, and others wait longer for the connection. */
const BATCH = 200

const HELD_UP: Backoff = { firstMs: 50, longestMs: 400, jitter: 0.5 }

/** Then who waits for it is told, asks again, or gives it up. */
const HELD_UP_MS = 1500

function heldUpError({ id }: Failure): StoreError {
  const message = `The job ${id} could not be put back: a transaction that has enqueued a job of its name and key is open.`
  return new StoreError('store-unavailable', message, { key: id })
}
