import { join } from 'node:path'
import { Redis } from 'ioredis'
import { Pool } from 'pg'
import type { Store } from '../../src/contract/index.ts'
import { createLocks, type Locks, type WaitOptions } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { postgresStore } from '../../src/stores/postgres/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { redlockStore } from '../../src/stores/redlock/index.ts'
import { sqliteStore } from '../../src/stores/sqlite/index.ts'
import type { Adapter, Surroundings } from '../adapter.ts'

export async function openMemory(): Promise<Adapter> {
  return adapterOf(memoryStore(), async () => {})
}

/** Each call has options of its own. */
export async function openMemoryWithOptions(): Promise<Adapter> {
  return adapterOf(memoryStore(), async () => {}, { ttl: '30s', wait: '5s' })
}

export async function openSqlite({ folder }: Surroundings): Promise<Adapter> {
  return adapterOf(sqliteStore(join(folder, 'locks.db')), async () => {})
}

export async function openRedis({ redisPort }: Surroundings): Promise<Adapter> {
  const client = new Redis({ port: redisPort, host: '127.0.0.1' })
  return adapterOf(redisStore(client), async () => {
    client.disconnect()
  })
}

/** On several servers, with fencing tokens or without. */
export function openQuorum(fences: boolean): (ports: readonly number[]) => Promise<Adapter> {
  return async (ports) => {
    const clients = ports.map((port) => new Redis({ port, host: '127.0.0.1', lazyConnect: true }))
    return adapterOf(redlockStore(clients, { fences }), async () => {})
  }
}

export async function openPostgres({ postgresUrl }: Surroundings): Promise<Adapter> {
  const pool = new Pool({ connectionString: postgresUrl })
  return adapterOf(postgresStore(pool), () => pool.end())
}

export async function openPostgresAsynchronous({ postgresUrl }: Surroundings): Promise<Adapter> {
  const pool = new Pool({ connectionString: postgresUrl })
  return adapterOf(postgresStore(pool, { durability: 'asynchronous' }), () => pool.end())
}

function adapterOf(
  store: Store,
  closeClient: () => Promise<void>,
  options?: WaitOptions,
): Adapter & { readonly locks: Locks } {
  const locks = createLocks(store, { wait: Number.POSITIVE_INFINITY })
  return {
    locks,
    async acquire(key) {
      const lease = await locks.acquire(key, options)
      return () => lease.release()
    },
    attempt: (key) => locks.tryAcquire(key),
    async close() {
      await locks.close()
      await closeClient()
    },
  }
}
