import { type Context, context, type Span, type Tracer, trace } from '@opentelemetry/api'
import { processWide } from '../../base/process-wide.ts'
import type { Lease, LockEvents, Locks } from '../../index.ts'
import { endSpan, typeOf } from './span-end.ts'

/** The open spans of a ticket. First its wait, then its hold. */
interface Track {
  /** Where the call was made. */
  readonly parent: Context
  readonly span: Span
}

/** The holds that are open, of all who trace. */
const holds = processWide('spans of holds', () => new Map<string, Span>())

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
  const spans = new OpenSpans(tracer)
  const stops = [
    locks.on('requested', (event) => spans.startWait(event)),
    locks.on('queued', ({ id, ahead }) => spans.note(id, 'queued', { 'holdfast.ahead': ahead })),
    locks.on('acquired', (event) => spans.acquired(event)),
    locks.on('busy', ({ id }) => spans.endWait(id, 'busy')),
    locks.on('timeout', ({ id }) => spans.endWait(id, 'timeout', 'acquire-timeout')),
    // An abort and a close are what the caller wanted, so they are no errors.
    locks.on('withdrawn', ({ id, reason, error }) =>
      spans.endWait(id, reason, reason === 'aborted' || reason === 'closed' ? undefined : error),
    ),
    locks.on('adopted', (event) => spans.startHold(event, context.active())),
    locks.on('working', ({ id, around }) => {
      const span = spans.holdOf(id)
      if (span !== undefined) around((run) => context.with(trace.setSpan(context.active(), span), run))
    }),
    locks.on('jeopardy', ({ id, remainingMs, error }) =>
      spans.note(id, 'jeopardy', {
        'holdfast.remaining': remainingMs / 1000,
        'error.type': typeOf(error),
      }),
    ),
    locks.on('evicted', ({ id, reason }) => spans.note(id, 'evicted', { 'holdfast.reason': reason })),
    locks.on('store-error', ({ id, verb, outcome, error }) =>
      spans.note(id, 'store-error', {
        'holdfast.verb': verb,
        'holdfast.outcome': outcome,
        'error.type': typeOf(error),
      }),
    ),
    locks.on('lost', ({ id, reason, error }) => {
      spans.note(id, 'lost', { 'holdfast.reason': reason })
      spans.endHold(id, 'lost', error)
    }),
    locks.on('released', ({ id }) => spans.endHold(id, 'released')),
    locks.on('detached', ({ id }) => spans.endHold(id, 'detached')),
  ]
  return () => {
    for (const stop of stops) stop()
    spans.endAll()
  }
}

/** The open spans of one tracer. */
class OpenSpans {
  readonly #tracer: Tracer
  readonly #waits = new Map<string, Track>()
  readonly #own = new Map<string, Span>()

  constructor(tracer: Tracer) {
    this.#tracer = tracer
  }

  startWait(event: LockEvents['requested']): void {
    const parent = context.active()
    const span = this.#tracer.startSpan('holdfast.wait', { attributes: attributesOf(event) }, parent)
    this.#waits.set(event.id, { parent, span })
  }

  acquired(event: LockEvents['acquired']): void {
    const wait = this.#waits.get(event.id)
    wait?.span.setAttribute('holdfast.fence', String(event.fence))
    this.endWait(event.id, 'acquired')
    this.startHold(event, wait?.parent ?? context.active())
  }

  endWait(id: string, outcome: string, error?: unknown): void {
    const wait = this.#waits.get(id)
    this.#waits.delete(id)
    if (wait !== undefined) endSpan(wait.span, outcome, error)
  }

  startHold(event: LockEvents['acquired' | 'adopted'], parent: Context): void {
    const attributes = { ...attributesOf(event), 'holdfast.fence': String(event.fence) }
    // Adopted by the process that holds it already: the older span would stay open for ever.
    this.endHold(event.id, 'unknown')
    const span = this.#tracer.startSpan('holdfast.hold', { attributes }, parent)
    this.#own.set(event.id, span)
    holds.set(event.id, span)
  }

  holdOf(id: string): Span | undefined {
    return this.#own.get(id)
  }

  endHold(id: string, outcome: string, error?: unknown): void {
    const span = this.#own.get(id)
    if (span === undefined) return
    this.#own.delete(id)
    if (holds.get(id) === span) holds.delete(id)
    endSpan(span, outcome, error)
  }

  note(id: string | undefined, name: string, facts: Record<string, string | number | undefined>): void {
    if (id !== undefined) (this.#own.get(id) ?? this.#waits.get(id)?.span)?.addEvent(name, facts)
  }

  endAll(): void {
    for (const id of [...this.#waits.keys()]) this.endWait(id, 'unknown')
    for (const id of [...this.#own.keys()]) this.endHold(id, 'unknown')
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
