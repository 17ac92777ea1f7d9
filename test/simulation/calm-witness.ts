import type { RoomView } from '../../src/contract/store.ts'
import type { Member } from './member.ts'
import type { Rule } from './violation.ts'

export interface CalmWitnessOptions {
  readonly report: (rule: Rule, message: string) => void
  readonly now: () => number
  readonly members: readonly Member[]
}

/**
 * Reports a state that lasts longer than a few messages take, when there is no fault: an open offer, a holder by
 * message whose call still waits, a queued ticket whose caller has given up.
 */
export class CalmWitness {
  readonly #options: CalmWitnessOptions
  /** The states that should not last, each with the time since when it is there. */
  #since = new Map<string, number>()

  constructor(options: CalmWitnessOptions) {
    this.#options = options
  }

  check(rooms: readonly RoomView[]): void {
    const since = new Map<string, number>()
    for (const { holders, queue } of rooms) {
      for (const { id, state } of holders)
        if (state === 'offered') this.#judge(since, `${id} is offered the key`)
        else if (state === 'held' && this.#waits(id))
          this.#judge(since, `${id} holds the key and still waits`)
      for (const { id } of queue)
        if (!this.#waits(id)) this.#judge(since, `${id} has given up and still waits`)
    }
    this.#since = since
  }

  #judge(since: Map<string, number>, what: string): void {
    const now = this.#options.now()
    const started = this.#since.get(what) ?? now
    since.set(what, started)
    if (now - started > SOON_MS)
      this.#options.report('liveness', `${what} for ${(now - started).toFixed(3)} ms`)
  }

  #waits(id: string): boolean {
    return this.#options.members.some(({ engine }) => engine.waiting.some(({ ticket }) => ticket.id === id))
  }
}

/** Time for a request each way, for a timer that asks once more, and something to spare. */
const SOON_MS = 20
