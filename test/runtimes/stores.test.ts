import { beforeAll, expect, test } from 'vitest'
import { startEtcd } from '../servers/etcd-server.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'
import { ensureRuntimes, otherRuntimes, runUnder } from '../servers/runtimes.ts'
import { clients as postgresClients } from '../stores/postgres/clients.ts'
import { clients as redisClients } from '../stores/redis/clients.ts'
import { freshFolder } from '../stores/sqlite/lock-folder.ts'
import type { ConformanceReport } from './store-program.ts'

const PROGRAM = new URL('store-program.ts', import.meta.url)
const folder = freshFolder()

beforeAll(ensureRuntimes, 600_000)

test('on Bun and Deno the memory store keeps the contract', () => keepsIt(['memory']))

test('on Bun and Deno the sqlite store keeps the contract', () => keepsIt(['sqlite'], folder))

/** On a busy machine each client takes half a minute, and etcd three minutes. */
const PATIENTLY = { timeout: 900_000 }

test('on Bun and Deno the redis store keeps the contract with each client', PATIENTLY, async () => {
  await using redis = await startRedis()
  await keepsIt(Object.keys(redisClients), redis.url)
})

test('on Bun and Deno the postgres store keeps the contract with each client', PATIENTLY, async () => {
  await using postgres = await startPostgres()
  await keepsIt(Object.keys(postgresClients), postgres.url)
})

test('on Bun and Deno the etcd store keeps the contract', PATIENTLY, async () => {
  await using etcd = await startEtcd()
  await keepsIt(['etcd'], etcd.url)
})

/** One subject after the other, on both runtimes at the same time. The programs end by themselves: no store keeps them alive. */
async function keepsIt(subjects: readonly string[], place = ''): Promise<void> {
  for (const subject of subjects) {
    const ran = await Promise.all(
      otherRuntimes.map((runtime) => runUnder(runtime, [PROGRAM, subject, place])),
    )
    for (const { code, stdout, stderr } of ran) {
      expect({ subject, code, stderr }).toEqual({ subject, code: 0, stderr: '' })
      const { passed, failed } = JSON.parse(stdout) as ConformanceReport
      expect({ subject, failed }).toEqual({ subject, failed: [] })
      expect(passed).toBeGreaterThan(70)
    }
  }
}
