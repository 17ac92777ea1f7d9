/**
 * Locks, leases and leaders over any store. See [Getting started](../docs/getting-started.md), [Kinds of locks](../docs/locks.md), [Errors](../docs/errors.md).
 *
 * @module
 */
import type { Duration } from './base/duration.ts'
import type { Election as ElectionClass } from './primitives/election.ts'
import type { MemberGroup as MemberGroupClass } from './primitives/group.ts'
import type { Locks as LocksClass } from './primitives/locks.ts'
import type { ReadWriteLock as ReadWriteLockClass } from './primitives/read-write.ts'
import type { Semaphore as SemaphoreClass } from './primitives/semaphore.ts'

export type { Wrap } from './base/around.ts'
export type { Finding } from './base/diagnosis.ts'
export type { Owner } from './base/owner.ts'
export type { TopicEvents } from './base/topics.ts'
export { type ConnectOptions, connect } from './connect.ts'
export type { Clock, Timer } from './contract/clock.ts'
export { type DiagnoseOptions, type Diagnosis, diagnose } from './diagnose.ts'
export { lockEvents, type ProcessEvents } from './engine/events.ts'
export type { Lease, LeaseJson, LeaseState } from './engine/lease.ts'
export type { LockEventName, LockEvents, StoreVerb, Withdrawal } from './engine/lock-events.ts'
export {
  AcquireTimeoutError,
  ClosedError,
  ConflictError,
  DeadlockError,
  HoldfastError,
  type HoldfastErrorClasses,
  type HoldfastErrorCode,
  type HoldfastErrorOptions,
  IdempotencyKeyError,
  InvalidArgumentError,
  isHoldfastError,
  type KeyHolder,
  LeaseLostError,
  type LossReason,
  QueueFullError,
  StaleFenceError,
  StartTimeoutError,
  StepDownError,
  StoreError,
  TaskFailedError,
} from './errors.ts'
export { createLocks } from './primitives/create-locks.ts'
export type { CampaignOptions, Candidate } from './primitives/election.ts'
export type { GroupMember, JoinOptions } from './primitives/group.ts'
export type { Outcome } from './primitives/hold.ts'
export type { InspectedHolder, InspectedRoom, InspectedWaiter } from './primitives/inspected.ts'
export type { Leader } from './primitives/leader-watch.ts'
export type { Leadership } from './primitives/leadership.ts'
export type { EvictOptions } from './primitives/locks.ts'
export type { GroupMembership } from './primitives/membership.ts'
export type { OnceOptions, OnceOutcome } from './primitives/once.ts'
export type {
  AdoptOptions,
  CallbackOptions,
  HoldOptions,
  LocksOptions,
  TryCallbackOptions,
  WaitOptions,
} from './primitives/options.ts'
export type { Permits } from './primitives/semaphore.ts'
export type { LeaseSet } from './primitives/together.ts'
export type { UntilFreeOptions } from './primitives/until-free.ts'
export type { Duration }

/**
 * What `createLocks` and `connect` return. Its public members only, so that a test double can stand in for it.
 *
 * @interface
 */
export type Locks = Pick<LocksClass, keyof LocksClass>
/**
 * What `locks.election(key)` returns.
 *
 * @interface
 */
export type Election = Pick<ElectionClass, keyof ElectionClass>
/**
 * What `locks.group(key)` returns.
 *
 * @interface
 */
export type MemberGroup = Pick<MemberGroupClass, keyof MemberGroupClass>
/**
 * What `locks.readWrite(key)` returns.
 *
 * @interface
 */
export type ReadWriteLock = Pick<ReadWriteLockClass, keyof ReadWriteLockClass>
/**
 * What `locks.semaphore(key, permits)` returns.
 *
 * @interface
 */
export type Semaphore = Pick<SemaphoreClass, keyof SemaphoreClass>

/** How a schedule, a task queue or a worker of jobs is stopped. */
export interface StopOptions {
  /** How long work that runs may take to end. Each `stop` says what it does with work that takes longer, and its default. */
  readonly grace?: Duration | undefined
}
