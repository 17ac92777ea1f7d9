import type { Ticket } from '../../../src/contract/store.ts'
import { ticketsWith } from '../tickets.ts'

/** A ticket that expires only after minutes, unless the draft says so. */
export const ticket: (draft?: Partial<Ticket>) => Ticket = ticketsWith({
  ttlMs: 120_000,
  acceptMs: 30_000,
  patienceMs: 120_000,
})
