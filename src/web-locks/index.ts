/**
 * The Web Locks API, across processes and machines. See [Web Locks](../../docs/web-locks.md).
 *
 * @module
 */
export {
  type HeldLock,
  type LockInfo,
  type LockManager,
  type LockManagerSnapshot,
  type LockMode,
  type LockOptions,
  type WebLocksOptions,
  webLocks,
} from './lock-manager.ts'
