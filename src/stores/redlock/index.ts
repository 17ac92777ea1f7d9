/**
 * A store on several independent Redis servers, of which a majority decides. See [Redlock](../../../docs/redlock.md).
 *
 * @module
 */
export { initRedlock, type RedlockInit, type RedlockInitOptions } from './init.ts'
export { openRedlock, redlockStore } from './open.ts'
export type { RedlockStoreOptions } from './options.ts'
