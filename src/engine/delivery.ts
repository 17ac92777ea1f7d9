import type { RenewAnswer, Ticket } from '../contract/store.ts'
import type { StepwiseWork } from './backlog.ts'
import type { Exchange } from './instant.ts'
import type { Renewable } from './renewable.ts'

/** What came of a request of the renewal loop. */
export interface RenewalOutcome {
  readonly batch: readonly Renewable[]
  /** The tickets that were asked about, in the order of the batch. */
  readonly tickets: readonly Ticket[]
  /** In the same order. `undefined`: the request failed. */
  readonly answers: readonly RenewAnswer[] | undefined
  readonly error?: unknown
  readonly when: Exchange
}

/** Has the renewal loop take notice of a new `dueAt`. */
export type Put = (one: Renewable, now: number) => void

/**
 * Tells the members of a batch what came of their request. If there is no time to tell all of them at once, an answer that
 * confirms a lease or a wait may be told later. Every other answer is told at once: a loss, or a grant.
 */
export class Delivery implements StepwiseWork {
  readonly #put: Put
  #outcome: RenewalOutcome
  #next = 0

  constructor(put: Put, outcome: RenewalOutcome) {
    this.#put = put
    this.#outcome = outcome
  }

  step(): boolean {
    const end = Math.min(this.#next + STEP, this.#outcome.batch.length)
    // A listener that is told may have the rest delivered at once. So `#next` is never behind.
    while (this.#next < end) {
      this.#next += 1
      this.#tell(this.#outcome, this.#next - 1)
    }
    return this.#next < this.#outcome.batch.length
  }

  postponed(): void {
    const all = this.#outcome
    const { batch, tickets, answers } = all
    const urgent: number[] = []
    const rest = { batch: [] as Renewable[], tickets: [] as Ticket[], answers: [] as RenewAnswer[] }
    for (let index = this.#next; index < batch.length; index += 1) {
      const one = batch[index] as Renewable
      const answer = answers?.[index]
      if (isUrgent(one, answer)) urgent.push(index)
      else {
        rest.batch.push(one)
        rest.tickets.push(tickets[index] as Ticket)
        rest.answers.push(answer as RenewAnswer)
      }
    }
    // First, because a listener that is told below may have the rest delivered at once.
    this.#outcome = { ...all, ...rest, answers: answers && rest.answers }
    this.#next = 0
    for (const index of urgent) this.#tell(all, index)
  }

  /** Tells the one in this place of the batch. */
  #tell({ batch, tickets, answers, error, when }: RenewalOutcome, index: number): void {
    const one = batch[index] as Renewable
    // Removed meanwhile, so its answer is late: whatever it says, the ticket is released.
    if (one.bucket === undefined) return
    const answer = answers?.[index]
    // The store leaves a place empty when it could not learn anything of that ticket.
    if (typeof answer !== 'object' || answer === null) one.unanswered(error)
    else one.answered(answer, tickets[index] ?? one.ticket, when)
    if (one.bucket !== undefined) this.#put(one, when.answeredAt.monotonicMs)
  }
}

/** Whether somebody has to hear of it now. If not, all is as planned, or nothing is known. */
function isUrgent(one: Renewable, answer: RenewAnswer | undefined): boolean {
  switch (answer?.tag) {
    case 'held':
      return one.kind !== 'lease' || answer.fence !== one.fence
    case 'queued':
      return one.kind !== 'waiter'
    case 'gone':
      return true
    default:
      return false
  }
}

/** After so many the clock is looked at. A look takes 30 ns, and a listener may take long. */
const STEP = 16
