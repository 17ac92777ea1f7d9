import { type MeterProvider, type TracerProvider, trace } from '@opentelemetry/api'
import type { BacklogScrapeOptions } from '../backlog-watch.ts'
import type { GroupOptions } from '../key-groups.ts'
import { onAnyWork } from '../work-events.ts'
import { beginWithMeter } from './late-meter.ts'
import { meterWork } from './work-meters.ts'
import { traceWork } from './work-spans.ts'

/** Where the spans and metrics of work go, and whose backlog is among them. */
export interface InstrumentWorkOptions extends GroupOptions, BacklogScrapeOptions {
  /** Default: the global one. */
  readonly tracerProvider?: TracerProvider | undefined
  /** Default: the global one. */
  readonly meterProvider?: MeterProvider | undefined
}

/**
 * Spans and metrics of jobs, schedules, workers, partitions and limits of this process for OpenTelemetry. A handler of a job runs inside a
 * span `holdfast.job`, whose parent is the span in which the job was enqueued, in whichever process that was: the job carries its
 * `traceparent`. A run of a schedule is a span `holdfast.run`, and a term of a worker a span `holdfast.term`.
 *
 * Set up the SDK first. If it comes later, spans are made from then on, and metrics begin with the next job, run, term or call.
 *
 * ```ts
 * import { openJobs } from 'holdfast/jobs'
 * import { instrumentWork } from 'holdfast/observe/otel'
 *
 * const jobs = await openJobs('postgres://localhost/shop')
 * const stop = instrumentWork({ jobs })
 * await jobs.enqueue('send-receipt', { order: 42 })
 * stop()
 * await jobs.close()
 * ```
 *
 * @returns a function that stops it and ends the open spans.
 * @throws {InvalidArgumentError} when an option is invalid.
 */
export function instrumentWork(options: InstrumentWorkOptions = {}): () => void {
  const { tracerProvider = trace, meterProvider, ...rest } = options
  // `meterWork` may throw for its options, so it comes first, while nothing listens.
  const stops = [
    beginWithMeter(meterProvider, meterWork(rest), onAnyWork),
    traceWork(tracerProvider.getTracer('holdfast')),
  ]
  return () => {
    for (const stop of stops.splice(0)) stop()
  }
}
