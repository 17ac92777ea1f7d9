/**
 * The class of the package redlock, made of Holdfast's locks. See [Coming from redlock](../../docs/redlock-compat.md).
 *
 * @module
 */
export { ExecutionError, ResourceLockedError } from './errors.ts'
export type { Client, ClientExecutionResult, ExecutionResult, ExecutionStats } from './execution.ts'
export {
  Lock,
  Redlock,
  // biome-ignore lint/style/noDefaultExport: the name under which the package redlock is imported.
  Redlock as default,
  type RedlockAbortSignal,
} from './redlock.ts'
export type { Settings } from './settings.ts'
