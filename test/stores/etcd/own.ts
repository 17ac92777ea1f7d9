import type { Ticket } from '../../../src/contract/store.ts'
import { EtcdLease } from '../../../src/stores/etcd/session/leases.ts'
import { OwnTicket } from '../../../src/stores/etcd/session/own-ticket.ts'
import { ticket } from './tickets.ts'

let last = 0

/** A ticket that has just come, and waits; later ones have later revisions. */
export function ownTicket(draft: Partial<Ticket>, now: number): OwnTicket {
  last += 1
  const lease = new EtcdLease(last, 60_000, { monotonicMs: now, wallMs: now })
  const mine = ticket(draft)
  return new OwnTicket(
    {
      ticket: mine,
      name: `${mine.key} ${mine.id}`,
      createRevision: last,
      fence: BigInt(last),
      binding: { revision: last, lease, isForMinHold: false },
      holdLease: lease,
      at: 0,
      isInDoubt: false,
    },
    now,
  )
}
