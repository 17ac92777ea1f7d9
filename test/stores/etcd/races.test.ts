import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { acquire } from '../../../src/stores/etcd/acquire.ts'
import { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { release } from '../../../src/stores/etcd/release.ts'
import { renew } from '../../../src/stores/etcd/renew.ts'
import { Session } from '../../../src/stores/etcd/session/session.ts'
import { type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

let server: EtcdServer
let store: Store
beforeAll(async () => {
  server = await startEtcd()
  store = etcdStore({ endpoints: [server.url] })
})
afterAll(async () => {
  await store.close()
  await server.close()
})

test('a holder that renews while it is released before its minimum hold is over holds no longer', async () => {
  for (let round = 0; round < 10; round += 1) {
    const mine = ticket({ minHoldMs: 30_000 })
    fenceOf(await store.acquire(mine))
    await Promise.all([store.renew([mine]), store.release(releaseOf(mine))])
    expect(await store.renew([mine])).toEqual([{ tag: 'gone', evicted: false }])
  }
})

test('a holder that is released while the lease of its minimum hold is granted holds no longer', async () => {
  const prefix = 'holdfast/'
  const session = new Session(
    new Cluster({ endpoints: [server.url], auth: undefined, tls: {}, prefix }),
    prefix,
  )
  const mine = ticket({ key: 'pinned', minHoldMs: 30_000 })
  const expiring = session.leases.expiring.bind(session.leases)
  vi.spyOn(session.leases, 'expiring').mockImplementationOnce(async (durationMs) => {
    const lease = await expiring(durationMs)
    expect(await release(session, releaseOf(mine))).toEqual({ was: 'held' })
    return lease
  })
  expect(await acquire(session, mine)).toEqual({ tag: 'gone', evicted: false })
  expect(session.tickets.get(mine.id)?.state.tag).toBe('leaving')
  session.close()
})

test('a waiter whose turn comes while its lease is kept alive is told so', async () => {
  const prefix = 'holdfast/'
  const session = new Session(
    new Cluster({ endpoints: [server.url], auth: undefined, tls: {}, prefix }),
    prefix,
  )
  const [holder, waiter] = [ticket({ key: 'lease' }), ticket({ key: 'lease' })]
  fenceOf(await store.acquire(holder))
  expect(await acquire(session, waiter)).toMatchObject({ tag: 'queued' })
  const own = session.tickets.get(waiter.id)
  vi.spyOn(session.leases, 'ensure').mockImplementationOnce(async () => {
    await store.release(releaseOf(holder))
    await until('it is its turn', () => own?.state.tag === 'offered')
  })
  const [answer] = await renew(session, [waiter])
  fenceOf(answer)
  session.close()
})
