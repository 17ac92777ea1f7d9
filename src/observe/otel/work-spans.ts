import {
  type Attributes,
  type Context,
  context,
  isSpanContextValid,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api'
import { jobEvents, scheduleEvents, workerEvents } from '../work-events.ts'
import { endSpan } from './span-end.ts'

export function traceWork(tracer: Tracer): () => void {
  const spans = new WorkSpans(tracer)
  const stops = [
    jobEvents.on('enqueuing', ({ carry }) => {
      const traceparent = traceparentOf(context.active())
      if (traceparent !== undefined) carry(traceparent)
    }),
    jobEvents.on(
      'begun',
      ({ run: number, id, name, attempt, waitedMs, worker, trace: traceparent, around }) => {
        const attributes = {
          'holdfast.job': name,
          'holdfast.job.id': id,
          'holdfast.job.attempt': attempt,
          'holdfast.job.waited': waitedMs / 1000,
          'holdfast.worker': worker,
        }
        const begin = {
          name: 'holdfast.job',
          kind: SpanKind.CONSUMER,
          attributes,
          parent: contextOf(traceparent),
        }
        around((run) => spans.inside(number, begin, run))
      },
    ),
    jobEvents.on('ended', ({ run, outcome, error }) => {
      const isBad = outcome !== 'completed' && outcome !== 'given-back'
      spans.end(run, outcome, isBad ? (error ?? outcome) : undefined)
    }),
    scheduleEvents.on('begun', ({ run: number, name, scheduledAt, lateMs, attempt, fence, around }) => {
      const attributes = {
        'holdfast.schedule': name,
        'holdfast.tick': scheduledAt.toISOString(),
        'holdfast.late': lateMs / 1000,
        'holdfast.attempt': attempt,
        'holdfast.fence': String(fence),
      }
      const begin = { name: 'holdfast.run', kind: SpanKind.INTERNAL, attributes, parent: ROOT_CONTEXT }
      around((run) => spans.inside(number, begin, run))
    }),
    scheduleEvents.on('ended', ({ run, result, error }) => {
      spans.end(run, result, result === 'ok' ? undefined : error)
    }),
    workerEvents.on('begun', ({ run: number, key, fence, around }) => {
      const attributes = { 'holdfast.key': key, 'holdfast.fence': String(fence) }
      const begin = { name: 'holdfast.term', kind: SpanKind.INTERNAL, attributes, parent: ROOT_CONTEXT }
      around((run) => spans.inside(number, begin, run))
    }),
    workerEvents.on('ended', ({ run, reason, error }) => {
      const isBad = reason !== 'stopped' || error !== undefined
      spans.end(run, reason, isBad ? (error ?? reason) : undefined)
    }),
  ]
  return () => {
    for (const stop of stops) stop()
    spans.endAll()
  }
}

interface SpanBegin {
  readonly name: string
  readonly kind: SpanKind
  readonly attributes: Attributes
  readonly parent: Context
}

/** The open spans of one tracer. */
class WorkSpans {
  readonly #tracer: Tracer
  /** By the number of the run. */
  readonly #open = new Map<number, Span>()

  constructor(tracer: Tracer) {
    this.#tracer = tracer
  }

  inside(number: number, { name, kind, attributes, parent }: SpanBegin, run: () => void): void {
    const span = this.#tracer.startSpan(name, { kind, attributes }, parent)
    this.#open.set(number, span)
    context.with(trace.setSpan(parent, span), run)
  }

  end(number: number, outcome: string, error: unknown): void {
    const span = this.#open.get(number)
    if (span === undefined) return
    this.#open.delete(number)
    endSpan(span, outcome, error)
  }

  endAll(): void {
    for (const number of [...this.#open.keys()]) this.end(number, 'unknown', undefined)
  }
}

/**
 * Written here instead of by the global propagator, which may write other headers, or none. The job keeps the one that W3C Trace Context
 * defines, without its `tracestate`.
 */
function traceparentOf(from: Context): string | undefined {
  const span = trace.getSpanContext(from)
  if (span === undefined || !isSpanContextValid(span)) return undefined
  return `00-${span.traceId}-${span.spanId}-0${span.traceFlags & TraceFlags.SAMPLED}`
}

function contextOf(traceparent: string | null): Context {
  const [, traceId = '', spanId = '', flags = ''] = (traceparent ?? '').split('-')
  const span = {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & TraceFlags.SAMPLED,
    isRemote: true,
  }
  return isSpanContextValid(span) ? trace.setSpanContext(ROOT_CONTEXT, span) : ROOT_CONTEXT
}
