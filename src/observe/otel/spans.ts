import { type Context, context, type Span, SpanStatusCode, type Tracer, trace } from '@opentelemetry/api'
import { fieldOf } from '../../base/thrown.ts'
import { isHoldfastError, type Lease, type LockEvents, type Locks } from '../../index.ts'

/** What is open of one ticket. First its wait, then its hold. */
interface Track {
  /** Where the call was made. */
  readonly parent: Context
  readonly span: Span
}

/** The holds that are open, of all who trace. */
const holds = new Map<string, Span>()

/**
 * The context `from` with the span of this lease in it: what is started inside is a child of the hold.
 *
 * ```ts
 * import { context } from '@opentelemetry/api'
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 * import { leaseContext } from 'holdfast/observe/otel'
 *
 * const locks = createLocks(memoryStore())
 * const lease = await locks.acquire('invoice:42')
 * await context.with(leaseContext(lease), async () => {
 *   // Spans that begin here are children of the hold.
 * })
 * await lease.release()
 * await locks.close()
 * ```
 *
 * @returns `from` itself where the lease is over or not traced.
 */
export function leaseContext(lease: Pick<Lease, 'id'>, from: Context = context.active()): Context {
  const span = holds.get(lease.id)
  return span === undefined ? from : trace.setSpan(from, span)
}

export function traceLocks(locks: Pick<Locks, 'on'>, tracer: Tracer): () => void {
  const waits = new Map<string, Track>()
  const own = new Map<string, Span>()

  const endWait = (id: string, outcome: string, error?: unknown): Context | undefined => {
    const wait = waits.get(id)
    waits.delete(id)
    if (wait !== undefined) end(wait.span, outcome, error)
    return wait?.parent
  }
  const startHold = (event: LockEvents['acquired' | 'adopted'], parent: Context) => {
    const attributes = { ...attributesOf(event), 'holdfast.fence': String(event.fence) }
    // Adopted by the process that holds it already: the older span would stay open for ever.
    endHold(event.id, 'unknown')
    const span = tracer.startSpan('holdfast.hold', { attributes }, parent)
    own.set(event.id, span)
    holds.set(event.id, span)
  }
  const endHold = (id: string, outcome: string, error?: unknown) => {
    const span = own.get(id)
    if (span === undefined) return
    own.delete(id)
    if (holds.get(id) === span) holds.delete(id)
    end(span, outcome, error)
  }
  const note = (id: string | undefined, name: string, facts: Record<string, string | number | undefined>) => {
    if (id !== undefined) (own.get(id) ?? waits.get(id)?.span)?.addEvent(name, facts)
  }

  const stops = [
    locks.on('requested', (event) => {
      const parent = context.active()
      const span = tracer.startSpan('holdfast.wait', { attributes: attributesOf(event) }, parent)
      waits.set(event.id, { parent, span })
    }),
    locks.on('queued', ({ id, ahead }) => note(id, 'queued', { 'holdfast.ahead': ahead })),
    locks.on('acquired', (event) => {
      waits.get(event.id)?.span.setAttribute('holdfast.fence', String(event.fence))
      const parent = endWait(event.id, 'acquired')
      startHold(event, parent ?? context.active())
    }),
    locks.on('busy', ({ id }) => endWait(id, 'busy')),
    locks.on('timeout', ({ id }) => endWait(id, 'timeout', 'acquire-timeout')),
    // An abort and a close are what the caller wanted, so they are no errors.
    locks.on('withdrawn', ({ id, reason, error }) =>
      endWait(id, reason, reason === 'aborted' || reason === 'closed' ? undefined : error),
    ),
    locks.on('adopted', (event) => startHold(event, context.active())),
    locks.on('working', ({ id, around }) => {
      const span = own.get(id)
      if (span !== undefined) around((run) => context.with(trace.setSpan(context.active(), span), run))
    }),
    locks.on('jeopardy', ({ id, remainingMs, error }) =>
      note(id, 'jeopardy', { 'holdfast.remaining': remainingMs / 1000, 'error.type': typeOf(error) }),
    ),
    locks.on('evicted', ({ id, reason }) => note(id, 'evicted', { 'holdfast.reason': reason })),
    locks.on('store-error', ({ id, verb, outcome, error }) =>
      note(id, 'store-error', {
        'holdfast.verb': verb,
        'holdfast.outcome': outcome,
        'error.type': typeOf(error),
      }),
    ),
    locks.on('lost', ({ id, reason, error }) => {
      note(id, 'lost', { 'holdfast.reason': reason })
      endHold(id, 'lost', error)
    }),
    locks.on('released', ({ id }) => endHold(id, 'released')),
    locks.on('detached', ({ id }) => endHold(id, 'detached')),
  ]
  return () => {
    for (const stop of stops) stop()
    for (const id of [...waits.keys()]) endWait(id, 'unknown')
    for (const id of [...own.keys()]) endHold(id, 'unknown')
  }
}

function attributesOf(
  event: LockEvents['requested' | 'acquired' | 'adopted'],
): Record<string, string | number> {
  return {
    'holdfast.key': event.key,
    'holdfast.store': event.store,
    'holdfast.ticket.id': event.id,
    'holdfast.units': event.units,
    // A reader's limit is UNLIMITED, which says nothing.
    ...(event.limit < Number.MAX_SAFE_INTEGER ? { 'holdfast.limit': event.limit } : {}),
  }
}

function end(span: Span, outcome: string, error: unknown): void {
  span.setAttribute('holdfast.outcome', outcome)
  if (error !== undefined) {
    const message = fieldOf(error, 'message')
    span.setAttribute('error.type', typeOf(error) ?? 'unknown')
    span.setStatus({ code: SpanStatusCode.ERROR, message: typeof message === 'string' ? message : outcome })
  }
  span.end()
}

/** The code of Holdfast's errors, which stays the same in every version; the name of other errors. */
function typeOf(error: unknown): string | undefined {
  if (typeof error === 'string') return error
  if (isHoldfastError(error)) return error.code
  const name = fieldOf(error, 'name')
  return typeof name === 'string' ? name : undefined
}
