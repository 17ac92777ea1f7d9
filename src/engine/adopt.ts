import { unlessAborted } from '../base/unless-aborted.ts'
import type { Ticket } from '../contract/store.ts'
import type { EngineContext } from './engine-context.ts'
import { type HeldLease, newLease } from './held-lease.ts'
import type { LeaseOptions } from './lease-deadline.ts'
import { noAnswer } from './ticket-errors.ts'

export interface AdoptRequest {
  /** With patience: if it waits, being asked about must not cost its place. */
  readonly ticket: Ticket
  readonly fence: bigint
  readonly lease: LeaseOptions
  readonly signal: AbortSignal | undefined
  /** How long the store may give no answer. Default: the time of one attempt. */
  readonly storeTimeoutMs: number | undefined
}

/** The store does not hold the ticket under this fence any more. */
export interface NotAdopted {
  readonly evicted: boolean
}

/** Continues a lease that another process began. */
export async function adopt(
  context: EngineContext,
  { ticket, fence, lease, signal, storeTimeoutMs = context.attemptMs(1) }: AdoptRequest,
): Promise<HeldLease | NotAdopted> {
  const { store, wakes, events } = context
  const { strangers } = wakes
  const askedAt = context.now()
  const renewing = context.ask('renew', () => store.renew([ticket]), {
    limitMs: storeTimeoutMs,
    key: ticket.key,
  })
  const [answer] = await unlessAborted(renewing, signal)
  context.assertOpen(ticket.key)
  if (answer === undefined || answer === null) throw noAnswer(ticket)
  if (answer.tag !== 'held') return { evicted: answer.tag === 'gone' && answer.evicted }
  signal?.throwIfAborted()
  // Held by the same id under another fence: not this lease, and none that may be released here.
  if (answer.fence !== fence) return { evicted: false }
  const answeredAt = context.now()
  const when = { askedAt, answeredAt }
  const adopted = newLease(context, { ticket, fence, ...when, options: lease })
  if (adopted.isOverAt(answeredAt)) {
    adopted.forget()
    return { evicted: false }
  }
  // Requests of its first holder that were never answered may still arrive.
  adopted.origin = { openRequests: 1 }
  events.adopted.tell({ ticket, lease }, { fence })
  // These wakes may include one for an eviction that came before the answer.
  if (wakes.strangers !== strangers) adopted.check()
  return adopted
}
