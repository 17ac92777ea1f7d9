import { Redis } from 'ioredis'
import type { Adapter, Surroundings } from '../adapter.ts'

interface Redlock {
  acquire(keys: string[], durationMs: number): Promise<{ release(): Promise<unknown> }>
}

type RedlockClass = new (clients: Redis[], settings: { retryCount: number }) => Redlock

/** A variable, because the types that the package publishes do not resolve. */
const PACKAGE: string = 'redlock'

/** redlock 5 on one server, with its own retry times but without an end to them. */
export async function openRedlock({ redisPort }: Surroundings): Promise<Adapter> {
  const client = new Redis({ port: redisPort, host: '127.0.0.1' })
  const module = (await import(PACKAGE)) as { default: RedlockClass & { default?: RedlockClass } }
  const Redlock = module.default.default ?? module.default
  const locks = new Redlock([client], { retryCount: -1 })
  return {
    async acquire(key) {
      const lock = await locks.acquire([key], 30_000)
      return async () => {
        await lock.release()
      }
    },
    async close() {
      client.disconnect()
    },
  }
}
