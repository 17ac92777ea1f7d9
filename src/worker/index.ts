export type { WorkerLease, WorkerLock } from './lock.ts'
export { type LockWorker, lockWorker, type WorkerChange, type WorkerState } from './lock-worker.ts'
export {
  type Doing,
  type LockWorkerContext,
  type LockWorkerEvent,
  type LockWorkerInput,
  type LockWorkerMachine,
  type LockWorkerStateValue,
  lockWorkerMachine,
  type StopReason,
  type Term,
  type WorkerTrouble,
} from './machine.ts'
export type { LockWorkerOptions, WorkerClock } from './options.ts'
export type { ShutdownSignal } from './shutdown.ts'
