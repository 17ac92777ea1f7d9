import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { base64, type EtcdServer, startEtcd } from '../../servers/etcd-server.ts'
import { until } from '../../servers/until.ts'
import { passed } from './passed.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

let server: EtcdServer
let store: Store
beforeAll(async () => {
  server = await startEtcd()
  store = etcdStore({ endpoints: [server.url] })
  // The requests for the lease and for the beginning of fences are done before the test counts.
  const first = ticket()
  fenceOf(await store.acquire(first))
  await store.release(releaseOf(first))
})
afterAll(async () => {
  await store.close()
  await server.close()
})

/** The requests other than keep-alives, whose number does not depend on the work. */
async function spent(work: () => Promise<void>): Promise<Record<string, number>> {
  const before = await server.requests()
  await work()
  const after = Object.entries(await server.requests())
  const kinds = after.filter(([method]) => method !== 'LeaseKeepAlive' && method !== 'Status')
  return Object.fromEntries(
    kinds.flatMap(([method, count]) => {
      const more = count - (before[method] ?? 0)
      return more === 0 ? [] : [[method, more]]
    }),
  )
}

test('a free key costs one transaction to take and one to give back, whether one waits or not', async () => {
  const cost = await spent(async () => {
    for (let round = 0; round < 20; round += 1) {
      const mine = ticket({ patienceMs: round % 2 === 0 ? 0 : 6000 })
      fenceOf(await store.acquire(mine))
      await store.release(releaseOf(mine))
    }
  })
  expect(cost).toEqual({ Txn: 40 })
})

test('all tickets of a process are keys of their own under one lease, and a fence is the revision that made the key', async () => {
  const tickets = Array.from({ length: 50 }, () => ticket())
  const fences = new Map<string, bigint>()
  for (const one of tickets) fences.set(one.id, fenceOf(await store.acquire(one)))
  const range = async (key: string, end = '') => {
    const asked = { key: base64(key), ...(end === '' ? {} : { range_end: base64(end) }) }
    return ((await server.call('/v3/kv/range', asked)) as { kvs?: readonly KeyValue[] }).kvs ?? []
  }
  const kept = await range('holdfast/tickets/', 'holdfast/tickets0')
  const [meta] = await range('holdfast/meta')
  const [, from = ''] = Buffer.from(meta?.value ?? '', 'base64')
    .toString()
    .split(' ')
  const told = kept.map(({ key, create_revision }) => {
    const [, id = ''] = Buffer.from(key, 'base64').toString().split(' ')
    return [id, BigInt(from) + BigInt(create_revision)] as const
  })
  expect(new Map(told)).toEqual(fences)
  expect(new Set(kept.map(({ lease }) => lease)).size).toBe(1)
  expect(kept[0]?.lease).toMatch(/^\d+$/)
  await Promise.all(tickets.map((one) => store.release(releaseOf(one))))
})

