/**
 * A store inside this process, for its async tasks and for tests. See [Which store?](../../../docs/which-store.md).
 *
 * @module
 */
export { type MemoryStoreOptions, memoryStore } from './memory-store.ts'
