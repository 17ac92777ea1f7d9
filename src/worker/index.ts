/**
 * Work that runs in one process of many, with fail-over. See [Lock worker](../../docs/worker.md).
 *
 * @module
 */
export type { WorkerLease, WorkerLock } from './lock.ts'
export { createLockWorker, type LockWorker, type WorkerChange, type WorkerState } from './lock-worker.ts'
export { lockWorkerMachine } from './machine.ts'
export type { LockWorkerOptions, WorkerClock } from './options.ts'
export type { ShutdownSignal } from './shutdown.ts'
export type {
  Doing,
  LockWorkerContext,
  LockWorkerEvent,
  LockWorkerInput,
  LockWorkerMachine,
  LockWorkerStateValue,
  WorkerTrouble,
} from './signature.ts'
export type { StopReason, WorkerTerm } from './term.ts'
