import { type MeterProvider, metrics, type TracerProvider, trace } from '@opentelemetry/api'
import { type Locks, lockEvents } from '../../index.ts'
import type { GroupOptions } from '../key-groups.ts'
import { meterLocks } from './meters.ts'
import { traceLocks } from './spans.ts'

export interface InstrumentOptions extends GroupOptions {
  /** Whose events are followed. Default: all locks of this process. */
  readonly locks?: Pick<Locks, 'on'> | undefined
  /** Default: the global one. */
  readonly tracerProvider?: TracerProvider | undefined
  /** Default: the global one. */
  readonly meterProvider?: MeterProvider | undefined
}

/**
 * Spans and metrics of locks, by OpenTelemetry. A request for a key is a span `holdfast.wait`, and the lease that comes of it a
 * span `holdfast.hold`; the parent of both is the span in which the call was made. The callbacks of `withLock` and the like run
 * inside of their `holdfast.hold`; for a lease of `acquire` see {@link leaseContext}. Spans carry the whole key; metrics only
 * its group.
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
 * @returns a function that ends it. Spans that are open then are ended.
 * @throws {InvalidArgumentError} when `group` is no function or `maxGroups` no whole number from 1.
 */
export function instrumentLocks(options: InstrumentOptions = {}): () => void {
  const { locks = lockEvents, tracerProvider = trace, meterProvider = metrics, ...groups } = options
  const tracer = tracerProvider.getTracer('holdfast')
  // First what may refuse its options: nothing listens yet.
  const stops = [meterLocks(locks, meterProvider.getMeter('holdfast'), groups), traceLocks(locks, tracer)]
  return () => {
    for (const stop of stops.splice(0)) stop()
  }
}
