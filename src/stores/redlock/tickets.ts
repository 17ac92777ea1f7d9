import type { Ticket } from '../../contract/store.ts'

/** What this process knows of one of its tickets. */
export interface TicketState {
  /** Given to the caller, by a quorum. Undefined for one that only asks or waits. */
  fence: bigint | undefined
  /** Until when nobody else can have a quorum, on our monotonic clock: counted from before the request that was granted. */
  validUntil: number
  /** Until when a server may remember it. */
  keptUntil: number
  /** It was released: whatever is still under way must not bring it back. */
  over: boolean
  /** Servers that were asked to let it in, one bit each. 0: another process has asked. */
  asked: number
  /** Those of them that did not answer: the question may still arrive. */
  doubtful: number
  /** The last question that may change what it is; see `inTurn` in council.ts. */
  asking: Promise<unknown> | undefined
  /** Somebody wanted to ask meanwhile, and was sent away. */
  overtaken: boolean
  /** A vote of it came when the question was decided already: the next one waits for all servers, or it would never be counted. */
  waitsForAll: boolean
  /** How often in a row nobody had a quorum. */
  splits: number
}

/** The tickets of this process that may have a vote somewhere. */
export class Tickets {
  readonly #states = new Map<string, TicketState>()
  #sweepAt = FIRST_SWEEP

  get(id: string): TicketState | undefined {
    return this.#states.get(id)
  }

  of(ticket: Ticket): TicketState {
    let state = this.#states.get(ticket.id)
    if (state === undefined) {
      if (this.#states.size >= this.#sweepAt) this.#sweep()
      state = { ...UNKNOWN }
      this.#states.set(ticket.id, state)
    }
    const { ttlMs, patienceMs, minHoldMs } = ticket
    state.keptUntil = Math.max(state.keptUntil, performance.now() + Math.max(ttlMs, patienceMs, minHoldMs))
    return state
  }

  end(id: string): TicketState | undefined {
    const state = this.#states.get(id)
    if (state === undefined) return undefined
    state.over = true
    this.#states.delete(id)
    return state
  }

  /** A lease that was lost is not always released. */
  #sweep(): void {
    const now = performance.now()
    for (const [id, { keptUntil, asking }] of this.#states) {
      if (asking === undefined && keptUntil < now) this.#states.delete(id)
    }
    this.#sweepAt = Math.max(FIRST_SWEEP, 2 * this.#states.size)
  }
}

const FIRST_SWEEP = 1000
const UNKNOWN: Readonly<TicketState> = {
  fence: undefined,
  validUntil: 0,
  keptUntil: 0,
  over: false,
  asked: 0,
  doubtful: 0,
  asking: undefined,
  overtaken: false,
  waitsForAll: false,
  splits: 0,
}
