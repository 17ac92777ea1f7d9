import { type MeterProvider, type TracerProvider, trace } from '@opentelemetry/api'
import { type Locks, lockEvents } from '../../index.ts'
import type { GroupOptions } from '../key-groups.ts'
import { beginWithMeter } from './late-meter.ts'
import { meterLocks } from './meters.ts'
import { traceLocks } from './spans.ts'

/** Which locks to follow, and where their spans and metrics go. */
export interface InstrumentOptions extends GroupOptions {
  /** The locks to follow. Default: all locks of this process. */
  readonly locks?: Pick<Locks, 'on'> | undefined
  /** Default: the global one. */
  readonly tracerProvider?: TracerProvider | undefined
  /** Default: the global one. */
  readonly meterProvider?: MeterProvider | undefined
}

/**
 * Spans and metrics of locks for OpenTelemetry. A request for a key is a span `holdfast.wait`, and its lease a span
 * `holdfast.hold`. The parent of both is the span in which the call was made. The callbacks of `withLock` and the like run
 * inside their `holdfast.hold`; for a lease of `acquire` see {@link leaseContext}. Spans have the whole key, metrics only its
 * group.
 *
 * Set up the SDK first. If it comes later, spans are made from then on. Metrics begin with the next request for a lock, without the
 * leases that are held by then.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { memoryStore } from 'holdfast/memory'
 * import { instrumentLocks } from 'holdfast/observe/otel'
 *
 * const stop = instrumentLocks()
 * const locks = createLocks(memoryStore())
 * await locks.withLock('invoice:42', async () => {
 *   // Spans that begin here are children of the hold.
 * })
 * stop()
 * await locks.close()
 * ```
 *
 * @returns a function that stops it and ends the open spans.
 * @throws {InvalidArgumentError} when `group` is not a function or `maxGroups` not a whole number from 1.
 */
export function instrumentLocks(options: InstrumentOptions = {}): () => void {
  const { locks = lockEvents, tracerProvider = trace, meterProvider, ...groups } = options
  const tracer = tracerProvider.getTracer('holdfast')
  // `meterLocks` may throw for its options, so it comes first, while nothing listens.
  const begin = meterLocks(locks, groups)
  const onRequest = (look: () => void): (() => void) => {
    const stops = [locks.on('requested', look), locks.on('adopted', look)]
    return () => {
      for (const stop of stops) stop()
    }
  }
  const stops = [beginWithMeter(meterProvider, begin, onRequest), traceLocks(locks, tracer)]
  return () => {
    for (const stop of stops.splice(0)) stop()
  }
}
