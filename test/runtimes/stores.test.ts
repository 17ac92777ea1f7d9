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

test('on Bun and Deno the redis store keeps the contract with its clients', PATIENTLY, async () => {
  await using redis = await startRedis()
  await keepsIt(Object.keys(redisClients), redis.url)
})

test('on Bun and Deno the postgres store keeps the contract with its clients', PATIENTLY, async () => {
  await using postgres = await startPostgres()
  await keepsIt(Object.keys(postgresClients), postgres.url)
})

test('on Bun and Deno the etcd store keeps the contract', PATIENTLY, async () => {
  await using etcd = await startEtcd()
  await keepsIt(['etcd'], etcd.url)
})

/**
 * The clients of a store share out its cases: under Node.js each client plays all of them, so here each has to show only that it
 * works on the runtime. The two runtimes run at the same time. The programs end by themselves: no store keeps them alive.
 */
async function keepsIt(subjects: readonly string[], place = ''): Promise<void> {
  await Promise.all(
    otherRuntimes.map(async (runtime, offset) => {
      let cases = 0
      for (const [index, subject] of subjects.entries()) {
        // On the second runtime another client has the same case.
        const share = (index + offset) % subjects.length
        const { code, stdout, stderr } = await runUnder(runtime, [
          PROGRAM,
          subject,
          `${subjects.length}`,
          `${share}`,
          place,
        ])
        expect({ runtime, subject, code, stderr }).toEqual({ runtime, subject, code: 0, stderr: '' })
        const { passed, failed } = JSON.parse(stdout) as ConformanceReport
        expect({ runtime, subject, failed }).toEqual({ runtime, subject, failed: [] })
        cases += passed
      }
      expect(cases).toBeGreaterThan(70)
    }),
  )
}
