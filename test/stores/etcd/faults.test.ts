import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { createLocks, type InspectedRoom, type Locks } from '../../../src/index.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { shortestMs } from '../../base/measured.ts'
import { base64, type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

let server: EtcdServer
beforeAll(async () => {
  server = await startEtcd()
})
afterAll(() => server.close())

const opened: Locks[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((locks) => locks.close()))
  await server.call('/v3/kv/deleterange', {
    key: base64('holdfast/tickets'),
    range_end: base64('holdfast/tickett'),
  })
})

function locksAt(...urls: string[]): Locks {
  const locks = createLocks(etcdStore({ endpoints: urls }))
  opened.push(locks)
  return locks
}

/** The names of the keys of all tickets, also of tombstones. */
async function names(): Promise<string[]> {
  const range = { key: base64('holdfast/tickets'), range_end: base64('holdfast/tickett') }
  const { kvs = [] } = (await server.call('/v3/kv/range', range)) as { kvs?: { key: string }[] }
  return kvs.map(({ key }) => Buffer.from(key, 'base64').toString())
}

/** The visible state of a key. */
async function room(locks: Locks, key: string): Promise<InspectedRoom | undefined> {
  for await (const one of locks.inspect({ prefix: key })) if (one.key === key) return one
  return undefined
}

async function untilShown(locks: Locks, key: string): Promise<void> {
  await until(`${key} is held`, async () => (await room(locks, key))?.holders.length === 1)
}

async function untilQueued(locks: Locks, key: string, count: number): Promise<void> {
  await until(`${count} wait for ${key}`, async () => (await room(locks, key))?.queue.length === count)
}

describe('several keys', () => {
  test.each(['loseNextReply', 'loseNextRequest'] as const)(
    'whose request suffers “%s” are taken all the same, by one effect',
    async (lose) => {
      await using proxy = await startProxy({ targetPort: server.port })
      const [locks, other] = [locksAt(`http://127.0.0.1:${proxy.port}`), locksAt(server.url)]
      // The store finds its tickets when it asks again by the second way.
      const store: Store = etcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`, server.url] })
      const before = ticket()
      fenceOf(await store.acquire(before))
      await store.release(releaseOf(before))
      const tickets = ['one', 'two', 'three'].map((name) => ticket({ key: `${lose}-${name}`, patienceMs: 0 }))
      const lost = proxy[lose](`${lose}-one`)
      const fences = await store.acquireAll?.(tickets)
      await lost
      expect(fences).toHaveLength(3)
      for (const [index, { key, id }] of tickets.entries())
        expect((await room(other, key))?.holders).toMatchObject([{ id, fence: fences?.[index] }])
      expect(new Set(fences).size).toBe(1)
      for (const one of tickets) await store.release(releaseOf(one))
      await store.close()

      await locks.withLock('before', () => {})
      const keys = tickets.map(({ key }) => `${key}-again`)
      const lostAgain = proxy[lose](keys[0])
      const leases = await locks.acquireAll(keys)
      await lostAgain
      expect(await other.tryAcquireAll([`${lose}-free`, keys[2] as string])).toBeNull()
      await leases.release()
      for (const key of [...keys, `${lose}-free`]) expect(await room(other, key)).toBeUndefined()
    },
  )

  test('that many take in any order are never held by two, and nobody waits for ever', async () => {
    const processes = Array.from({ length: 4 }, () => locksAt(server.url))
    const inside = new Map<string, number>()
    const fences = new Map<string, bigint[]>()
    let rounds = 0
    const work = async (locks: Locks, seed: number) => {
      for (let round = 0; round < 15; round += 1) {
        // Each round takes two to four of six keys.
        const keys = Array.from({ length: 6 }, (_, index) => `shared-${index}`)
        const mine = keys.filter((_, index) => (seed * 7 + round * 13 + index * index * 5) % 6 < 3)
        await locks.withLocks(mine, { wait: '1m' }, async (leases) => {
          for (const key of leases.keys) {
            expect(inside.get(key) ?? 0).toBe(0)
            inside.set(key, 1)
            fences.set(key, [...(fences.get(key) ?? []), leases.fence(key)])
          }
          await new Promise((resolve) => setImmediate(resolve))
          for (const key of leases.keys) inside.set(key, 0)
          rounds += 1
        })
      }
    }
    await Promise.all(
      processes.flatMap((locks, index) => [work(locks, 2 * index), work(locks, 2 * index + 1)]),
    )
    expect(rounds).toBe(8 * 15)
    for (const told of fences.values()) {
      expect(told).toEqual([...told].sort((one, another) => (one < another ? -1 : 1)))
      expect(new Set(told).size).toBe(told.length)
    }
    expect(await names()).toEqual([])
  })
})

describe('replies that are lost', () => {
  test.each(['acquire', 'release', 'renew'])('of %s cost nothing: it has one effect', async (verb) => {
    await using proxy = await startProxy({ targetPort: server.port })
    const url = `http://127.0.0.1:${proxy.port}`
    const [locks, other] = [locksAt(url), locksAt(server.url)]
    // The requests that every process sends once are done before the test counts.
    await locks.withLock('before', () => {})
    const key = `lost-${verb}`
    if (verb === 'acquire') {
      const lost = proxy.loseNextReply(key)
      const lease = await locks.acquire(key)
      await lost
      expect(await room(other, key)).toMatchObject({ holders: [{ fence: lease.fence }] })
      await lease.release()
    } else {
      const lease = await locks.acquire(key)
      const waiting = other.acquire(key)
      await untilQueued(other, key, 1)
      const lost = proxy.loseNextReply(key)
      if (verb === 'renew') {
        await lease.extend()
        await lost
        expect(lease.state).toBe('held')
        await lease.release()
      } else {
        await lease.release()
        await lost
      }
      const next = await waiting
      expect(next.fence).toBeGreaterThan(lease.fence)
      expect(await room(other, key)).toMatchObject({ holders: [{ fence: next.fence }], queue: [] })
      await next.release()
    }
    expect(await room(other, key)).toBeUndefined()
  })

  test('an acquire that a hung member gets to carry out only after the release has no effect', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = etcdStore({ endpoints: [`http://127.0.0.1:${proxy.port}`, server.url] })
    await store.acquire(ticket({ key: 'before' }))
    const late = ticket({ key: 'late' })
    proxy.holdRequests()
    fenceOf(await store.acquire(late))
    expect(await store.release(releaseOf(late))).toEqual({ was: 'held' })
    proxy.normal()
    // The acquire may be cancelled before it arrives. If it arrives, it finds a tombstone.
    expect(await store.acquire({ ...late })).toEqual({ tag: 'gone', evicted: false })
    fenceOf(await store.acquire(ticket({ key: 'late', patienceMs: 0 })))
    await store.close()
  })
})

