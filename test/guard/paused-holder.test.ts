import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { expect, test } from 'vitest'
import { guard, migrateGuard } from '../../src/guard/index.ts'
import { createLocks } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { bundled } from '../servers/bundled.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { startRedis } from '../servers/redis-server.ts'

const PROGRAM = await bundled(new URL('holder-process.ts', import.meta.url))

// A test run that is aborted must not leave a stopped process behind, because it would never end.
const leftovers = new Set<ChildProcess>()
for (const event of ['exit', 'disconnect']) {
  process.once(event, () => {
    for (const child of leftovers) child.kill('SIGKILL')
  })
}

test('a holder that was paused past its ttl wakes up and writes; the account keeps the write of the next holder', async () => {
  await using redisServer = await startRedis()
  await using server = await startPostgres()
  const sql = postgres(server.url)
  await migrateGuard(sql)
  await sql`create table account (id int primary key, balance int not null)`
  await sql`insert into account values (1, 100)`
  const redis = new Redis(redisServer.url)
  await using locks = createLocks(redisStore(redis))

  const child = fork(PROGRAM, [redisServer.url, server.url, '1000'], { execArgv: [] })
  leftovers.add(child)
  try {
    const limit = { signal: AbortSignal.timeout(120_000) }
    const [{ fence: old }] = await once(child, 'message', limit)
    child.kill('SIGSTOP')
    // The order is in the pipe already when the process wakes up. So it learns nothing about its lease before the
    // order.
    child.send('write')

    // No process releases the lease: the store lets the next holder in when the ttl has passed.
    await locks.withLock('account:1', async (lease) => {
      expect(lease.fence).toBeGreaterThan(BigInt(old))
      await sql.begin(async (tx) => {
        await guard(tx, { fence: lease })
        await tx`update account set balance = balance - 30 where id = 1`
      })
    })

    const late = once(child, 'message', limit)
    child.kill('SIGCONT')
    expect(await late).toEqual([{ said: 'stale-fence' }, undefined])
    expect([...(await sql`select balance from account`)]).toEqual([{ balance: 70 }])
    if (child.exitCode === null) await once(child, 'exit', limit)
    expect(child.exitCode).toBe(0)
  } finally {
    child.kill('SIGKILL')
    leftovers.delete(child)
    redis.disconnect()
    await sql.end()
  }
})
