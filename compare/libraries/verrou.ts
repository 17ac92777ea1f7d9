import { LockFactory } from '@verrou/core'
import { memoryStore } from '@verrou/core/drivers/memory'
import { redisStore } from '@verrou/core/drivers/redis'
import { Redis } from 'ioredis'
import type { Kind, Place } from '../library.ts'

export async function open({ ports: [port], ttlMs }: Place, kind: Kind) {
  const connection = kind === 'redis' ? new Redis({ port: port ?? 0, host: '127.0.0.1' }) : undefined
  connection?.on('error', () => {})
  const store = connection === undefined ? memoryStore() : redisStore({ connection })
  const factory = new LockFactory(store.factory())
  return {
    async acquire(key: string, waitMs: number) {
      const lock = factory.createLock(key, ttlMs)
      const isAcquired = await lock.acquire({ retry: { timeout: waitMs } })
      return isAcquired ? { lost: undefined, release: () => lock.release() } : null
    },
    async hold<T>(key: string, work: (lost: AbortSignal | undefined) => Promise<T>): Promise<T> {
      const [isAcquired, result] = await factory.createLock(key, ttlMs).run(() => work(undefined))
      if (!isAcquired) throw new Error('The key was not acquired.')
      return result
    },
    async close() {
      connection?.disconnect()
    },
  }
}
