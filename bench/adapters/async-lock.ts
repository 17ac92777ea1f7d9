import AsyncLock from 'async-lock'
import type { Adapter, Release } from '../adapter.ts'

/** async-lock only has a callback form; the callback ends when the release is called. */
export async function openAsyncLock(): Promise<Adapter> {
  const lock = new AsyncLock({ maxPending: Number.POSITIVE_INFINITY })
  return {
    acquire(key) {
      return new Promise<Release>((granted, failed) => {
        lock.acquire(key, (done) => granted(() => done())).catch(failed)
      })
    },
    async close() {},
  }
}
