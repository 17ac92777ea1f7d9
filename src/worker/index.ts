/**
 * Work that runs in one process of many, with fail-over. See [Lock worker](../../docs/worker.md).
 *
 * @module
 */
export type { WorkerLease } from './lock.ts'
export { createLockWorker, type LockWorker, type WorkerChange, type WorkerState } from './lock-worker.ts'
export type { LockWorkerOptions, WorkerClock } from './options.ts'
export type { ShutdownSignal } from './shutdown.ts'
export type { Doing, StopReason, WorkerTerm } from './term.ts'
export { type TermEvent, type WorkerEvents, workerEvents } from './worker-events.ts'
