import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { base64, type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { GRPC, startStrangeServer } from './strange-server.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

/** In these tests an etcd lease lives on for other tickets. So etcd itself never ends the ticket whose time is over. */
let server: EtcdServer
beforeAll(async () => {
  server = await startEtcd()
})
afterAll(() => server.close())

/** Keeps another ticket of the same process under the same etcd lease, and renews it until the end. */
async function busy(store: Store, draft: Partial<Ticket>): Promise<Disposable> {
  const other = ticket(draft)
  fenceOf(await store.acquire(other))
  const timer = setInterval(() => {
    Promise.resolve(store.renew([other])).catch(() => {})
  }, 300)
  return { [Symbol.dispose]: () => clearInterval(timer) }
}

async function untilFree(store: Store, key: string): Promise<void> {
  const next = ticket({ key, patienceMs: 0 })
  await until(`${key} is free`, async () => (await store.acquire(next)).tag === 'held', { everyMs: 100 })
  await store.release(releaseOf(next))
}

test('a ticket ends at its time although the clock says that its lease is over by then', async () => {
  const [store, other] = [etcdStore({ endpoints: [server.url] }), etcdStore({ endpoints: [server.url] })]
  using _ = await busy(store, { ttlMs: 2000 })
  const from = performance.now()
  fenceOf(await store.acquire(ticket({ key: 'jumped', ttlMs: 2000 })))
  const wall = Date.now
  let ahead = 0
  const clock = vi.spyOn(Date, 'now').mockImplementation(() => {
    ahead += 3_600_000
    return wall() + ahead
  })
  await until('its time is over', () => performance.now() > from + 2300)
  clock.mockRestore()
  await untilFree(other, 'jumped')
  await store.close()
  await other.close()
})

test('a ticket ends at its time although etcd could not be reached for longer than its lease, and kept it', async () => {
  await using own = await startEtcd()
  await using proxy = await startProxy({ targetPort: own.port })
  const store = etcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`] })
  using _ = await busy(store, { ttlMs: 2000 })
  fenceOf(await store.acquire(ticket({ key: 'away', ttlMs: 2000 })))
  const from = performance.now()
  await own.kill()
  await until('its lease would be over', () => performance.now() > from + 4500)
  // After a restart every etcd lease has its full ttl again.
  await own.restart()
  const other = etcdStore({ endpoints: [own.url] })
  await untilFree(other, 'away')
  await store.close()
  await other.close()
})

test('an acquire whose answer was lost, and that is neither repeated nor released, ends at its time', async () => {
  await using proxy = await startProxy({ targetPort: server.port })
  const store = etcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`] })
  const other = etcdStore({ endpoints: [server.url] })
  using _ = await busy(store, { ttlMs: 5000 })
  // Opens its session now, because that may take a second on a busy machine, and the ticket below ends meanwhile.
  using __ = await busy(other, { ttlMs: 5000 })
  const lost = proxy.loseNextReply('unheard')
  const mine = ticket({ key: 'unheard', ttlMs: 5000, patienceMs: 1500 })
  await expect(store.acquire(mine)).rejects.toMatchObject({ code: 'store-unavailable' })
  await lost
  expect(await other.acquire(ticket({ key: 'unheard', patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
  await untilFree(other, 'unheard')
  await store.close()
  await other.close()
})

test.each(['acquire', 'acquireAll'] as const)(
  'an %s whose answer was lost, and that another member refuses for good, ends at its time',
  async (verb) => {
    await using proxy = await startProxy({ targetPort: server.port })
    await using strange = await startStrangeServer((stream) =>
      stream.respond(
        { ...GRPC, 'grpc-status': '7', 'grpc-message': 'permission denied' },
        { endStream: true },
      ),
    )
    const store: Store = etcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`, strange.url] })
    const other = etcdStore({ endpoints: [server.url] })
    using _ = await busy(store, { ttlMs: 5000 })
    using __ = await busy(other, { ttlMs: 5000 })
    const key = `refused-${verb}`
    const lost = proxy.loseNextReply(key)
    const mine = ticket({ key, ttlMs: 5000, patienceMs: 0 })
    const asked =
      verb === 'acquire' ? store.acquire(mine) : store.acquireAll?.([mine, ticket({ ttlMs: 5000 })])
    await expect(asked).rejects.toMatchObject({ code: 'store-refused' })
    await lost
    expect(await other.acquire(ticket({ key, patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
    await untilFree(other, key)
    await store.close()
    await other.close()
  },
)

test.each(['acquire', 'acquireAll'] as const)(
  'an %s that one member refused, and a slow one carries out later, ends at its time',
  async (verb) => {
    await using proxy = await startProxy({ targetPort: server.port })
    const other = etcdStore({ endpoints: [server.url] })
    // On a busy machine the slow member may hear in time that the request was cancelled.
    await until('a request comes in late', async () => {
      const store: Store = etcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`, server.url] })
      const key = crypto.randomUUID()
      using _ = await busy(store, { ttlMs: 2000 })
      const [held, mine] = [ticket({ key }), ticket({ key, ttlMs: 2000, patienceMs: 0 })]
      const isIn = async (): Promise<boolean> => {
        const { rooms } = await other.inspect({ prefix: key, cursor: undefined, count: 1 })
        return rooms.some(({ holders }) => holders.some(({ id }) => id === mine.id))
      }
      fenceOf(await other.acquire(held))
      proxy.delay({ requestMs: 1800 })
      if (verb === 'acquire') expect(await store.acquire(mine)).toMatchObject({ tag: 'busy' })
      else expect(await store.acquireAll?.([mine, ticket({ ttlMs: 2000, patienceMs: 0 })])).toBeUndefined()
      await other.release(releaseOf(held))
      const cameIn = await until('it is in', isIn, { withinMs: 2000 }).catch(() => false)
      proxy.normal()
      await untilFree(other, key)
      await store.close()
      return cameIn
    })
    await other.close()
  },
)

