import { Redis } from 'ioredis'
import type { Adapter, Surroundings } from '../adapter.ts'

interface Redlock {
  acquire(
    keys: string[],
    durationMs: number,
    settings?: { retryCount: number },
  ): Promise<{ release(): Promise<unknown> }>
}

type RedlockClass = new (clients: Redis[], settings: { retryCount: number }) => Redlock

/** A variable, because the types that the package publishes do not resolve. */
const PACKAGE: string = 'redlock'

/** redlock 5 on one server, with its own retry times but without an end to them. */
export function openRedlock({ redisPort }: Surroundings): Promise<Adapter> {
  return openRedlockOn([redisPort])
}

/** redlock 5 on as many servers. */
export async function openRedlockOn(ports: readonly number[]): Promise<Adapter> {
  const clients = ports.map((port) => new Redis({ port, host: '127.0.0.1' }))
  for (const client of clients) client.on('error', () => {})
  const module = (await import(PACKAGE)) as { default: RedlockClass & { default?: RedlockClass } }
  const Redlock = module.default.default ?? module.default
  const locks = new Redlock(clients, { retryCount: -1 })
  return {
    async acquire(key) {
      const lock = await locks.acquire([key], 30_000)
      return async () => {
        await lock.release()
      }
    },
    attempt: (key) => locks.acquire([key], 30_000, { retryCount: 0 }).catch(() => undefined),
    async close() {
      for (const client of clients) client.disconnect()
    },
  }
}
