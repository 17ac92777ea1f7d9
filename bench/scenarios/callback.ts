import AsyncLock from 'async-lock'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { openBareQueue } from '../adapters/bare-queue.ts'
import type { Candidate } from '../scenario.ts'

type WithLock = (key: string, work: () => Promise<void>) => Promise<void>

export async function bareCallbacks(): Promise<WithLock> {
  const queue = await openBareQueue()
  return async (key, work) => {
    const release = await queue.acquire(key)
    try {
      await work()
    } finally {
      await release()
    }
  }
}

export async function holdfastCallbacks(): Promise<WithLock> {
  const locks = createLocks(memoryStore())
  return (key, work) => locks.withLock(key, work)
}

export async function asyncLockCallbacks(): Promise<WithLock> {
  const lock = new AsyncLock()
  return (key, work) => lock.acquire(key, work)
}

/** Runs an async function under a free key, one after the other: cycles per second. */
export function callbacks(name: string, open: () => Promise<WithLock>, cycles: number): Candidate {
  return {
    name,
    async measure(_, { quick }) {
      const withLock = await open()
      const count = quick ? Math.ceil(cycles / 10) : cycles
      const work = async () => {}
      for (let turn = 0; turn < count / 5; turn += 1) await withLock('cycle', work)
      const startedAt = performance.now()
      for (let turn = 0; turn < count; turn += 1) await withLock('cycle', work)
      return [(count / (performance.now() - startedAt)) * 1000]
    },
  }
}
