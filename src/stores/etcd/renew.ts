import { GONE, type RenewAnswer, type Ticket } from '../../contract/store.ts'
import { answerOwn, answerUnknown, answerVerified, patienceWithDeletions, verify } from './answer.ts'
import { type OwnTicket, termMs } from './session/own-ticket.ts'
import type { Session } from './session/session.ts'

/**
 * The hand-over within this process: if all tickets were offered their keys, and the leases of these keys surely last for long
 * enough, it confirms them without a request. It answers in the same tick. Otherwise the process that has just released would ask
 * for the key again first.
 */
export function takeOffers(session: Session, tickets: readonly Ticket[]): readonly RenewAnswer[] | undefined {
  const now = performance.now()
  const offered: OwnTicket[] = []
  for (const ticket of tickets) {
    const own = session.tickets.get(ticket.id)
    const isOpen = own?.state.tag === 'offered' && own.state.until > now && ticket.minHoldMs === 0
    if (!isOpen) return undefined
    const { lease } = own.binding
    // A key that is still bound to the lease of waiters may be gone.
    if (lease.termMs < termMs(ticket) || !lease.lastsFor(termMs(ticket))) return undefined
    offered.push(own)
  }
  return offered.map((own, index): RenewAnswer => {
    own.confirmed(tickets[index] ?? own.ticket, now)
    session.look(own)
    return { tag: 'held', fence: own.fence }
  })
}

/** Confirms and prolongs tickets, with one request for all that hold. */
export async function renew(session: Session, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
  try {
    return await renewAll(session, tickets)
  } catch (error) {
    // The key of a ticket of another process may be bound to a lease of this process by now.
    const foreign = tickets.filter(({ id }) => !session.tickets.has(id))
    if (session.cluster.leavesDoubt(error)) for (const ticket of foreign) session.orphans.add(ticket)
    throw error
  }
}

async function renewAll(session: Session, tickets: readonly Ticket[]): Promise<readonly RenewAnswer[]> {
  const now = performance.now()
  const held: OwnTicket[] = []
  for (const ticket of tickets) {
    const own = session.tickets.get(ticket.id)
    if (own?.state.tag !== 'held') continue
    own.renewed(ticket.ttlMs, now)
    held.push(own)
  }
  await verify(session, held)
  const verified = new Set(held)
  const giveUpAt = patienceWithDeletions(tickets)
  const answers = tickets.map((ticket) => {
    const own = session.tickets.get(ticket.id)
    if (own === undefined) return answerUnknown(session, ticket, giveUpAt)
    const answer = verified.has(own) ? answerVerified : answerOwn
    return answer(session, own, ticket, giveUpAt)
  })
  return (await Promise.all(answers)).map((answer) => answer ?? GONE)
}
