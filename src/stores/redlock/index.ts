export { openRedlock, redlockStore } from './open.ts'
export type { RedlockStoreOptions } from './options.ts'
