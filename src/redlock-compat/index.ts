export { ExecutionError, ResourceLockedError } from './errors.ts'
export {
  type Client,
  type ClientExecutionResult,
  type ExecutionResult,
  type ExecutionStats,
  Lock,
  Redlock,
  // biome-ignore lint/style/noDefaultExport: the name under which the package redlock is imported.
  Redlock as default,
  type RedlockAbortSignal,
} from './redlock.ts'
export type { Settings } from './settings.ts'
