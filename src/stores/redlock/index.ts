export { initRedlock, type RedlockInit, type RedlockInitOptions } from './init.ts'
export { openRedlock, redlockStore } from './open.ts'
export type { RedlockStoreOptions } from './options.ts'
