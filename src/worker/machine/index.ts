/**
 * The state machine of a lock worker, for programs of XState. See [Lock worker](../../../docs/worker.md). It is apart from
 * `holdfast/worker`, so that only those who use the machine need the types of XState.
 *
 * @module
 */
export type { WorkerLease, WorkerLock } from '../lock.ts'
export { lockWorkerMachine } from './machine.ts'
export type {
  LockWorkerContext,
  LockWorkerEvent,
  LockWorkerInput,
  LockWorkerMachine,
  LockWorkerStateValue,
  WorkerTrouble,
} from './signature.ts'
