import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { newClient } from './clients.ts'

describe('a server that keeps its data through a restart', () => {
  test('keeps holders with their fence, and waiters in their order', async () => {
    await using server = await startRedis({ appendOnly: true })
    const store = redisStore(newClient(server.url))
    const [holder, first, second] = [ticket(), ticket(), ticket()]
    const fence = fenceOf(await store.acquire(holder))
    for (const waiter of [first, second]) await store.acquire(waiter)
    const lone = ticket({ key: 'lone' })
    const loneFence = fenceOf(await store.acquire(lone))
    await server.kill()
    await server.restart()
    const renewed = await backAgain(() => store.renew([holder, first, second, lone]))
    expect(renewed).toMatchObject([
      { tag: 'held', fence },
      { tag: 'queued' },
      { tag: 'queued' },
      { tag: 'held', fence: loneFence },
    ])
    await store.release(releaseOf(holder))
    expect(await store.acquire(second)).toMatchObject({ tag: 'queued', ahead: 0 })
    expect(fenceOf(await store.acquire(first)) > fence).toBe(true)
    await store.close()
  })
})

test('the process that renewed a lease last hears of its eviction, and no other process', async () => {
  await using server = await startRedis()
  const stores = [redisStore(newClient(server.url)), redisStore(newClient(server.url))] as const
  const heard: string[] = []
  for (const [index, store] of stores.entries())
    await store.listen?.((wake) => wake.tag !== 'all' && heard.push(`${index} ${wake.id}`))
  const [mine, marker] = [ticket(), ticket({ key: 'marker' })]
  fenceOf(await stores[0].acquire(mine))
  fenceOf(await stores[0].acquire(marker))
  // As after `adopt`.
  fenceOf((await stores[1].renew([mine]))[0])
  for (const { key } of [mine, marker]) await stores[1].evict({ key, id: undefined, reason: 'stuck' })
  await until('both are heard', () => heard.length >= 2)
  expect(heard.sort()).toEqual([`0 ${marker.id}`, `1 ${mine.id}`])
  for (const store of stores) await store.close()
})

describe('a server that forgets', () => {
  test('everything in a restart tells that to the holder, and gives larger fences', async () => {
    await using server = await startRedis()
    const store = redisStore(newClient(server.url))
    const [mine, other] = [ticket(), ticket()]
    const fence = fenceOf(await store.acquire(mine))
    await server.kill()
    await server.restart()
    expect(await backAgain(() => store.renew([mine]))).toEqual([{ tag: 'gone', evicted: false }])
    expect(fenceOf(await store.acquire(other)) > fence).toBe(true)
    await store.close()
  })

  test('everything in a FLUSHALL tells that to the holder, and gives larger fences', async () => {
    await using server = await startRedis()
    const store = redisStore(newClient(server.url))
    const [mine, waiter, other] = [ticket(), ticket(), ticket()]
    const fence = fenceOf(await store.acquire(mine))
    await store.acquire(waiter)
    await server.command('FLUSHALL')
    const gone = { tag: 'gone', evicted: false }
    expect(await store.renew([mine, waiter])).toEqual([gone, gone])
    expect(fenceOf(await store.acquire(other)) > fence).toBe(true)
    expect(await store.acquire(waiter)).toMatchObject({ tag: 'queued', ahead: 0 })
    expect(await store.release(releaseOf(mine))).toEqual({ was: 'unknown' })
    await store.close()
  })
})

describe('a server that evicts one single key of a room', () => {
  let server: RedisServer
  let store: Store
  beforeAll(async () => {
    server = await startRedis()
    store = redisStore(newClient(server.url))
  })
  beforeEach(() => server.command('FLUSHALL'))
  afterAll(async () => {
    await store.close()
    await server.close()
  })

  const rooms: Readonly<Record<string, (tickets: readonly Ticket[]) => Promise<void>>> = {
    'with a lone holder': async ([holder]) => {
      await store.acquire(holder as Ticket)
    },
    'with a holder and a queue': async (tickets) => {
      for (const each of tickets) await store.acquire(each)
    },
    'with readers and a writer behind them': async ([first, second, writer]) => {
      for (const reader of [first, second]) await store.acquire({ ...(reader as Ticket), limit: UNLIMITED })
      await store.acquire(writer as Ticket)
    },
    'that was offered to somebody': async ([first, ...rest]) => {
      for (const each of [first, ...rest]) await store.acquire(each as Ticket)
      await store.release(releaseOf(first as Ticket))
    },
    'with nothing but a tombstone': async ([first]) => {
      await store.release({ key: (first as Ticket).key, id: (first as Ticket).id, cancel: true })
    },
  }

  test.each(Object.entries(rooms))(
    '%s answers every call, and no earlier ticket passes a later holder',
    async (_, fill) => {
      await fill([ticket(), ticket(), ticket()])
      const keys = (await server.command('KEYS', '*')) as string[]
      for (const lost of keys) {
        await server.command('FLUSHALL')
        const tickets = [ticket(), ticket(), ticket()]
        await fill(tickets)
        expect(await server.command('DEL', lost)).toBe(1)
        const before = (await store.renew(tickets)).flatMap((answer) =>
          answer.tag === 'held' ? [answer.fence] : [],
        )
        for (const each of tickets) await store.acquire(each)
        // Every present holder was told its fence. A ticket that was told one before, and holds no more, has a lower
        // fence.
        const after = (await holdersOf(store)).map(({ fence }) => fence)
        for (const fence of after)
          for (const old of before) expect(after.includes(old) || fence > old).toBe(true)
        const limits = (await holdersOf(store)).map(({ limit }) => limit)
        expect(limits.length).toBeLessThanOrEqual(Math.min(...limits))
        await store.evict({ key: 'key', id: undefined, reason: 'the end' })
        expect((await store.inspect({ prefix: '', cursor: undefined, count: 10 })).rooms).toEqual([])
      }
      expect(keys.length).toBeGreaterThan(0)
    },
  )

  test('which is the last fence still gives larger ones', async () => {
    const first = ticket()
    const fence = fenceOf(await store.acquire(first))
    await store.release(releaseOf(first))
    expect(await server.command('DEL', 'holdfast:fence')).toBe(1)
    expect(fenceOf(await store.acquire(ticket())) > fence).toBe(true)
  })

  test('and whose clock is behind the last fence goes on from that fence', async () => {
    const ahead = BigInt(Date.now() + 3_600_000) * 1000n
    await server.command('SET', 'holdfast:fence', String(ahead))
    const fences = []
    for (let round = 0; round < 3; round += 1) {
      const mine = ticket()
      fences.push(fenceOf(await store.acquire(mine)))
      await store.release(releaseOf(mine))
    }
    expect(fences).toEqual([ahead + 1n, ahead + 2n, ahead + 3n])
  })
})

async function holdersOf(
  store: Store,
): Promise<readonly { readonly fence: bigint; readonly limit: number }[]> {
  const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
  return rooms.flatMap((room) => room.holders)
}

/** Asks until the server is back. */
function backAgain<T>(ask: () => T | Promise<T>): Promise<T> {
  return until('the store answers again', async () => {
    try {
      return await ask()
    } catch {
      return undefined
    }
  }) as Promise<T>
}
