import { elapsedMs, type Instant, now, systemClock } from '../../base/clock.ts'
import { usableMs } from '../../base/validity.ts'
import type { Ticket } from '../../contract/store.ts'

/** What this process knows of one of its tickets. */
export interface TicketState {
  /** Given to the caller, by a quorum. Undefined for one that only asks or waits. */
  fence: bigint | undefined
  /** What proves that nobody else can have a quorum; see {@link isValid}. Undefined before the first grant. */
  granted: Grant | undefined
  /** Until when a server may remember it. */
  keptUntil: number
  /** It was released: whatever is still under way must not bring it back. */
  over: boolean
  /** Servers that were asked to let it in, one bit each. 0: another process has asked. */
  asked: number
  /** Those of them that did not answer: the question may still arrive. */
  doubtful: number
  /** The last question that may change what it is; see `inTurn` in quorum.ts. */
  asking: Promise<unknown> | undefined
  /** Somebody wanted to ask meanwhile, and was sent away. */
  overtaken: boolean
  /** A vote of it came when the question was decided already: the next one waits for all servers, or it would never be counted. */
  waitsForAll: boolean
  /** How often in a row nobody had a quorum. */
  splits: number
}

interface Grant {
  /** The instant before the request was written. */
  readonly askedAt: Instant
  readonly usableMs: number
}

/** A quorum has granted a request that was written after `askedAt`. */
export function grant(state: TicketState, askedAt: Instant, ttlMs: number): void {
  const usable = usableMs(ttlMs)
  const { granted } = state
  // A late answer to an earlier request may prove less than what is known by now.
  const proves = granted === undefined ? 0 : granted.askedAt.monotonicMs + granted.usableMs
  if (askedAt.monotonicMs + usable > proves) state.granted = { askedAt, usableMs: usable }
}

/** Whether the grant still counts by the monotonic clock alone, which no wall clock that is set forward changes. */
export function isInTime({ granted }: TicketState): boolean {
  return granted !== undefined && performance.now() < granted.askedAt.monotonicMs + granted.usableMs
}

/**
 * Whether nobody else can have a quorum yet. By both clocks, as for the deadline of a lease: while the machine is suspended, the
 * monotonic clock stands still and the servers go on.
 */
export function isValid({ granted }: TicketState): boolean {
  return granted !== undefined && elapsedMs(granted.askedAt, now(systemClock)) < granted.usableMs
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
  granted: undefined,
  keptUntil: 0,
  over: false,
  asked: 0,
  doubtful: 0,
  asking: undefined,
  overtaken: false,
  waitsForAll: false,
  splits: 0,
}
