import type { Ticket } from '../../../contract/store.ts'

/** What tickets of one script call have in common, as its arguments. */
export class GrantTerms {
  readonly #inbox: string
  #last: { readonly ticket: Ticket; readonly facts: string } | undefined

  constructor(inbox: string) {
    this.#inbox = inbox
  }

  /** `listens`: messages to this process' inbox flow, which the server may take for a sign of life. */
  addForAcquire(args: string[], ticket: Ticket, listens: boolean): void {
    addTimes(args, ticket, listens)
    args.push(this.#facts(ticket))
  }

  addForRenew(args: string[], ticket: Ticket, listens: boolean): void {
    addTimes(args, ticket, listens)
    args.push(`${whole(ticket.acceptMs)} ${this.#inbox}`)
  }

  /** `units limit acceptMs lockDelayMs inbox owner`: the scripts keep it as it is. Usually the same as for the ticket before. */
  #facts(ticket: Ticket): string {
    if (this.#last !== undefined && sameTerms(this.#last.ticket, ticket)) return this.#last.facts
    const { units, limit, acceptMs, lockDelayMs, owner } = ticket
    const facts = `${units} ${limit} ${whole(acceptMs)} ${whole(lockDelayMs)} ${this.#inbox} ${owner}`
    this.#last = { ticket, facts }
    return facts
  }
}

export function sameTerms(one: Ticket, other: Ticket): boolean {
  return (
    one.ttlMs === other.ttlMs &&
    one.units === other.units &&
    one.limit === other.limit &&
    one.patienceMs === other.patienceMs &&
    one.acceptMs === other.acceptMs &&
    one.minHoldMs === other.minHoldMs &&
    one.lockDelayMs === other.lockDelayMs &&
    one.owner === other.owner
  )
}

/** Few arguments, because each of them is felt on both sides; what is rarely looked at goes together. */
function addTimes(
  args: string[],
  { ttlMs, minHoldMs, patienceMs, lockDelayMs }: Ticket,
  listens: boolean,
): void {
  const keepMs = Math.max(ttlMs, minHoldMs) + lockDelayMs + AFTERLIFE_MS
  args.push(whole(ttlMs), whole(keepMs), `${whole(patienceMs)} ${listens ? 1 : 0} ${whole(minHoldMs)}`)
}

/** How long a room is kept beyond the last moment that matters. The scripts decide by the server's time, not by this. */
const AFTERLIFE_MS = 10_000

/** Redis knows no parts of a millisecond. Rounded up, because a lease may end late and never early. */
function whole(durationMs: number): string {
  return String(Math.ceil(durationMs))
}
