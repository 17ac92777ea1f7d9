/**
 * A page that shows who holds and who waits. See [Dashboard](../../docs/dashboard.md).
 *
 * @module
 */
export { createDashboard, type Dashboard } from './dashboard.ts'
export type { DashboardOptions, RecordOptions } from './options.ts'