describe('a watch', () => {
  test('that lost its connection goes on where it was, also where etcd has compacted that part of its history', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const [locks, other] = [locksAt(`http://127.0.0.1:${proxy.port}`), locksAt(server.url)]
    for (const compacts of [false, true]) {
      const lease = await other.acquire('watched')
      const waiting = locks.acquire('watched')
      await untilQueued(other, 'watched', 1)
      proxy.refuse()
      await lease.release()
      if (compacts) {
        const { header } = (await server.call('/v3/kv/put', {
          key: base64('x'),
          value: '',
        })) as unknown as Revision
        await server.call('/v3/kv/compaction', { revision: header.revision })
      }
      proxy.normal()
      const next = await waiting
      expect(next.fence).toBeGreaterThan(lease.fence)
      await next.release()
    }
  })

  test('tells a holder at once that its key was deleted by hand, or that it was evicted', async () => {
    const [locks, other] = [locksAt(server.url), locksAt(server.url)]
    const deleted = await locks.acquire('deleted')
    const evicted = await locks.acquire('evicted')
    const reasons = [deleted, evicted].map(
      ({ signal }) => new Promise((tell) => signal.addEventListener('abort', () => tell(signal.reason))),
    )
    const [name = ''] = (await names()).filter((one) => one.includes('deleted'))
    await server.call('/v3/kv/deleterange', { key: base64(name) })
    await other.evict('evicted', evicted.id, { reason: 'stuck' })
    expect(await Promise.all(reasons)).toMatchObject([{ reason: 'store-reset' }, { reason: 'evicted' }])
  })
})

describe('an eviction whose answer is lost', () => {
  test('tells whom it has evicted, and makes no lock-delay longer', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    // Two addresses of one member, so that the request is sent again at once.
    const [evicting, other] = [locksAt(`http://127.0.0.1:${proxy.port}`, server.url), locksAt(server.url)]
    await evicting.withLock('before', () => {})
    const lease = await other.acquire('stuck', { ttl: '30s', lockDelay: '5s' })
    await untilShown(evicting, 'stuck')
    const lost = proxy.loseNextReply('"evicted":true')
    const from = performance.now()
    expect(await evicting.evictAll('stuck', { reason: 'a test' })).toEqual([lease.id])
    await lost
    await other.acquire('stuck')
    expect(performance.now() - from).toBeLessThan(8000)
  })
})

describe('an etcd that lost all its data', () => {
  test('has holders told at once, serves who waits, and its fences go on rising', async () => {
    await using fresh = await startEtcd()
    const [locks, other] = [locksAt(fresh.url), locksAt(fresh.url)]
    const lease = await locks.acquire('k')
    const waiting = other.acquire('k', { wait: '60s' })
    await untilQueued(other, 'k', 1)
    const told = new Promise((tell) =>
      lease.signal.addEventListener('abort', () => tell(lease.signal.reason)),
    )
    await fresh.restart({ empty: true })
    expect(await told).toMatchObject({ reason: 'store-reset' })
    const next = await waiting
    expect(next.fence).toBeGreaterThan(lease.fence)
    await next.release()
    await Promise.all(opened.splice(0).map((one) => one.close()))
  })
})

