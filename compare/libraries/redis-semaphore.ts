import { Redis } from 'ioredis'
import { MultiSemaphore, Mutex, RedlockMutex, TimeoutError } from 'redis-semaphore'
import type { Held, Kind, Place, Units } from '../library.ts'

interface Lock {
  acquire(): Promise<void>
  release(): Promise<void>
}

export async function open({ ports, ttlMs }: Place, kind: Kind) {
  const clients = ports.map((port) => new Redis({ port, host: '127.0.0.1' }))
  for (const client of clients) client.on('error', () => {})
  const [client] = clients
  if (client === undefined) throw new Error('Expected a port.')
  return {
    acquire(key: string, waitMs: number) {
      const lost = new AbortController()
      const options = { lockTimeout: ttlMs, acquireTimeout: waitMs, onLockLost: () => lost.abort() }
      const lock =
        kind === 'redis' ? new Mutex(client, key, options) : new RedlockMutex(clients, key, options)
      return inTime(lock, lost.signal)
    },
    acquireUnits({ key, limit, count, waitMs }: Units) {
      const lost = new AbortController()
      const options = { lockTimeout: ttlMs, acquireTimeout: waitMs, onLockLost: () => lost.abort() }
      return inTime(new MultiSemaphore(client, key, limit, count, options), lost.signal)
    },
    async close() {
      for (const one of clients) one.disconnect()
    },
  }
}

async function inTime(lock: Lock, lost: AbortSignal): Promise<Held | null> {
  try {
    await lock.acquire()
  } catch (error) {
    if (error instanceof TimeoutError) return null
    throw error
  }
  return { lost, release: () => lock.release() }
}
