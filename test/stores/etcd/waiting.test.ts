import { fork } from 'node:child_process'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { UNLIMITED } from '../../../src/contract/store.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { bundled } from '../../servers/bundled.ts'
import { base64, type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

let server: EtcdServer
beforeAll(async () => {
  // With these, the shortest lease is 5 s, so a busy machine keeps it alive.
  server = await startEtcd({ args: ['--heartbeat-interval', '300', '--election-timeout', '3000'] })
})
afterAll(() => server.close())

const opened: Store[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((store) => store.close()))
})

function storeAt(...urls: string[]): Store {
  const store = etcdStore({ endpoints: urls })
  opened.push(store)
  return store
}

/** The ttl of the lease to which the key of a ticket is bound, in seconds. Undefined when there is no key. */
async function leaseTtl({ key, id }: Ticket): Promise<number | undefined> {
  const range = { key: base64(`holdfast/tickets/${key} ${id}`) }
  const { kvs = [] } = (await server.call('/v3/kv/range', range)) as { kvs?: { lease: string }[] }
  if (kvs[0] === undefined) return undefined
  const { grantedTTL = '0' } = await server.call('/v3/lease/timetolive', { ID: kvs[0].lease })
  return Number(grantedTTL)
}

/** The ttl of an etcd lease: of waiters, the shortest that this etcd grants, and of holders with a ttl of 30 s. */
const [WAITING_S, HOLDING_S] = [5, 38]

async function queued(store: Store, one: Ticket): Promise<void> {
  expect(await store.acquire(one)).toMatchObject({ tag: 'queued' })
}

describe('the key of a ticket that waits', () => {
  test('is bound to a short lease, and to one for its ttl before it is told that it holds', async () => {
    const [store, other] = [storeAt(server.url), storeAt(server.url)]
    const [first, near, far] = [ticket({ key: 'short' }), ticket({ key: 'short' }), ticket({ key: 'short' })]
    fenceOf(await store.acquire(first))
    await queued(store, near)
    await queued(other, far)
    expect(await Promise.all([first, near, far].map(leaseTtl))).toEqual([HOLDING_S, WAITING_S, WAITING_S])
    await store.release(releaseOf(first))
    expect(await leaseTtl(near)).toBe(HOLDING_S)
    fenceOf((await store.renew([near]))[0])
    await store.release(releaseOf(near))
    // Only a waiter's own process reports that it still lives.
    expect(await leaseTtl(far)).toBe(WAITING_S)
    fenceOf((await other.renew([far]))[0])
    expect(await leaseTtl(far)).toBe(HOLDING_S)
    await other.release(releaseOf(far))
  })

  test('stays where it is for as long as its process lives', async () => {
    const [store, other] = [storeAt(server.url), storeAt(server.url)]
    const [holder, waiter] = [ticket({ key: 'stays' }), ticket({ key: 'stays', patienceMs: 60_000 })]
    fenceOf(await store.acquire(holder))
    await queued(other, waiter)
    const from = performance.now()
    await until('its lease would be over twice', () => performance.now() > from + 2 * WAITING_S * 1000)
    expect(await leaseTtl(waiter)).toBe(WAITING_S)
    await store.release(releaseOf(holder))
    fenceOf((await other.renew([waiter]))[0])
    await other.release(releaseOf(waiter))
  })

  test('is bound to a lease for its ttl while its minimum hold lasts, and after that', async () => {
    const store = storeAt(server.url)
    const [holder, waiter] = [ticket({ key: 'least' }), ticket({ key: 'least', minHoldMs: 300 })]
    fenceOf(await store.acquire(holder))
    await queued(store, waiter)
    await store.release(releaseOf(holder))
    fenceOf((await store.renew([waiter]))[0])
    expect(await leaseTtl(waiter)).toBe(HOLDING_S)
    await until('its minimum hold is over', async () => {
      const { rooms } = await store.inspect({ prefix: 'least', cursor: undefined, count: 1 })
      return (rooms[0]?.holders[0]?.heldMs ?? 0) > 400
    })
    expect(await leaseTtl(waiter)).toBe(HOLDING_S)
    expect(await store.release(releaseOf(waiter))).toEqual({ was: 'held' })
  })

  test('of a process that was frozen is gone, and when it lives again it has a new place and its turn', async () => {
    const [store, other] = [storeAt(server.url), storeAt(server.url)]
    const [holder, behind] = [ticket({ key: 'frozen' }), ticket({ key: 'frozen', patienceMs: 60_000 })]
    fenceOf(await store.acquire(holder))
    const program = await bundled(new URL('../../processes/waiters-process.ts', import.meta.url))
    const url = server.url.replace('http', 'etcd')
    const child = fork(program, [url, 'frozen', '2', '30000'], { execArgv: [] })
    try {
      const queue = async () => {
        const { rooms } = await store.inspect({ prefix: 'frozen', cursor: undefined, count: 1 })
        return rooms[0]?.queue.map(({ id }) => id) ?? []
      }
      const before = await until('both wait', async () => {
        const ids = await queue()
        return ids.length === 2 && ids
      })
      await queued(other, behind)
      child.kill('SIGSTOP')
      await until('they are gone', async () => (await queue()).length === 1)
      child.kill('SIGCONT')
      await until('they wait again', async () => (await queue()).length === 3)
      const [first = '', ...again] = await queue()
      expect(first).toBe(behind.id)
      expect(new Set(again)).toEqual(new Set(before))
      await store.release(releaseOf(holder))
      fenceOf((await other.renew([behind]))[0])
      await other.release(releaseOf(behind))
      await until('one of them holds', async () => {
        const { rooms } = await store.inspect({ prefix: 'frozen', cursor: undefined, count: 1 })
        return before.includes(rooms[0]?.holders[0]?.id ?? '')
      })
    } finally {
      child.kill('SIGKILL')
    }
  })
})