describe('an etcd that lost all its data', () => {
  test('shows the fences of now to those who knew the ones before, and its leases can be adopted', async () => {
    await using fresh = await startEtcd()
    const [one, two, looker] = [locksAt(fresh.url), locksAt(fresh.url), locksAt(fresh.url)]
    for (const locks of [one, two]) await locks.withLock('before', () => {})
    expect(await room(looker, 'before')).toBeUndefined()
    await fresh.restart({ empty: true })
    const lease = await one.acquire('k', { ttl: '30s' })
    for (const locks of [two, looker])
      expect((await room(locks, 'k'))?.holders).toMatchObject([{ fence: lease.fence }])
    const adopted = await two.adopt(lease.detach())
    expect(adopted.fence).toBe(lease.fence)
    await adopted.release()
    await Promise.all(opened.splice(0).map((each) => each.close()))
  })
})

describe('a client that is cut off', () => {
  test('has lost its lease, by its own clock, before another one holds the key', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const [locks, other] = [locksAt(`http://127.0.0.1:${proxy.port}`), locksAt(server.url)]
    const tookMs = await shortestMs(9000, async () => {
      const lease = await locks.acquire('cut', { ttl: '2s' })
      const waiting = other.acquire('cut', { wait: '60s' })
      await untilQueued(other, 'cut', 1)
      const from = performance.now()
      proxy.halfOpen()
      const wasLost = waiting.then(() => lease.signal.aborted)
      const next = await waiting
      const took = performance.now() - from
      expect(await wasLost).toBe(true)
      expect(next.fence).toBeGreaterThan(lease.fence)
      await next.release()
      proxy.normal()
      return took
    })
    // The ticket's etcd lease lasts 2 s, a fifth of that and a second, in whole seconds. etcd takes a while to notice
    // its end.
    expect(tookMs).toBeLessThan(9000)
  })
})

describe('a ticket that another process goes on with', () => {
  test('keeps its fence, is kept alive by that process alone, and is released by it', async () => {
    const [one, other] = [locksAt(server.url), locksAt(server.url)]
    const lease = await one.acquire('moved', { ttl: '5s' })
    const adopted = await other.adopt(lease.detach())
    expect(adopted.fence).toBe(lease.fence)
    const waiting = one.acquire('moved')
    await untilQueued(one, 'moved', 1)
    const from = performance.now()
    await until('its ttl has passed twice', () => performance.now() > from + 10_000)
    expect((await room(one, 'moved'))?.holders).toMatchObject([{ id: adopted.id, fence: adopted.fence }])
    adopted.assertHeld()
    await adopted.release()
    expect((await waiting).fence).toBeGreaterThan(adopted.fence)
  })

  test('is ended at the end of its minimum hold by the process that holds it, whoever releases it', async () => {
    const stores = [etcdStore({ endpoints: [server.url] }), etcdStore({ endpoints: [server.url] })] as const
    const holder = ticket({ key: 'least', minHoldMs: 700 })
    for (const isWatched of [false, true]) {
      const mine = { ...holder, id: crypto.randomUUID() }
      const next = ticket({ key: 'least' })
      const from = performance.now()
      fenceOf(await stores[0].acquire(mine))
      if (isWatched) expect(await stores[0].acquire(next)).toMatchObject({ tag: 'queued' })
      expect(await stores[1].release(releaseOf(mine))).toEqual({ was: 'held' })
      await until('it is free', async () => (await stores[1].acquire(next)).tag === 'held')
      expect(performance.now() - from).toBeGreaterThan(650)
      await stores[1].release(releaseOf(next))
    }
    await Promise.all(stores.map((store) => store.close()))
  })
})

describe('200 waiters', () => {
  test('of two processes cost two requests for each hand-over, and are served in order', async () => {
    const locks = [locksAt(server.url), locksAt(server.url)] as const
    const first = await locks[0].acquire('crowd')
    const served: number[] = []
    const waiting: Promise<void>[] = []
    for (let index = 0; index < 200; index += 1) {
      waiting.push(
        (locks[index % 2] ?? locks[0]).withLock(
          'crowd',
          { wait: '2m', ttl: '60s' },
          () => void served.push(index),
        ),
      )
      if (index % 50 === 49) await untilQueued(locks[0], 'crowd', index + 1)
    }
    const before = (await server.requests())['Txn'] ?? 0
    const from = performance.now()
    await first.release()
    await Promise.all(waiting)
    const spent = ((await server.requests())['Txn'] ?? 0) - before
    const seconds = (performance.now() - from) / 1000
    expect(spent).toBeGreaterThanOrEqual(201)
    // Each release is one request, and so is each hand-over to the other process. The other requests ask whether a
    // waiter is still in the queue, now and then.
    expect(spent).toBeLessThan(2 * 201 * 1.2 + 4 * seconds)
    for (const start of [0, 1]) {
      const ofOne = served.filter((index) => index % 2 === start)
      expect(ofOne).toEqual([...ofOne].sort((one, other) => one - other))
    }
  })
})

interface Revision {
  readonly header: { readonly revision: string }
}
