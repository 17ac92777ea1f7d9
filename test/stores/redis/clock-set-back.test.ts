import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Ticket } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { clockClient } from './clock-client.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

test('fences rise on every way they are given, however far the clock of the server is set back', async () => {
  const client = clockClient(server.url)
  const store = redisStore(client)
  const startMs = Date.now()
  let last = 0n
  const note = (fences: readonly bigint[]): void => {
    for (const fence of fences) {
      expect(fence).toBeGreaterThan(last)
      last = fence
    }
  }
  for (const backMs of [0, 0, 3_600_000, 3_600_000, 7_200_000, 0]) {
    await client.setTime(startMs - backMs)
    // Fences come on several ways: to a lone ticket, to several tickets of one tick, by a hand-over, to several holders
    // at once, and by an eviction.
    const [alone, next, end] = [ticket(), ticket(), ticket()]
    const readers = [1, 2, 3].map(() => ticket({ limit: 9 }))
    note([fenceOf(await store.acquire(alone))])
    for (const each of [next, ...readers, end]) await store.acquire(each)
    const others: Ticket[] = [1, 2].map((other) => ticket({ key: `other:${other}` }))
    note((await Promise.all(others.map((each) => store.acquire(each)))).map(fenceOf))
    await store.release(releaseOf(alone))
    note([fenceOf((await store.renew([next]))[0])])
    await store.release(releaseOf(next))
    note((await store.renew(readers)).map(fenceOf))
    for (const { key, id } of readers) await store.evict({ key, id, reason: 'stuck' })
    note([fenceOf(await store.acquire(end))])
    for (const each of [end, ...others]) await store.release(releaseOf(each))
    // The server has used up only the fences that it gave.
    expect(await server.command('GET', 'holdfast:fence')).toBe(String(last))
  }
  await store.close()
})