test('a holder keeps its lease, its fence and its time where only the beginning of fences was deleted', async () => {
  await using own = await startEtcd()
  const [store, other] = [etcdStore({ endpoints: [own.url] }), etcdStore({ endpoints: [own.url] })]
  const [mine, left] = [ticket({ key: 'mine', ttlMs: 5000 }), ticket({ key: 'left', ttlMs: 5000 })]
  const fence = fenceOf(await store.acquire(mine))
  fenceOf(await store.acquire(left))
  await own.call('/v3/kv/deleterange', { key: base64('holdfast/meta') })
  using _ = await busy(store, { ttlMs: 5000 })
  expect(await store.renew([mine])).toEqual([{ tag: 'held', fence }])
  await untilFree(other, 'left')
  await store.release(releaseOf(mine))
  expect(fenceOf(await other.acquire(ticket({ key: 'mine' })))).toBeGreaterThan(fence)
  await store.close()
  await other.close()
})

test('a lock-delay shorter than the shortest lease of etcd follows an expiry, and an eviction', async () => {
  await using slow = await startEtcd({ args: ['--heartbeat-interval', '300', '--election-timeout', '3000'] })
  const [store, other] = [etcdStore({ endpoints: [slow.url] }), etcdStore({ endpoints: [slow.url] })]
  using _ = await busy(store, { ttlMs: 4000, lockDelayMs: 500 })
  const draft = { ttlMs: 4000, lockDelayMs: 500 }
  const [evicted, expired] = [ticket({ key: 'evicted', ...draft }), ticket({ key: 'expired', ...draft })]
  fenceOf(await store.acquire(expired))
  fenceOf(await store.acquire(evicted))
  expect(await other.evict({ key: 'evicted', id: undefined, reason: 'stuck' })).toEqual([evicted.id])
  await untilFree(store, 'evicted')
  await untilFree(other, 'expired')
  await store.close()
  await other.close()
})
