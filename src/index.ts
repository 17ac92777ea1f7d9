export type { Duration } from './base/duration.ts'
export { connect } from './connect.ts'
export type { Clock, Timer } from './contract/clock.ts'
export type {
  AcquireAnswer,
  Answer,
  EvictRequest,
  Gone,
  HolderView,
  InspectRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RoomPage,
  RoomView,
  Store,
  Ticket,
  WaiterView,
  Wake,
} from './contract/store.ts'
export { TOMBSTONE_MS, UNLIMITED } from './contract/store.ts'
export type { Lease, LeaseJson, LeaseState } from './engine/lease.ts'
export {
  AcquireTimeoutError,
  ClosedError,
  DeadlockError,
  HoldfastError,
  type HoldfastErrorCode,
  type HoldfastErrorOptions,
  InvalidArgumentError,
  isHoldfastError,
  LeaseLostError,
  type LossReason,
  StaleFenceError,
  StoreError,
} from './errors.ts'
export type { Outcome } from './primitives/hold.ts'
export { createLocks, type Locks } from './primitives/locks.ts'
export type {
  CallbackOptions,
  HoldOptions,
  LocksOptions,
  TryCallbackOptions,
  WaitOptions,
} from './primitives/options.ts'
export type { ReadWriteLock } from './primitives/read-write.ts'
export type { Permits, Semaphore } from './primitives/semaphore.ts'
export type { LeaseSet } from './primitives/together.ts'
