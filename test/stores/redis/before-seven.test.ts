import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type IoredisClient, redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { followsTheLaw } from '../law-comparison.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { withScripts } from './clock-client.ts'
import { soundRooms } from './sound-rooms.ts'

// Redis 6.2 has no PEXPIRETIME, and no GT for PEXPIRE. It tells a script no version.

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

/** A client that makes a server look like Redis 6.2, to the scripts and to the store. */
function oldClient(url: string, change = (text: string) => text): IoredisClient & { call: unknown } {
  return {
    status: 'wait',
    options: {},
    duplicate: (override) => {
      const redis = new Redis(url, { ...override })
      const connection = withScripts(redis, (text) =>
        change(text.replaceAll('redis.REDIS_VERSION_NUM', 'nil')),
      )
      return {
        ...connection,
        call: (command, args) =>
          command === 'PEXPIRETIME'
            ? Promise.reject(new Error("ERR unknown command 'PEXPIRETIME'"))
            : connection.call(command, args),
      }
    },
    call: () => undefined,
  }
}

test('Redis 6.2 follows the law step by step', async () => {
  const store = soundRooms(redisStore(oldClient(server.url)), server.url, Date.now)
  await followsTheLaw({ store, grants: true, histories: 150 })
  await store.close()
}, 600_000)

test('on Redis 6.2 a renewal makes a lease last longer, and never shorter', async () => {
  const store = redisStore(oldClient(server.url))
  const mine = ticket({ key: 'lone', ttlMs: 20_000 })
  const fence = fenceOf(await store.acquire(mine))
  const left = async (): Promise<number> => Number(await server.command('PTTL', 'holdfast:{lone}'))
  await server.command('CONFIG', 'RESETSTAT')
  for (const [ttlMs, leastMs, mostMs] of [
    [60_000, 50_000, 60_000],
    [10_000, 50_000, 60_000],
    [80_000, 70_000, 80_000],
  ] as const) {
    expect(await store.renew([{ ...mine, ttlMs }])).toEqual([{ tag: 'held', fence }])
    const leftMs = await left()
    expect(leftMs).toBeGreaterThan(leastMs)
    expect(leftMs).toBeLessThanOrEqual(mostMs)
  }
  expect(await server.commandStats()).not.toHaveProperty('pexpiretime')
  expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
  await store.close()
})

test('on Redis 6.2 no lease ends early, even if a script asks for the expiry late', async () => {
  const slow = (text: string): string => text.replace('left, at = redis', 'left, at = pause() or redis')
  const store = redisStore(oldClient(server.url, (text) => PAUSE + slow(text)))
  const [holder, waiter] = [ticket({ key: 'slow' }), ticket({ key: 'slow' })]
  fenceOf(await store.acquire(holder))
  const until = Number(await server.command('PEXPIRETIME', 'holdfast:{slow}'))
  expect((await store.acquire(waiter)).tag).toBe('queued')
  const [, entry] = (await server.command('ZRANGE', 'holdfast:{slow}', '0', '1')) as string[]
  expect(Number(entry?.slice(1, 14))).toBeGreaterThanOrEqual(until)
  for (const each of [waiter, holder]) await store.release(releaseOf(each))
  await store.close()
})

/** Lasts for 30 ms. */
const PAUSE = `
local function pause()
  local function micros() local at = redis.call('TIME'); return at[1] * 1000000 + at[2] end
  local from = micros()
  while micros() < from + 30000 do end
end
`

test('on Redis 6.2 a user that may only read sees who holds, and for how long', async () => {
  const [store, reader] = [
    redisStore(oldClient(server.url)),
    redisStore(oldClient(server.url), { readOnly: true }),
  ]
  const [lone, holder, waiter] = [ticket({ key: 'lone' }), ticket({ key: 'queue' }), ticket({ key: 'queue' })]
  for (const each of [lone, holder, waiter]) await store.acquire(each)
  for (const each of [store, reader]) {
    const pages = await Promise.all(
      ['lone', 'queue'].map((prefix) => each.inspect({ prefix, exact: true, cursor: undefined, count: 1 })),
    )
    const rooms = pages.flatMap((page) => page.rooms)
    expect(rooms.map(({ key, queue }) => [key, queue.map(({ id }) => id)])).toEqual([
      ['lone', []],
      ['queue', [waiter.id]],
    ])
    for (const { holders } of rooms) {
      expect(holders[0]?.remainingMs).toBeGreaterThan(lone.ttlMs - 10_000)
      expect(holders[0]?.remainingMs).toBeLessThanOrEqual(lone.ttlMs + 1)
      expect(holders[0]?.heldMs).toBeGreaterThanOrEqual(0)
      expect(holders[0]?.heldMs).toBeLessThan(10_000)
    }
  }
  for (const each of [lone, waiter, holder]) await store.release(releaseOf(each))
  await Promise.all([store.close(), reader.close()])
})
