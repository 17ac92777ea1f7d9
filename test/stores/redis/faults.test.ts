import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Store, Wake } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { clients } from './clients.ts'

describe.each(Object.entries(clients))('through %s', (_, newClient) => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.close())

  test('an acquire whose reply was lost, sent again, is one holder under one fence', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
    const [warm, mine] = [ticket({ key: 'warm' }), ticket({ key: 'lost reply' })]
    await store.acquire(warm)
    const lost = proxy.loseNextReply(mine.id)
    await expect(store.acquire(mine)).rejects.toMatchObject({ code: 'store-unavailable', key: mine.key })
    await lost
    const granted = await onlyHolder(store, mine.key)
    expect(fenceOf(await store.acquire(mine))).toBe(granted.fence)
    expect(await onlyHolder(store, mine.key)).toMatchObject({ id: mine.id, fence: granted.fence })
    for (const held of [warm, mine]) await store.release(releaseOf(held))
    await store.close()
  })

  test('scripts that are flushed while they are in use are loaded again, and no call fails', async () => {
    const store = redisStore(newClient(server.url))
    let fence = 0n
    for (let round = 0; round < 100; round += 1) {
      const mine = ticket({ key: 'flushed' })
      if (round % 3 === 0) await server.command('SCRIPT', 'FLUSH')
      const taken = fenceOf(await store.acquire(mine))
      expect(taken > fence).toBe(true)
      fence = taken
      if (round % 5 === 0) await server.command('SCRIPT', 'FLUSH')
      expect(await store.renew([mine])).toEqual([{ tag: 'held', fence }])
      expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
    }
    await store.close()
  })

  test('a server that is away fails requests soon, and the store finds it again by itself', async () => {
    await using mortal = await startRedis()
    const store = redisStore(newClient(mortal.url))
    const mine = ticket()
    const fence = fenceOf(await store.acquire(mine))
    await mortal.kill()
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const requests = [store.acquire(ticket()), store.renew([mine]), store.release(releaseOf(ticket()))]
      for (const outcome of await Promise.allSettled(requests))
        expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'store-unavailable' } })
    }
    await mortal.restart()
    const answers = await until('the store answers again', () => settled(store.renew([mine])))
    expect(answers).toEqual([{ tag: 'gone', evicted: false }])
    expect(fenceOf(await store.acquire(mine)) > fence).toBe(true)
    await store.close()
  })

  test('wakes flow again after the connection was lost, and then the store asks for everything again', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
    const wakes: Wake[] = []
    await store.listen?.((wake) => wakes.push(wake))
    const [holder, head] = [ticket({ key: 'wakes' }), ticket({ key: 'wakes' })]
    await store.acquire(holder)
    await store.acquire(head)
    proxy.cut()
    await until('it was told to ask again', () => wakes.length > 0)
    expect(wakes).toEqual([{ tag: 'all' }])
    const other = redisStore(newClient(server.url))
    await other.release(releaseOf(holder))
    await until('the wake has come', () => wakes.length > 1)
    expect(wakes).toMatchObject([{ tag: 'all' }, { tag: 'granted', id: head.id }])
    await other.release(releaseOf(head))
    for (const view of [store, other]) await view.close()
  })

  test('a connection that stays silent is replaced, and its open requests are rejected', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
    const mine = ticket({ key: 'silent' })
    await store.acquire(mine)
    proxy.dropReplies()
    let owed: unknown
    void outcome(store.renew([mine])).then((error) => {
      owed = error
    })
    await until(
      'the silence has been noticed',
      () => {
        if (owed === undefined) void outcome(store.renew([mine]))
        return owed
      },
      { everyMs: 250 },
    )
    expect(owed).toMatchObject({ code: 'store-unavailable' })
    proxy.normal()
    const answers = await until('the store answers again', () => settled(store.renew([mine])))
    expect(answers).toMatchObject([{ tag: 'held' }])
    await store.release(releaseOf(mine))
    await store.close()
  })

  test('a store that was closed refuses, and its process has nothing left to wait for', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
    await store.listen?.(() => {})
    await store.inspect({ prefix: '', cursor: undefined, count: 1 })
    expect(proxy.connections).toBe(2)
    await store.close()
    await until('its connections are gone', () => proxy.connections === 0)
    await expect(store.acquire(ticket())).rejects.toMatchObject({ code: 'store-refused' })
    await expect(store.listen?.(() => {})).rejects.toMatchObject({ code: 'store-refused' })
    expect(proxy.connections).toBe(0)
  })
})

/** The answer, or undefined if it rejects. */
async function settled<T>(answer: T | Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch {
    return undefined
  }
}

/** The error of the rejection, or undefined. */
async function outcome(answer: unknown): Promise<unknown> {
  try {
    await answer
    return undefined
  } catch (error) {
    return error
  }
}

async function onlyHolder(
  store: Store,
  key: string,
): Promise<{ readonly id: string; readonly fence: bigint }> {
  const { rooms } = await store.inspect({ prefix: key, cursor: undefined, count: 10 })
  const holders = rooms.flatMap((room) => room.holders)
  expect(holders).toHaveLength(1)
  return holders[0] as (typeof holders)[number]
}
