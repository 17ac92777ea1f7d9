import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { postgresStore } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, ticket } from './tickets.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres({ settings: { shared_preload_libraries: 'pg_stat_statements' } })
  await server.sql('create extension pg_stat_statements')
})
afterAll(() => server?.close())

const newStore = (connections = 2) =>
  postgresStore(new pg.Pool({ connectionString: server.url }), { connections })

/** How often each verb was called since the last reset. */
async function calls(): Promise<Record<string, number>> {
  const rows = await server.sql<{ verb: string; calls: string }>(
    `select substring(query from 'lock_(\\w+)\\(') as verb, sum(calls) as calls
     from pg_stat_statements where query like 'select "holdfast".lock_%' group by 1`,
  )
  return Object.fromEntries(rows.map(({ verb, calls }) => [verb, Number(calls)]))
}

async function count(table: string): Promise<number> {
  const [row] = await server.sql<{ count: string }>(`select count(*) from holdfast.lock_${table}`)
  return Number(row?.count)
}

const TABLES = ['holders', 'waiters', 'tombstones', 'closures']

test('500 waiters in two processes need four connections, and two statements for each hand-over, in order', async () => {
  const [one, other] = [createLocks(newStore()), createLocks(newStore())]
  const served: number[] = []
  const first = await one.acquire('k')
  const waiting: Promise<void>[] = []
  for (let start = 0; start < 500; start += 50) {
    const locks = start % 100 === 0 ? one : other
    for (let index = start; index < start + 50; index += 1) {
      waiting.push(
        locks.withLock('k', { wait: '60s' }, () => {
          served.push(index)
        }),
      )
    }
    await until('they wait', async () => (await count('waiters')) === start + 50)
  }
  const [sessions] = await server.sql<{ asking: string; listening: string }>(
    `select count(*) filter (where query not like 'listen%') as asking,
       count(*) filter (where query like 'listen%') as listening
     from pg_stat_activity where application_name = 'holdfast locks'`,
  )
  expect(Number(sessions?.asking)).toBeLessThanOrEqual(4)
  expect(Number(sessions?.listening)).toBeLessThanOrEqual(2)
  await server.sql('select pg_stat_statements_reset()')
  await first.release()
  await Promise.all(waiting)
  expect(served).toEqual(Array.from({ length: 500 }, (_, index) => index))
  const { acquire = 0, renew = 0, release = 0 } = await calls()
  // A few more where a batch of waiters was remembered meanwhile.
  expect(acquire + renew + release).toBeLessThanOrEqual(501 * 2 + 20)
  await one.close()
  await other.close()
  for (const table of TABLES) expect(await count(table), table).toBe(0)
}, 60_000)

test('idle keys leave nothing behind: twenty thousand that were taken and given back', async () => {
  const store = newStore()
  for (let round = 0; round < 10; round += 1) {
    const tickets = Array.from({ length: 2000 }, (_, index) => ticket({ key: `many:${round}:${index}` }))
    for (const answer of await Promise.all(tickets.map((each) => store.acquire(each)))) fenceOf(answer)
    await Promise.all(tickets.map(({ key, id }) => store.release({ key, id, cancel: false })))
  }
  for (const table of TABLES) expect(await count(table), table).toBe(0)
  await store.close()
}, 60_000)

test('what was left by everybody is swept by whoever comes later', async () => {
  const dying = newStore()
  const tickets = Array.from({ length: 1200 }, (_, index) => ticket({ key: `left:${index}`, lockDelayMs: 5 }))
  await Promise.all(tickets.map((each) => dying.acquire(each)))
  await dying.acquire(ticket({ key: 'left:0' }))
  await dying.release({ key: 'cancelled', id: 'x', cancel: true })
  await dying.close()
  await server.sql(`
    update holdfast.lock_holders set expires_at = expires_at - 3600000;
    update holdfast.lock_waiters set remembered_until = remembered_until - 3600000;
    update holdfast.lock_tombstones set until = until - 3600000;`)
  const store = newStore()
  const swept = async () => {
    fenceOf(await store.acquire(ticket({ key: crypto.randomUUID(), ttlMs: 1 })))
    return (await count('holders')) < 1000 && (await count('waiters')) + (await count('tombstones')) === 0
  }
  await until('it is swept', swept)
  await store.close()
}, 30_000)

test('while nothing happens, holders and waiters ask for nothing between renewals', async () => {
  const locks = createLocks(newStore())
  const lease = await locks.acquire('idle', { ttl: '1h' })
  const waiting = Array.from({ length: 50 }, () => locks.acquire('idle', { wait: Number.POSITIVE_INFINITY }))
  await until('they wait', async () => (await count('waiters')) === 50)
  await server.sql('select pg_stat_statements_reset()')
  await server.sql('select pg_sleep(1)')
  const asked = Object.values(await calls()).reduce((sum, each) => sum + each, 0)
  expect(asked).toBeLessThanOrEqual(3)
  await lease.release()
  for (const each of waiting) await (await each).release()
  await locks.close()
}, 30_000)
