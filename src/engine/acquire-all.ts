import type { Abortable } from '../base/signal-watch.ts'
import { isHoldfastError } from '../errors.ts'
import type { AcquireRequest } from './acquisition.ts'
import type { Engine } from './engine.ts'
import { HeldLease } from './held-lease.ts'

/**
 * Several keys by one request, where the store can do that and nobody is at any of them. Undefined where they have to be
 * taken one by one: because of who is there, or because the store gave no answer; then these tickets are given back.
 *
 * Rejects with the reason of the caller's signal, or with a {@link ClosedError}.
 */
export async function acquireAll(
  engine: Engine,
  requests: readonly AcquireRequest[],
): Promise<readonly HeldLease[] | undefined> {
  const taken = take(engine, requests)
  const settled = taken.then(
    () => {},
    () => {},
  )
  engine.takingAll.add(settled)
  try {
    return await taken
  } finally {
    engine.takingAll.delete(settled)
  }
}

async function take(
  engine: Engine,
  requests: readonly AcquireRequest[],
): Promise<readonly HeldLease[] | undefined> {
  const [first] = requests
  const { store } = engine
  if (first === undefined || store.acquireAll === undefined) return undefined
  const { signal, waitMs, ticket } = first
  engine.assertOpen(ticket.key)
  signal?.throwIfAborted()
  const tickets = requests.map((request) => request.ticket)
  const giveBack = (cancel: boolean) => Promise.all(tickets.map((each) => engine.giveBack(each, { cancel })))
  const askedAt = engine.now()
  const { strangers } = engine
  const limitMs = Math.min(engine.attemptMs(1), Math.max(waitMs, SHORTEST_ATTEMPT_MS))
  try {
    const asked = engine.ask('acquire', () => store.acquireAll?.(tickets), limitMs, ticket.key)
    const fences = await unlessAborted(engine, signal, asked)
    const answeredAt = engine.now()
    engine.assertOpen(ticket.key)
    if (fences === undefined) return undefined
    const when = { askedAt, answeredAt }
    const leases = requests.map(
      (request, index) => new HeldLease(engine, request.ticket, fences[index] as bigint, when, request.lease),
    )
    if (leases.some((lease) => lease.isOverAt(answeredAt))) {
      for (const lease of leases) lease.forget()
      await giveBack(false)
      return undefined
    }
    tellAll(engine, requests, leases, answeredAt.monotonicMs - askedAt.monotonicMs)
    // One of these wakes may have been for an eviction that came before the answer.
    if (engine.strangers !== strangers) for (const lease of leases) lease.check()
    return leases
  } catch (error) {
    const givenBack = giveBack(true)
    if (signal?.aborted === true) throw signal.reason
    if (isHoldfastError(error, 'closed')) throw error
    // Who tries would find its own tickets there, and take them for somebody else's.
    if (waitMs === 0) await givenBack
    return undefined
  }
}

/** A silent store is not waited for any longer than by somebody who takes one key. */
const SHORTEST_ATTEMPT_MS = 500

async function unlessAborted<T>(
  engine: Engine,
  signal: AbortSignal | undefined,
  asked: Promise<T>,
): Promise<T> {
  if (signal === undefined) return asked
  let watch: Abortable | undefined
  const aborted = new Promise<never>((_, reject) => {
    watch = { abort: reject }
    engine.signals.add(signal, watch)
  })
  try {
    return await Promise.race([asked, aborted])
  } finally {
    if (watch !== undefined) engine.signals.remove(signal, watch)
  }
}

function tellAll(
  { events }: Engine,
  requests: readonly AcquireRequest[],
  leases: readonly HeldLease[],
  waitedMs: number,
): void {
  for (const [index, request] of requests.entries()) {
    events.requested.tell(request, { waitMs: request.waitMs, ttlMs: request.ticket.ttlMs })
    const { fence } = leases[index] as HeldLease
    events.acquired.tell(request, { fence, waitedMs, queued: false, wokenMs: undefined })
  }
}
