export { openRedlock } from './open.ts'
export { type RedlockStoreOptions, redlockStore } from './options.ts'
