import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Store, UNLIMITED } from '../../../src/contract/store.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

let server: EtcdServer
let store: Store
const woken: string[] = []
beforeAll(async () => {
  server = await startEtcd()
  store = etcdStore({ endpoints: [server.url] })
  await store.listen?.((wake) => wake.tag === 'ticket' && woken.push(wake.id))
})
afterAll(async () => {
  await store.close()
  await server.close()
})

test('a waiter that is cancelled is not woken, although the watch may tell of it before the reply', async () => {
  const holder = ticket({ key: 'cancelled' })
  fenceOf(await store.acquire(holder))
  const waiters = Array.from({ length: 50 }, () => ticket({ key: 'cancelled' }))
  for (const waiter of waiters) expect(await store.acquire(waiter)).toMatchObject({ tag: 'queued' })
  for (const waiter of waiters) await store.release({ ...releaseOf(waiter), cancel: true })
  expect(woken.filter((id) => waiters.some((waiter) => waiter.id === id))).toEqual([])
  await store.release(releaseOf(holder))
})

test('a cancelled ticket is gone, also when it was evicted before', async () => {
  const mine = ticket({ key: 'both' })
  fenceOf(await store.acquire(mine))
  expect(await store.evict({ key: 'both', id: undefined, reason: 'stuck' })).toEqual([mine.id])
  expect(await store.acquire(mine)).toEqual({ tag: 'gone', evicted: true, reason: 'stuck' })
  expect(await store.release({ ...releaseOf(mine), cancel: true })).toEqual({ was: 'unknown' })
  expect(await store.acquire(mine)).toEqual({ tag: 'gone', evicted: false })
})

test('a ticket that leaves is woken when its own process evicts it', async () => {
  const mine = ticket({ key: 'leaving', minHoldMs: 30_000 })
  fenceOf(await store.acquire(mine))
  expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
  expect(await store.evict({ key: 'leaving', id: undefined, reason: 'stuck' })).toEqual([mine.id])
  await until('it is woken', () => woken.includes(mine.id))
})

test('all holders of one key are woken soon when another process evicts them', async () => {
  const other = etcdStore({ endpoints: [server.url] })
  const mine = Array.from({ length: 3 }, () => ticket({ key: 'readers', limit: UNLIMITED }))
  for (const one of mine) fenceOf(await store.acquire(one))
  expect(await other.evict({ key: 'readers', id: undefined, reason: 'stuck' })).toHaveLength(3)
  await until('all are woken', () => mine.every(({ id }) => woken.includes(id)))
  await other.close()
})
