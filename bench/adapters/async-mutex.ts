import { Mutex } from 'async-mutex'
import type { Adapter } from '../adapter.ts'

/** async-mutex has no keys, so each key gets a mutex of its own. */
export async function openAsyncMutex(): Promise<Adapter> {
  const mutexes = new Map<string, Mutex>()
  return {
    async acquire(key) {
      let mutex = mutexes.get(key)
      if (mutex === undefined) {
        mutex = new Mutex()
        mutexes.set(key, mutex)
      }
      return mutex.acquire()
    },
    async close() {},
  }
}