test('a minimum hold costs two transactions and a lease, and its holder still holds when it is over', async () => {
  const mine = ticket({ minHoldMs: 100 })
  let fence = 0n
  const before = (await server.requests())['Txn'] ?? 0
  const cost = await spent(async () => {
    fence = fenceOf(await store.acquire(mine))
    await until('its minimum hold is over', async () => ((await server.requests())['Txn'] ?? 0) >= before + 3)
    await passed(500)
  })
  expect(cost).toEqual({ Txn: 3, LeaseGrant: 1 })
  expect(await store.acquire(ticket({ key: mine.key, patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
  expect(await store.renew([mine])).toEqual([{ tag: 'held', fence }])
  await store.release(releaseOf(mine))
})

test('several free keys cost one transaction to take, and have one fence', async () => {
  const tickets = Array.from({ length: 100 }, () => ticket({ patienceMs: 0 }))
  const fences: bigint[] = []
  const cost = await spent(async () => {
    fences.push(...((await store.acquireAll?.(tickets)) ?? []))
  })
  expect(cost).toEqual({ Txn: 1 })
  expect(fences).toHaveLength(tickets.length)
  expect(new Set(fences).size).toBe(1)
  for (const one of tickets) {
    expect(await store.acquire(ticket({ key: one.key, patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
    await store.release(releaseOf(one))
  }
})

test('of several keys none is taken where somebody is at one of them, or where they are too many for a transaction', async () => {
  const held = ticket()
  fenceOf(await store.acquire(held))
  const others = [
    ticket({ patienceMs: 0 }),
    ticket({ key: held.key, patienceMs: 0 }),
    ticket({ patienceMs: 0 }),
  ]
  const cost = await spent(async () => {
    expect(await store.acquireAll?.(others)).toBeUndefined()
    expect(
      await store.acquireAll?.(Array.from({ length: 101 }, () => ticket({ patienceMs: 0 }))),
    ).toBeUndefined()
  })
  expect(cost).toEqual({ Txn: 1 })
  const { rooms } = await store.inspect({ prefix: 'test:', cursor: undefined, count: 10 })
  expect(rooms.map(({ key }) => key)).toEqual([held.key])
  await store.release(releaseOf(held))
})

test('a key that is taken costs one transaction to whoever does not wait', async () => {
  const [mine, other] = [ticket({ key: 'taken' }), ticket({ key: 'taken', patienceMs: 0 })]
  fenceOf(await store.acquire(mine))
  expect(await spent(async () => void (await store.acquire(other)))).toEqual({ Txn: 1 })
  await store.release(releaseOf(mine))
})

test('renewing costs one read for each hundred leases, and says of each that it is held', async () => {
  const tickets = Array.from({ length: 250 }, () => ticket())
  await Promise.all(tickets.map((one) => store.acquire(one)))
  const cost = await spent(async () => {
    for (const answer of await store.renew(tickets)) fenceOf(answer)
  })
  expect(cost).toEqual({ Txn: 3 })
  await Promise.all(tickets.map((one) => store.release(releaseOf(one))))
})

test('all who wait for a key in one process cost one small request when they say that they still wait', async () => {
  const holder = ticket({ key: 'queue' })
  fenceOf(await store.acquire(holder))
  const waiters = Array.from({ length: 50 }, () => ticket({ key: 'queue' }))
  for (const waiter of waiters) await store.acquire(waiter)
  const cost = await spent(async () => {
    const answers = await store.renew(waiters)
    expect(answers.every(({ tag }) => tag === 'queued')).toBe(true)
  })
  expect(cost).toEqual({ Txn: 1 })
  await Promise.all([holder, ...waiters].map((one) => store.release(releaseOf(one))))
})

test('a hand-over within a process costs the release and nothing else: the one who is woken has the key by then', async () => {
  const woken = new Map<string, () => void>()
  await store.listen?.((wake) => wake.tag === 'ticket' && woken.get(wake.id)?.())
  const queue = Array.from({ length: 20 }, () => ticket({ key: 'hand-over' }))
  const wakes = queue.map(({ id }) => new Promise<void>((wake) => woken.set(id, wake)))
  for (const waiter of queue) await store.acquire(waiter)
  const fences: bigint[] = []
  const cost = await spent(async () => {
    await store.release(releaseOf(queue[0] as Ticket))
    for (const [index, waiter] of queue.entries()) {
      if (index === 0) continue
      await wakes[index]
      fences.push(fenceOf((await store.renew([waiter]))[0]))
      await store.release(releaseOf(waiter))
    }
  })
  expect(cost).toEqual({ Txn: queue.length })
  expect(fences).toEqual([...fences].sort((one, other) => (one < other ? -1 : 1)))
})

test('a ticket that is asked for ten times before its turn to be written comes costs no more than one', async () => {
  const fresh = etcdStore({ endpoints: [server.url] })
  const costs: Record<string, number>[] = []
  for (const times of [1, 10]) {
    const key = `asked ${times} times`
    const [holder, first, again] = [ticket({ key }), ticket({ key }), ticket({ key })]
    fenceOf(await fresh.acquire(holder))
    costs.push(
      await spent(async () => {
        const asked = [first, ...Array.from({ length: times }, () => again)]
        for (const answer of await Promise.all(asked.map((one) => fresh.acquire(one))))
          expect(answer).toMatchObject({ tag: 'queued' })
      }),
    )
    for (const one of [again, first, holder]) await fresh.release(releaseOf(one))
  }
  expect(costs[1]?.['Txn']).toBe(costs[0]?.['Txn'])
  await fresh.close()
})

test('a hand-over to another process costs the release, and one transaction of the one who has the key then', async () => {
  const other = etcdStore({ endpoints: [server.url] })
  const woken = new Map<string, () => void>()
  for (const one of [store, other])
    await one.listen?.((wake) => wake.tag === 'ticket' && woken.get(wake.id)?.())
  const queue = Array.from({ length: 20 }, () => ticket({ key: 'to-another' }))
  const storeOf = (index: number) => (index % 2 === 0 ? store : other)
  const wakes = queue.map(({ id }) => new Promise<void>((wake) => woken.set(id, wake)))
  for (const [index, waiter] of queue.entries()) await storeOf(index).acquire(waiter)
  const cost = await spent(async () => {
    await store.release(releaseOf(queue[0] as Ticket))
    for (const [index, waiter] of queue.entries()) {
      if (index === 0) continue
      await wakes[index]
      fenceOf((await storeOf(index).renew([waiter]))[0])
      await storeOf(index).release(releaseOf(waiter))
    }
  })
  expect(cost).toEqual({ Txn: 2 * queue.length - 1 })
  await other.close()
})

interface KeyValue {
  readonly key: string
  readonly value: string
  readonly lease?: string
  readonly create_revision: string
}
