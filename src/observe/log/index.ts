/**
 * Each event of locks as a readable line in a log. See [Events](../../../docs/observe.md).
 *
 * @module
 */
export { type LockLogger, type LogLevel, type LogOptions, logLocks } from './log-locks.ts'
