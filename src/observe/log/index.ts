export { type LockLogger, type LogLevel, type LogOptions, logLocks } from './log-locks.ts'