describe('a waiter that is cut off just before its turn', () => {
  test('never holds, and the key goes on to the next one long before its ttl is over', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const [store, cut, other] = [
      storeAt(server.url),
      storeAt(`http://127.0.0.1:${proxy.port}`),
      storeAt(server.url),
    ]
    const key = 'cut-off'
    const [holder, lost, next] = [ticket({ key }), ticket({ key, patienceMs: 60_000 }), ticket({ key })]
    fenceOf(await store.acquire(holder))
    await queued(cut, lost)
    await queued(other, next)
    proxy.halfOpen()
    const from = performance.now()
    await store.release(releaseOf(holder))
    const asked = Promise.resolve(cut.renew([lost])).catch(() => [])
    const fence = await until('the next one holds', async () => {
      const [answer] = await other.renew([next])
      return answer?.tag === 'held' && answer.fence
    })
    expect(performance.now() - from).toBeLessThan((HOLDING_S * 1000) / 2)
    expect(await asked).toEqual([])
    proxy.normal()
    await until('it knows that it is gone', async () => {
      const [answer] = await Promise.resolve(cut.renew([lost])).catch(() => [])
      expect(answer?.tag).not.toBe('held')
      return answer?.tag === 'gone'
    })
    await queued(cut, lost)
    expect(fenceOf((await other.renew([next]))[0])).toBe(fence)
    await other.release(releaseOf(next))
    fenceOf((await cut.renew([lost]))[0])
    await cut.release(releaseOf(lost))
  })
})

test('readers of many processes that come at once are all let in', async () => {
  const stores = Array.from({ length: 20 }, () => storeAt(server.url))
  const readers = stores.map(() => ticket({ key: 'crowd', limit: UNLIMITED }))
  const answers = await Promise.all(stores.map((store, index) => store.acquire(readers[index] as Ticket)))
  for (const answer of answers) fenceOf(answer)
  expect(await Promise.all(readers.map(leaseTtl))).toEqual(readers.map(() => HOLDING_S))
  await Promise.all(stores.map((store, index) => store.release(releaseOf(readers[index] as Ticket))))
})

