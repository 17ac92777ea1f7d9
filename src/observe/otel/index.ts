/**
 * Spans and metrics for OpenTelemetry. See [Metrics and traces](../../../docs/metrics.md).
 *
 * @module
 */
export type { BacklogScrapeOptions } from '../backlog-watch.ts'
export type { GroupOptions } from '../key-groups.ts'
export { type InstrumentOptions, instrumentLocks } from './instrument-locks.ts'
export { type InstrumentWorkOptions, instrumentWork } from './instrument-work.ts'
export { leaseContext } from './spans.ts'
