import { unlessAborted } from '../base/unless-aborted.ts'
import { isHoldfastError } from '../errors.ts'
import { tellAcquired, tellRequested } from './acquire-events.ts'
import type { AcquireRequest } from './acquire-request.ts'
import type { EngineContext } from './engine-context.ts'
import { type HeldLease, newLease } from './held-lease.ts'

/**
 * Takes several keys in one request, if the store can do that and all of them are free. Returns undefined if the keys have
 * to be taken one by one: some are taken, or the store gave no answer. Then these tickets are released.
 *
 * Rejects with the reason of the caller's signal, or with a {@link ClosedError}.
 */
export async function acquireAll(
  context: EngineContext,
  requests: readonly AcquireRequest[],
): Promise<readonly HeldLease[] | undefined> {
  const [first] = requests
  const { store, wakes, events } = context
  if (first === undefined || store.acquireAll === undefined) return undefined
  const { signal, waitMs, storeTimeoutMs = Number.POSITIVE_INFINITY, ticket } = first
  context.assertOpen(ticket.key)
  signal?.throwIfAborted()
  const tickets = requests.map((request) => request.ticket)
  const releaseAll = (options: { readonly cancel: boolean }) =>
    Promise.all(tickets.map((each) => context.release(each, options)))
  const askedAt = context.now()
  const { strangers } = wakes
  const limitMs = Math.min(context.attemptMs(1), Math.max(waitMs, SHORTEST_ATTEMPT_MS), storeTimeoutMs)
  try {
    const asked = context.ask('acquire', () => store.acquireAll?.(tickets), { limitMs })
    const fences = await unlessAborted(asked, signal)
    const answeredAt = context.now()
    context.assertOpen(ticket.key)
    if (fences === undefined) return undefined
    const when = { askedAt, answeredAt }
    const leases = requests.map(({ ticket, lease }, index) =>
      newLease(context, { ticket, fence: fences[index] as bigint, ...when, options: lease }),
    )
    if (leases.some((lease) => lease.isOverAt(answeredAt))) {
      for (const lease of leases) lease.forget()
      await releaseAll({ cancel: false })
      return undefined
    }
    for (const [index, request] of requests.entries()) {
      tellRequested(events, request)
      tellAcquired(events, request, fences[index] as bigint, answeredAt.monotonicMs - askedAt.monotonicMs)
    }
    // These wakes may include one for an eviction that came before the answer.
    if (wakes.strangers !== strangers) for (const lease of leases) lease.check()
    return leases
  } catch (error) {
    const released = releaseAll({ cancel: true })
    if (signal?.aborted === true) throw signal.reason
    if (isHoldfastError(error, 'closed')) throw error
    // A caller that does not wait asks for the keys one by one next. It must not find its own tickets there.
    if (waitMs === 0) await context.atMost(released, Math.min(context.attemptMs(1), storeTimeoutMs))
    return undefined
  }
}

/** A silent store is not waited for any longer than by somebody who takes one key. */
const SHORTEST_ATTEMPT_MS = 500