describe('a release that lets in a waiter of the same process', () => {
  test('has one effect when its reply is lost, and the waiter keeps the key', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const [store, other] = [storeAt(`http://127.0.0.1:${proxy.port}`, server.url), storeAt(server.url)]
    const key = 'lost-reply'
    const [holder, waiter, next] = [ticket({ key }), ticket({ key }), ticket({ key })]
    fenceOf(await store.acquire(holder))
    await queued(store, waiter)
    await queued(other, next)
    const lost = proxy.loseNextReply(holder.id)
    await store.release(releaseOf(holder))
    await lost
    const fence = fenceOf((await store.renew([waiter]))[0])
    expect(await leaseTtl(waiter)).toBe(HOLDING_S)
    expect(await other.renew([next])).toMatchObject([{ tag: 'queued' }])
    expect(fenceOf((await store.renew([waiter]))[0])).toBe(fence)
    await store.release(releaseOf(waiter))
    expect(fenceOf((await other.renew([next]))[0])).toBeGreaterThan(fence)
    await other.release(releaseOf(next))
  })

  test('leaves no key behind when its reply is lost, and the waiter gives up before it hears of its turn', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const [store, other] = [storeAt(`http://127.0.0.1:${proxy.port}`), storeAt(server.url)]
    const key = 'given-up'
    const [holder, waiter] = [ticket({ key }), ticket({ key })]
    fenceOf(await store.acquire(holder))
    await queued(store, waiter)
    const lost = proxy.loseNextReply(holder.id)
    await expect(store.release(releaseOf(holder))).rejects.toMatchObject({ code: 'store-unavailable' })
    await lost
    await store.release(releaseOf(waiter))
    fenceOf(await other.acquire(ticket({ key, patienceMs: 0 })))
  })

  test('is carried out where that waiter is evicted in the same moment', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const [store, other] = [storeAt(`http://127.0.0.1:${proxy.port}`), storeAt(server.url)]
    const key = 'evicted'
    const [holder, waiter] = [ticket({ key }), ticket({ key })]
    fenceOf(await store.acquire(holder))
    await queued(store, waiter)
    // The watch reports the eviction too late.
    proxy.delay({ replyMs: 300 })
    expect(await other.evict({ key, id: waiter.id, reason: 'stuck' })).toEqual([waiter.id])
    expect(await store.release(releaseOf(holder))).toEqual({ was: 'held' })
    proxy.normal()
    await until('it is told', async () => {
      const [answer] = await store.renew([waiter])
      expect(answer?.tag).not.toBe('held')
      return answer?.tag === 'gone' && answer.evicted
    })
    fenceOf(await other.acquire(ticket({ key, patienceMs: 0 })))
  })

  test('is carried out where the lease of that waiter is gone', async () => {
    const [store, other] = [storeAt(server.url), storeAt(server.url)]
    const key = 'revoked'
    const [holder, waiter] = [ticket({ key }), ticket({ key, ttlMs: 60_000 })]
    fenceOf(await store.acquire(holder))
    await queued(store, waiter)
    const { leases = [] } = (await server.call('/v3/lease/leases')) as { leases?: { ID: string }[] }
    for (const { ID } of leases) {
      const { grantedTTL } = await server.call('/v3/lease/timetolive', { ID })
      if (grantedTTL === '75') await server.call('/v3/lease/revoke', { ID })
    }
    expect(await store.release(releaseOf(holder))).toEqual({ was: 'held' })
    fenceOf((await store.renew([waiter]))[0])
    expect(await leaseTtl(waiter)).toBe(75)
    expect(await other.acquire(ticket({ key, patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
    await store.release(releaseOf(waiter))
  })

  test('lets several readers in together', async () => {
    const [store, other] = [storeAt(server.url), storeAt(server.url)]
    const reader = () => ticket({ key: 'readers', limit: UNLIMITED })
    const [writer, near, far] = [ticket({ key: 'readers' }), [reader(), reader(), reader()], reader()]
    fenceOf(await store.acquire(writer))
    for (const one of near) await queued(store, one)
    await queued(other, far)
    await store.release(releaseOf(writer))
    expect(await Promise.all(near.map(leaseTtl))).toEqual(near.map(() => HOLDING_S))
    for (const answer of await store.renew(near)) fenceOf(answer)
    fenceOf((await other.renew([far]))[0])
    expect(await leaseTtl(far)).toBe(HOLDING_S)
    const late = reader()
    fenceOf(await other.acquire(late))
    expect(await leaseTtl(late)).toBe(HOLDING_S)
    for (const one of [...near, far, late]) await store.release(releaseOf(one))
  })
})
