export { HoldfastModule, type HoldfastModuleAsyncOptions, LOCKS } from './module.ts'
export { type CurrentLock, currentLock } from './running.ts'
export { WithLock, type WithLockDecorator, type WithLockKey } from './with-lock.ts'
