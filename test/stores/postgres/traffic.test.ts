import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { postgresStore } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, ticket } from '../tickets.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres({ settings: { shared_preload_libraries: 'pg_stat_statements' } })
  await server.sql('create extension pg_stat_statements')
})
afterAll(() => server?.close())

const newStore = (connections = 2) =>
  postgresStore(new pg.Pool({ connectionString: server.url }), { connections })

/** How many calls each verb had since the last reset. */
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

const TABLES = ['holders', 'waiters', 'wait_groups', 'tombstones', 'closures']

test('500 waiters in two processes need four connections, and one statement for each hand-over, in order', async () => {
  const [one, other] = [createLocks(newStore()), createLocks(newStore())]
  const served: number[] = []
  const first = await one.acquire('k')
  const waiting: Promise<void>[] = []
  for (let start = 0; start < 500; start += 50) {
    const locks = start % 100 === 0 ? one : other
    for (let index = start; index < start + 50; index += 1) {
      waiting.push(
        locks.withLock('k', { wait: '150s' }, () => {
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
  const from = performance.now()
  await first.release()
  await Promise.all(waiting)
  const tookSeconds = (performance.now() - from) / 1000
  expect(served).toEqual(Array.from({ length: 500 }, (_, index) => index))
  const { acquire = 0, renew = 0, release = 0 } = await calls()
  // A few more calls keep batches of waiters remembered, one for each process every two seconds.
  expect(acquire + renew + release).toBeLessThanOrEqual(501 + 20 + 2 * tookSeconds)
  await one.close()
  await other.close()
  for (const table of TABLES) expect(await count(table), table).toBe(0)
})

test('each verb is one statement, for one ticket and for a hundred', async () => {
  const url = await server.createDatabase('verbs')
  const store = postgresStore(new pg.Pool({ connectionString: url }), { connections: 1 })
  const asked = async (work: () => unknown): Promise<unknown[]> => {
    await server.sql('select pg_stat_statements_reset()')
    await work()
    const rows = await server.sql<{ calls: string; verb: string | null; query: string }>(
      `select calls, substring(query from 'lock_(\\w+)\\(') as verb, query from pg_stat_statements
       where query not like '%pg_stat_statements%'`,
    )
    return rows.map(({ calls, verb, query }) => [Number(calls), verb ?? query])
  }
  // The first call prepares the tables, opens the connection, and sweeps for the next ten minutes.
  const warm = ticket({ key: 'warm' })
  expect(await asked(() => store.acquire(warm))).toContainEqual([1, 'acquire'])
  await store.release({ key: warm.key, id: warm.id, cancel: false })
  for (const count of [1, 100]) {
    const tickets = Array.from({ length: count }, (_, index) => ticket({ key: `verb ${index}` }))
    const all = (verb: (one: (typeof tickets)[number]) => unknown) => () => Promise.all(tickets.map(verb))
    expect(await asked(all((one) => store.acquire(one)))).toEqual([[1, 'acquire']])
    expect(await asked(() => store.renew(tickets))).toEqual([[1, 'renew']])
    expect(await asked(all(({ key, id }) => store.release({ key, id, cancel: false })))).toEqual([
      [1, 'release'],
    ])
  }
  const evicted = ticket({ key: 'verb' })
  await store.acquire(evicted)
  expect(await asked(() => store.evict({ key: 'verb', id: evicted.id, reason: 'tested' }))).toEqual([
    [1, 'evict'],
  ])
  expect(await asked(() => store.inspect({ prefix: '', cursor: undefined, count: 9 }))).toHaveLength(1)
  await store.close()
})

test('500 waiters on a pool of 4 that the application uses, too, keep nothing of it, and are served in order', async () => {
  const pool = new pg.Pool({ connectionString: server.url, max: 4, application_name: 'the application' })
  const locks = createLocks(postgresStore(pool, { connections: 'shared' }))
  const first = await locks.acquire('shared')
  const served: number[] = []
  const waiting = Array.from({ length: 500 }, (_, index) =>
    locks.withLock('shared', { wait: '150s' }, () => {
      served.push(index)
    }),
  )
  await until('they wait', async () => (await count('waiters')) === 500)
  const sessions = await server.sql(`select from pg_stat_activity where application_name = 'the application'`)
  expect(sessions.length).toBeLessThanOrEqual(4)
  // The application can have all connections at once.
  const busy = await Promise.all([1, 2, 3, 4].map(() => pool.connect()))
  for (const client of busy) client.release()
  await first.release()
  await Promise.all(waiting)
  expect(served).toEqual(Array.from({ length: 500 }, (_, index) => index))
  await locks.close()
  await pool.end()
  for (const table of TABLES) expect(await count(table), table).toBe(0)
})

test('idle keys leave nothing behind: twenty thousand that were taken and released', async () => {
  const store = newStore()
  for (let round = 0; round < 10; round += 1) {
    const tickets = Array.from({ length: 2000 }, (_, index) => ticket({ key: `many:${round}:${index}` }))
    for (const answer of await Promise.all(tickets.map((each) => store.acquire(each)))) fenceOf(answer)
    await Promise.all(tickets.map(({ key, id }) => store.release({ key, id, cancel: false })))
  }
  for (const table of TABLES) expect(await count(table), table).toBe(0)
  await store.close()
})

test('what all processes have left is swept by the next one that comes', async () => {
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
})

test('while nothing happens, holders and waiters ask for nothing between renewals', async () => {
  const locks = createLocks(newStore())
  const lease = await locks.acquire('idle', { ttl: '1h' })
  const waiting = Array.from({ length: 50 }, () => locks.acquire('idle', { wait: Number.POSITIVE_INFINITY }))
  await until('they wait', async () => (await count('waiters')) === 50)
  const from = performance.now()
  await server.sql('select pg_stat_statements_reset()')
  await server.sql('select pg_sleep(1)')
  const asked = Object.values(await calls()).reduce((sum, each) => sum + each, 0)
  expect(asked).toBeLessThanOrEqual(2 + (performance.now() - from) / 1000)
  await lease.release()
  for (const each of waiting) await (await each).release()
  await locks.close()
})
