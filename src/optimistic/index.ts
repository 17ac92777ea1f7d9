/**
 * No lost update, without a lock. See [Optimistic updates](../../docs/optimistic.md).
 *
 * @module
 */
export { type RetriedWork, type RetryOptions, retryOnConflict } from './retry.ts'
export { type OptimisticUpdate, updateOptimistically } from './update-optimistically.ts'
export { type RowUpdate, updateRow } from './update-row.ts'
