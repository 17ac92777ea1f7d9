import type { Ticket } from '../../../contract/store.ts'
import { sameTerms } from '../../wait-groups.ts'
import type { MessageSubscription } from './client-link.ts'

/** The arguments for the scripts that depend on a ticket's terms: times, and the facts that room.lua keeps of it. */
export class GrantTerms {
  readonly #inbox: string
  readonly #grantsByMessage: boolean
  #last: { readonly ticket: Ticket; readonly facts: string } | undefined

  /** `grantsByMessage`: whether the message to a waiter may be its lease. */
  constructor({ inbox, grantsByMessage }: { readonly inbox: string; readonly grantsByMessage: boolean }) {
    this.#inbox = inbox
    this.#grantsByMessage = grantsByMessage
  }

  /**
   * `flow`: whether messages to this process' inbox flow. `group`: the group that the tickets join if they wait, as `+<name>` if they
   * begin it, or as `=<name>`.
   */
  addForAcquire(
    args: string[],
    ticket: Ticket,
    { flow, group }: { readonly flow: Flow; readonly group?: string | undefined },
  ): void {
    const terms = `${termsOf(ticket, flow)} ${whole(ticket.lockDelayMs)}`
    args.push(whole(ticket.ttlMs), group === undefined ? terms : `${terms} ${group}`, this.#facts(ticket))
  }

  /**
   * `group`: the name of the group that the tickets are in. `+<name>`: they begin this group. `=<name>`: they join it. `*`: the ids are
   * names of groups.
   */
  addForRenew(
    args: string[],
    ticket: Ticket,
    { flow, group }: { readonly flow: Flow; readonly group?: string | undefined },
  ): void {
    const asker = `${whole(ticket.acceptMs)} ${this.#inbox}`
    args.push(whole(ticket.ttlMs), termsOf(ticket, flow), group === undefined ? asker : `${asker} ${group}`)
  }

  /** `units limit acceptMs lockDelayMs grantMs inbox owner`: the scripts keep it as it is. Usually the same as for the ticket before. */
  #facts(ticket: Ticket): string {
    if (this.#last !== undefined && sameTerms(this.#last.ticket, ticket)) return this.#last.facts
    const { units, limit, acceptMs, lockDelayMs, owner } = ticket
    const terms = `${units} ${limit} ${whole(acceptMs)} ${whole(lockDelayMs)} ${whole(this.#grantMs(ticket))}`
    const facts = `${terms} ${this.#inbox} ${owner}`
    this.#last = { ticket, facts }
    return facts
  }

  /** How long the ticket holds if its message is its lease. 0: it confirms, as the law has it for these tickets. */
  #grantMs({ ttlMs, minHoldMs, lockDelayMs }: Ticket): number {
    return this.#grantsByMessage && minHoldMs === 0 && lockDelayMs === 0 ? ttlMs : 0
  }
}

type Flow = MessageSubscription['flow']

/** As room.lua keeps it of a waiter. */
const LISTENS: Readonly<Record<Flow, string>> = { none: '0', counted: '1', uncounted: '4' }

/** `patienceMs listens minHoldMs`, as one argument: each argument takes time in the client and in the server. */
function termsOf({ minHoldMs, patienceMs }: Ticket, flow: Flow): string {
  return `${whole(patienceMs)} ${LISTENS[flow]} ${whole(minHoldMs)}`
}

/** Redis knows no parts of a millisecond. Rounded up, because a lease may end late and never early. */
function whole(durationMs: number): string {
  return String(Math.ceil(durationMs))
}
