import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { startPgBouncer } from '../../servers/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { storeAt } from './store-at.ts'

let server: PostgresServer
beforeAll(async () => {
  // A write that its commit does not wait for stays in memory for ten seconds, and is gone when the server is killed.
  server = await startPostgres({
    settings: { wal_writer_delay: '10s', shared_preload_libraries: 'pg_stat_statements' },
  })
  await server.sql('create extension pg_stat_statements')
})
afterAll(() => server?.close())

async function isOnDisk(): Promise<boolean> {
  const [row] = await server.sql<{ done: boolean }>(
    'select pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn() as done',
  )
  return row?.done === true
}

async function holderOf(key: string): Promise<string | undefined> {
  const [row] = await server.sql<{ id: string }>(`select id from holdfast.lock_holders where key = '${key}'`)
  return row?.id
}

test('a grant, a confirmation and an eviction outlive the death of the server, whatever the role is set to', async () => {
  await server.sql('alter role holdfast set synchronous_commit = off')
  const [first, next] = [ticket({ key: 'granted' }), ticket({ key: 'handed over' })]
  const [former, evicted] = [ticket({ key: 'handed over' }), ticket({ key: 'taken away' })]
  const store = storeAt(server.url)
  fenceOf(await store.acquire(former))
  await store.acquire(next)
  await store.release(releaseOf(former))
  const fence = fenceOf((await store.renew([next]))[0])
  await server.kill()
  await server.restart()
  expect(await holderOf('handed over')).toBe(next.id)
  await until('the store is connected again', () =>
    Promise.resolve(store.acquire(evicted)).then(
      () => true,
      () => false,
    ),
  )
  await store.evict({ key: evicted.key, id: evicted.id, reason: 'tested' })
  await server.kill()
  await server.restart()
  expect(await holderOf('taken away')).toBeUndefined()
  await until('the store is connected again', () =>
    Promise.resolve(store.acquire(first)).then(
      () => true,
      () => false,
    ),
  )
  await server.kill()
  await server.restart()
  expect(await holderOf('granted')).toBe(first.id)
  expect(fenceOf((await storeAt(server.url).renew([next]))[0])).toBe(fence)
  await server.sql('alter role holdfast reset synchronous_commit')
})

test('a lease that came by message outlives the death of the server, although the head asked for nothing', async () => {
  await server.sql('alter role holdfast set synchronous_commit = off')
  const [former, head] = [ticket({ key: 'by message' }), ticket({ key: 'by message' })]
  const store = storeAt(server.url)
  const granted: string[] = []
  await store.listen?.((wake) => {
    if (wake.tag === 'granted') granted.push(wake.id)
  })
  fenceOf(await store.acquire(former))
  await store.acquire(head)
  await store.release(releaseOf(former))
  expect(granted).toEqual([head.id])
  await server.kill()
  await server.restart()
  expect(await holderOf('by message')).toBe(head.id)
  await server.sql('alter role holdfast reset synchronous_commit')
})

test.each([
  ['on connections of its own', {}],
  ["on the application's connections", { connections: 'shared' }],
] as const)('asynchronous means that no grant waits for the disk, %s', async (_, options) => {
  const store = storeAt(server.url, { durability: 'asynchronous', ...options })
  await until('a grant is not on the disk yet', async () => {
    const mine = ticket({ key: crypto.randomUUID() })
    fenceOf(await store.acquire(mine))
    const pending = !(await isOnDisk())
    await store.release(releaseOf(mine))
    return pending
  })
})

test('while the commit of another such message is under way, a process is offered the key, and confirms', async () => {
  const [near, far] = [storeAt(server.url), storeAt(server.url)]
  const heard: string[] = []
  await far.listen?.((wake) => {
    if (wake.tag !== 'all') heard.push(`${wake.tag} ${wake.id}`)
  })
  const [holder, first, second] = [ticket({ key: 'busy' }), ticket({ key: 'busy' }), ticket({ key: 'busy' })]
  fenceOf(await near.acquire(holder))
  for (const waiter of [first, second]) await far.acquire(waiter)
  // As a call that has handed another key over, and whose commit waits for the disk.
  const granting = new pg.Client(server.url)
  onTestFinished(() => granting.end())
  await granting.connect()
  await granting.query('begin')
  await granting.query('select pg_advisory_xact_lock(1212236374, 0)')
  await near.release(releaseOf(holder))
  await until('the offer has come', () => heard.length === 1)
  fenceOf((await far.renew([first]))[0])
  await granting.query('commit')
  await near.release(releaseOf(first))
  await until('the lease has come', () => heard.length === 2)
  expect(heard).toEqual([`ticket ${first.id}`, `granted ${second.id}`])
})

test('behind a pooler, too, asynchronous means that no grant waits for the disk, and each call is one statement', async () => {
  await using pooler = await startPgBouncer(server)
  const store = storeAt(pooler.url, { durability: 'asynchronous', connections: 1 })
  // The first call also sweeps, in a transaction of several statements. The second call comes after that.
  for (const key of ['warm', 'swept']) fenceOf(await store.acquire(ticket({ key })))
  await server.sql('select pg_stat_statements_reset()')
  await until('a grant is not on the disk yet', async () => {
    const mine = ticket({ key: crypto.randomUUID() })
    fenceOf(await store.acquire(mine))
    const pending = !(await isOnDisk())
    await store.release(releaseOf(mine))
    return pending
  })
  const asked = await server.sql<{ query: string }>('select query from pg_stat_statements')
  expect(asked.some(({ query }) => /lock_acquire/.test(query))).toBe(true)
  expect(asked.filter(({ query }) => /^(begin|commit|set)/i.test(query))).toEqual([])
})
