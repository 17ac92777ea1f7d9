import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { migrate } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, ticket } from '../tickets.ts'
import { storeAt } from './store-at.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
  await migrate(new pg.Client(server.url))
})
afterAll(() => server?.close())

test('a waiter that becomes the holder while an eviction of those that wait is held up stays the holder', async () => {
  const store = storeAt(server.url)
  const [holder, next, last] = [ticket(), ticket(), ticket()]
  fenceOf(await store.acquire(holder))
  for (const waiter of [next, last]) expect(await store.acquire(waiter)).toMatchObject({ tag: 'queued' })
  const releasing = new pg.Client(server.url)
  await releasing.connect()
  onTestFinished(() => releasing.end())
  await releasing.query('begin')
  await releasing.query("select holdfast.lock_release(array[$1], array[$2], array[false], '', true)", [
    holder.key,
    holder.id,
  ])
  const evicting = store.evict({ key: holder.key, id: undefined, reason: 'too late', onlyIfWaiting: true })
  await until('the eviction waits for the release', async () => {
    const waiting = await server.sql(
      "select 1 from pg_stat_activity where wait_event = 'advisory' and query like '%lock_evict%'",
    )
    return waiting.length === 1
  })
  await releasing.query('commit')
  expect(await evicting).toEqual([last.id])
  expect(await store.acquire(last)).toEqual({ tag: 'gone', evicted: true, reason: 'too late' })
  fenceOf(await store.acquire(next))
})
