import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { shortestMs } from '../../base/measured.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

test.each([
  ['a text that begins like a room', (redis: Redis, key: string) => redis.set(key, '2 apples')],
  ['a sorted set that begins like a room', (redis: Redis, key: string) => redis.zadd(key, 0, '2 x')],
  [
    'a lone holder that is cut off',
    (redis: Redis, key: string) => redis.set(key, '2 tfoo\x0012 apples', 'PX', 60_000),
  ],
  [
    'a lone holder without a fence',
    (redis: Redis, key: string) => redis.set(key, '2 tfoo\0apples', 'PX', 60_000),
  ],
  [
    'a lone holder with facts of another form',
    (redis: Redis, key: string) => redis.set(key, '2 tfoo\x0012 12 garbage', 'PX', 60_000),
  ],
] as const)(
  '%s fails its own call, and neither its neighbours in the same tick nor the fences',
  async (_what, spoil) => {
    const redis = new Redis({ port: server.port, host: '127.0.0.1' })
    const locks = createLocks(redisStore(redis))
    await spoil(redis, 'holdfast:{bad}')
    // The last fence is ahead of the server's time, as after a clock that was set back.
    const ahead = `${(Date.now() + 3_600_000) * 1000}`
    await redis.set('holdfast:fence', ahead)
    const calls = ['one', 'bad', 'two'].map((key) => locks.tryAcquire(key))
    const [one, bad, two] = await Promise.allSettled(calls)
    expect(bad).toMatchObject({ reason: { code: 'store-refused', message: /used by something else/ } })
    await expect(locks.evictAll('bad', { reason: 'stuck' })).rejects.toMatchObject({
      code: 'store-refused',
      message: /used by something else/,
    })
    await expect(locks.peek('bad')).rejects.toMatchObject({
      code: 'store-refused',
      message: /used by something else/,
    })
    const seen: string[] = []
    for await (const { key } of locks.inspect()) seen.push(key)
    expect(seen.sort()).toEqual(['one', 'two'])
    for (const neighbour of [one, two]) {
      if (neighbour?.status !== 'fulfilled' || neighbour.value === null)
        throw new Error('a neighbour was refused')
      expect(neighbour.value.fence).toBeGreaterThan(BigInt(ahead))
      await neighbour.value.release()
    }
    expect(BigInt((await redis.get('holdfast:fence')) ?? 0)).toBeGreaterThan(BigInt(ahead))
    // What is refused stays as it is.
    expect(await redis.del('holdfast:{bad}')).toBe(1)
    expect((await redis.keys('*')).sort()).toEqual(['holdfast:fence'])
    await locks.close()
    redis.disconnect()
  },
)

test.each([false, true])(
  'a key that cannot be read is not shown as free, read only: %s',
  async (readOnly) => {
    const redis = new Redis({ port: server.port, host: '127.0.0.1' })
    const locks = createLocks(redisStore(redis, { readOnly }))
    const strange = {
      newer: () => redis.set('holdfast:{newer}', '3 tfoo\x0012 12 1 1 1000 0 0 inbox {}', 'PX', 60_000),
      queue: () => redis.zadd('holdfast:{queue}', 0, '3 1 1 1 1 0 1 1 1'),
      text: () => redis.set('holdfast:{text}', ''),
      hash: () => redis.hset('holdfast:{hash}', 'a', 'b'),
    }
    for (const [key, write] of Object.entries(strange)) {
      await write()
      const isNewer = key === 'newer' || key === 'queue'
      const refusal = {
        code: 'store-refused',
        message: isNewer ? /newer version of Holdfast \(layout 3\)/ : /used by something else/,
      }
      await expect(locks.peek(key)).rejects.toMatchObject(refusal)
      await expect(locks.waitUntilFree(key, { wait: 0 })).rejects.toMatchObject(refusal)
    }
    expect(await locks.peek('none')).toBeNull()
    const seen: string[] = []
    for await (const { key } of locks.inspect()) seen.push(key)
    expect(seen).toEqual([])
    await redis.flushall()
    await locks.close()
    redis.disconnect()
  },
)

test('a prefix with spaces carries wakes, too', async () => {
  const redis = new Redis({ port: server.port, host: '127.0.0.1', keyPrefix: 'my app: ' })
  const locks = createLocks(redisStore(redis, { prefix: 'all locks: ' }))
  const held = await locks.acquire('k')
  const waiting = locks.acquire('k')
  // The store begins to listen with the first wait.
  await until(
    'it listens',
    async () => Number(await redis.call('PUBSUB', 'NUMPAT')) + (await channels(redis)) > 0,
  )
  await held.release()
  await (await waiting).release()
  const handOver = async () => {
    const holder = await locks.acquire('k')
    const next = locks.acquire('k')
    const releasedAt = performance.now()
    await holder.release()
    await (await next).release()
    return performance.now() - releasedAt
  }
  // Without a wake the waiter would ask after about two seconds.
  expect(await shortestMs(1000, handOver)).toBeLessThan(1000)
  await locks.close()
  redis.disconnect()
})

