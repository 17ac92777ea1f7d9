export { ExecutionError, ResourceLockedError } from './errors.ts'
export {
  type Client,
  type ExecutionResult,
  type ExecutionStats,
  Lock,
  Redlock,
  // biome-ignore lint/style/noDefaultExport: the name under which the package redlock is imported.
  Redlock as default,
  type RedlockAbortSignal,
  type Settings,
} from './redlock.ts'
