/**
 * Metrics for Prometheus. See [Metrics and traces](../../../docs/metrics.md).
 *
 * @module
 */

export type { BacklogScrapeOptions } from '../backlog-watch.ts'
export type { GroupOptions } from '../key-groups.ts'
export { type MeasureOptions, measureLocks } from './measure-locks.ts'
export { type MeasureWorkOptions, measureWork } from './measure-work.ts'
