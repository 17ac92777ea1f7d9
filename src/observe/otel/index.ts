/**
 * Spans and metrics for OpenTelemetry. See [Metrics and traces](../../../docs/metrics.md).
 *
 * @module
 */
export type { GroupOptions } from '../key-groups.ts'
export { type InstrumentOptions, instrumentLocks } from './instrument-locks.ts'
export { leaseContext } from './spans.ts'
