import { Redis } from 'ioredis'
import type { Place } from '../library.ts'

interface Redlock {
  acquire(keys: readonly string[], ttlMs: number, settings?: Settings): Promise<RedlockLock>
  using<T>(keys: readonly string[], ttlMs: number, work: (signal: AbortSignal) => Promise<T>): Promise<T>
  on(event: 'error', listener: () => void): void
}

interface RedlockLock {
  release(): Promise<unknown>
}

interface Settings {
  readonly retryCount?: number
}

type RedlockClass = new (clients: readonly Redis[], settings?: Settings) => Redlock

/** A variable, because the types that the package publishes do not resolve. */
const PACKAGE: string = 'redlock'
const RETRY_DELAY_MS = 200

export async function open({ ports, ttlMs }: Place) {
  const clients = ports.map((port) => new Redis({ port, host: '127.0.0.1' }))
  for (const client of clients) client.on('error', () => {})
  const module = (await import(PACKAGE)) as { default: RedlockClass & { default?: RedlockClass } }
  const locks = new (module.default.default ?? module.default)(clients)
  locks.on('error', () => {})
  return {
    async acquire(key: string, waitMs: number) {
      try {
        const retryCount = Math.ceil(waitMs / RETRY_DELAY_MS)
        return heldBy(await locks.acquire([key], ttlMs, { retryCount }))
      } catch (error) {
        if ((error as Error).name === 'ExecutionError') return null
        throw error
      }
    },
    hold: <T>(key: string, work: (lost: AbortSignal) => Promise<T>) => locks.using([key], ttlMs, work),
    acquireAll: async (keys: readonly string[]) => heldBy(await locks.acquire(keys, ttlMs)),
    async close() {
      for (const client of clients) client.disconnect()
    },
  }
}

function heldBy(lock: RedlockLock) {
  return {
    lost: undefined,
    async release() {
      await lock.release()
    },
  }
}