async function channels(redis: Redis): Promise<number> {
  return ((await redis.call('PUBSUB', 'CHANNELS')) as string[]).length
}

test('a shared room from which a stranger has taken a holder keeps its expiry', async () => {
  const store = redisStore(new Redis(server.url))
  const [one, other] = [ticket({ limit: 5 }), ticket({ limit: 5 })]
  for (const each of [one, other]) fenceOf(await store.acquire(each))
  const members = (await server.command('ZRANGE', ROOM, '0', '-1')) as string[]
  await server.command('ZREM', ROOM, ...members.filter((member) => member.includes(other.id)))
  try {
    await store.release(releaseOf(one))
  } catch {}
  expect(Number(await server.command('PTTL', ROOM))).not.toBe(-1)
  await server.command('FLUSHALL')
  await store.close()
})

test('a shared room whose holder has no id is refused, and stays as it is', async () => {
  const store = redisStore(new Redis(server.url))
  const till = Date.now() + 60_000
  const summary = `2 1 1 5 1 0 ${till + 60_000} 0`
  const facts = '1 5 1000 0 0 inbox {}'
  await server.command(
    'ZADD',
    ROOM,
    '0',
    summary,
    '0',
    `e${till}\0h 1795755594151344 1795755594151344 0 ${facts}`,
  )
  const before = await server.command('ZRANGE', ROOM, '0', '-1')
  await expect(store.acquire(ticket({ limit: 5, ttlMs: 1000 }))).rejects.toMatchObject({
    code: 'store-refused',
  })
  expect(await server.command('ZRANGE', ROOM, '0', '-1')).toEqual(before)
  await server.command('FLUSHALL')
  await store.close()
})

const ROOM = 'holdfast:{key}'

test.each([
  ['come', 0],
  ['go', 20_000],
])('a listing misses no room while the keys of another program %s', async (_what, first) => {
  const redis = new Redis({ port: server.port, host: '127.0.0.1' })
  await redis.flushdb()
  const locks = createLocks(redisStore(redis))
  const keys = Array.from({ length: 33 }, (_, index) => `listed:${index}`)
  await Promise.all(keys.map((key) => locks.acquire(key)))
  await setForeignKeys(redis, { from: 0, to: first })
  const isShrunk = first > 0
  const seen: string[] = []
  for await (const { key } of locks.inspect({ prefix: 'listed:', pageSize: 1 })) {
    seen.push(key)
    if (seen.length !== 5) continue
    await setForeignKeys(redis, { from: first, to: 20_000 - first })
    // Redis makes its table of keys larger or smaller bit by bit. Only that of few keys is seen at one look.
    const seesAll = async (): Promise<boolean> => (await redis.scan(0, 'COUNT', 1000))[0] === '0'
    await until('the table of keys has its new size', async () => (await seesAll()) === isShrunk)
  }
  // SCAN itself may find a key twice while the table becomes smaller.
  const shown = isShrunk ? [...new Set(seen)] : seen
  expect(shown.sort()).toEqual(keys.sort())
  await locks.close()
})

test('a listing misses no room although the server is restarted in its middle', async () => {
  await using kept = await startRedis({ appendOnly: true })
  const redis = new Redis({ port: kept.port, host: '127.0.0.1' })
  await setForeignKeys(redis, { from: 0, to: 6000 })
  redis.disconnect()
  const locks = createLocks(redisStore(new Redis({ port: kept.port, host: '127.0.0.1' })))
  const keys = Array.from({ length: 60 }, (_, index) => `listed:${index}`)
  await Promise.all(keys.map((key) => locks.acquire(key, { ttl: '10m' })))
  const seen = new Set<string>()
  for await (const { key } of locks.inspect({ prefix: 'listed:', pageSize: 1 })) {
    seen.add(key)
    if (seen.size === 20) await kept.restart()
  }
  expect([...seen].sort()).toEqual(keys.sort())
  await locks.close()
})

/** Sets or deletes keys, so that there are `to` of them. */
async function setForeignKeys(redis: Redis, { from, to }: { from: number; to: number }): Promise<void> {
  const script = `for n = ARGV[1] + 1, ARGV[2] do redis.call('SET', 'theirs:' .. n, n) end
    for n = ARGV[2] + 1, ARGV[1] do redis.call('DEL', 'theirs:' .. n) end`
  await redis.eval(script, 0, from, to)
}
