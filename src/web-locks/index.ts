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
