import { Redis } from 'ioredis'
import { Mutex } from 'redis-semaphore'
import type { Adapter, Surroundings } from '../adapter.ts'

/** redis-semaphore's mutex, with its renewal and its own retry interval (10 ms), waiting as long as it takes. */
export async function openRedisSemaphore({ redisPort }: Surroundings): Promise<Adapter> {
  const client = new Redis({ port: redisPort, host: '127.0.0.1' })
  return {
    async acquire(key) {
      const mutex = new Mutex(client, key, { lockTimeout: 30_000, acquireTimeout: 600_000 })
      await mutex.acquire()
      return () => mutex.release()
    },
    attempt: (key) => new Mutex(client, key, { lockTimeout: 30_000, acquireAttemptsLimit: 1 }).tryAcquire(),
    async close() {
      client.disconnect()
    },
  }
}
