/**
 * The state machine of a lock worker, for programs of XState. See [Lock worker](../../../docs/worker.md). It is apart from
 * `holdfast/worker`, so that only those who use the machine need the types of XState.
 *
 * @module
 */
export type { WorkerLease, WorkerLock } from '../lock.ts'
export { callbackLock, type LockCallbacks } from './callback-lock.ts'
export { lockWorkerMachine } from './machine.ts'
export type {
  LockWorkerActions,
  LockWorkerActors,
  LockWorkerContext,
  LockWorkerDelay,
  LockWorkerEvent,
  LockWorkerGuards,
  LockWorkerInput,
  LockWorkerMachine,
  LockWorkerStateValue,
  WorkerTrouble,
} from './signature.ts'
