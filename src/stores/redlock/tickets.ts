import { elapsedMs, type Instant, now, systemClock } from '../../base/clock.ts'
import { usableMs } from '../../base/validity.ts'
import type { Ticket } from '../../contract/store.ts'
import { NO_SERVERS, type ServerSet } from './server-set.ts'

/** This process's record of a ticket. */
export interface TicketRecord {
  /** The fence of the lease. Undefined as long as no quorum has granted it: the ticket only asks or waits. */
  fence: bigint | undefined
  /**
   * The votes that prove that no other ticket can have a quorum; see {@link isValid}. Undefined before the first grant.
   */
  granted: Grant | undefined
  /** Until when a server may remember the ticket. */
  keptUntil: number
  /** The ticket was released, evicted or lost. Requests that are still under way must not bring it back. */
  isOver: boolean
  /** The servers to which this process has sent an acquire. None: the acquire came from another process. */
  acquireSentTo: ServerSet
  /** The servers that gave no answer. The acquire may still arrive there. */
  unansweredBy: ServerSet
  /** The servers that refused the fence, because it is too far ahead of their time. */
  farBehind: ServerSet
  /** The last round that may change what the ticket is; see `inTurn` in quorum.ts. */
  lastRound: Promise<unknown> | undefined
  /** A renewal came during that round and got no answer. The ticket is woken after the round. */
  hasMissedRenewal: boolean
  /** A vote came after its round was decided. The next round waits for all servers, or that vote would never be counted. */
  waitsForAll: boolean
  /** How many rounds in a row ended without a quorum for any ticket. */
  splitVotes: number
}

/** Whether this process has begun the ticket. Otherwise it cannot know which servers were asked for a vote. */
export function isOurs({ acquireSentTo }: TicketRecord): boolean {
  return acquireSentTo !== NO_SERVERS
}

/** Rule 2 in quorum.ts. */
interface Grant {
  /** The instant before the request was written. */
  readonly askedAt: Instant
  readonly usableMs: number
}

/** A quorum has granted a request that was written after `askedAt`. */
export function grant(record: TicketRecord, askedAt: Instant, ttlMs: number): void {
  const usable = usableMs(ttlMs)
  const { granted } = record
  // A late answer to an earlier request may prove less than what is known by now.
  const proves = granted === undefined ? 0 : granted.askedAt.monotonicMs + granted.usableMs
  if (askedAt.monotonicMs + usable > proves) record.granted = { askedAt, usableMs: usable }
}

/** Whether the grant still counts by the monotonic clock alone: a wall clock that is set forward does not end it. */
export function isInTime({ granted }: TicketRecord): boolean {
  return granted !== undefined && performance.now() < granted.askedAt.monotonicMs + granted.usableMs
}

/**
 * Whether no other ticket can have a quorum yet. By both clocks, as for the deadline of a lease: while the machine is suspended,
 * the monotonic clock stands still and the servers go on.
 */
export function isValid({ granted }: TicketRecord): boolean {
  return granted !== undefined && elapsedMs(granted.askedAt, now(systemClock)) < granted.usableMs
}

/** The records of the tickets that may have a vote on some server. */
export class Tickets {
  readonly #records = new Map<string, TicketRecord>()
  #sweepAt = FIRST_SWEEP

  of(ticket: Ticket): TicketRecord {
    let record = this.#records.get(ticket.id)
    if (record === undefined) {
      if (this.#records.size >= this.#sweepAt) this.#sweep()
      record = { ...NEW_RECORD }
      this.#records.set(ticket.id, record)
    }
    const { ttlMs, patienceMs, minHoldMs } = ticket
    record.keptUntil = Math.max(record.keptUntil, performance.now() + Math.max(ttlMs, patienceMs, minHoldMs))
    return record
  }

  end(id: string): TicketRecord | undefined {
    const record = this.#records.get(id)
    if (record === undefined) return undefined
    record.isOver = true
    this.#records.delete(id)
    return record
  }

  /** Not every lost lease is released, so records also end by their time. */
  #sweep(): void {
    const now = performance.now()
    for (const [id, { keptUntil, lastRound }] of this.#records) {
      if (lastRound === undefined && keptUntil < now) this.#records.delete(id)
    }
    this.#sweepAt = Math.max(FIRST_SWEEP, 2 * this.#records.size)
  }
}

const FIRST_SWEEP = 1000
const NEW_RECORD: Readonly<TicketRecord> = {
  fence: undefined,
  granted: undefined,
  keptUntil: 0,
  isOver: false,
  acquireSentTo: NO_SERVERS,
  unansweredBy: NO_SERVERS,
  farBehind: NO_SERVERS,
  lastRound: undefined,
  hasMissedRenewal: false,
  waitsForAll: false,
  splitVotes: 0,
}
