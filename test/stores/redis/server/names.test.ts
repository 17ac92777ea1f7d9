import { Redis } from 'ioredis'
import { Redis as Redis6 } from 'ioredis6'
import { createClient as createClient6 } from 'redis6'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../../servers/redis-server.ts'
import { fenceOf, releaseOf, ticket } from '../../tickets.ts'
import { type Client, clients, newClient } from '../clients.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
beforeEach(() => server.command('FLUSHALL'))
afterAll(() => server.close())

const withKeyPrefix: Readonly<Record<string, (url: string) => Client>> = {
  'ioredis 5': (url) => new Redis(url, { lazyConnect: true, keyPrefix: 'app:' }),
  'ioredis 6': (url) => new Redis6(url, { lazyConnect: true, keyPrefix: 'app:' }),
  'redis 6': (url) => createClient6({ url, keyPrefix: 'app:' }),
}

describe.each(Object.entries(withKeyPrefix))('the key prefix of %s', (_, newClient) => {
  test('is in front of every key and channel, once', async () => {
    const store = redisStore(newClient(server.url))
    await store.listen?.(() => {})
    const [holder, waiter] = [ticket(), ticket()]
    await store.acquire(holder)
    await store.acquire(waiter)
    expect(await keys()).toEqual(['app:holdfast:fence', 'app:holdfast:{key}'])
    expect(await server.command('PUBSUB', 'CHANNELS')).toEqual([
      expect.stringMatching(/^app:holdfast:inbox:[\w-]+$/),
    ])
    const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
    expect(rooms.map(({ key }) => key)).toEqual(['key'])
    await store.close()
  })
})

test('stores with the same names meet, whichever client they are made of', async () => {
  const stores = Object.values(clients).map((newClient) => redisStore(newClient(server.url)))
  const heard: string[] = []
  for (const store of stores) await store.listen?.((wake) => heard.push(wake.tag !== 'all' ? wake.id : 'all'))
  const tickets = stores.map(() => ticket())
  for (const [index, store] of stores.entries()) {
    const answer = await store.acquire(tickets[index] ?? ticket())
    expect(answer).toMatchObject(index === 0 ? { tag: 'held' } : { tag: 'queued', ahead: index - 1 })
  }
  for (const [index, store] of stores.entries()) {
    const mine = tickets[index] ?? ticket()
    fenceOf((await store.renew([mine]))[0])
    await store.release(releaseOf(mine))
  }
  expect(heard).toEqual(tickets.slice(1).map(({ id }) => id))
  for (const store of stores) await store.close()
})

test('stores with different prefixes do not see each other', async () => {
  const [one, other] = ['one:', 'other:'].map((prefix) => redisStore(newClient(server.url), { prefix }))
  fenceOf(await one?.acquire(ticket()))
  fenceOf(await other?.acquire(ticket()))
  expect(await keys()).toEqual(['one:fence', 'one:{key}', 'other:fence', 'other:{key}'])
  for (const store of [one, other]) {
    const page = await store?.inspect({ prefix: '', cursor: undefined, count: 10 })
    expect(page?.rooms).toHaveLength(1)
    await store?.close()
  }
})

test('an empty prefix, or one of braces and globs, is a prefix like any other', async () => {
  for (const prefix of ['', '{app}:', '*[a-z]?\\:', 'ünï:']) {
    await server.command('FLUSHALL')
    const store = redisStore(newClient(server.url), { prefix })
    const mine = ticket({ key: '}{*' })
    fenceOf(await store.acquire(mine))
    expect(await keys()).toEqual([`${prefix}fence`, `${prefix}{}{*}`].sort())
    for (const start of ['', '}', '}{', '}{*']) {
      const { rooms } = await store.inspect({ prefix: start, cursor: undefined, count: 10 })
      expect(rooms.map(({ key }) => key)).toEqual(['}{*'])
    }
    const { rooms } = await store.inspect({ prefix: '*', cursor: undefined, count: 10 })
    expect(rooms).toEqual([])
    await store.release(releaseOf(mine))
    await store.close()
  }
})

test('rooms among many keys of the application are listed page by page, each once', async () => {
  const application = Array.from({ length: 5000 }, (_, index) => [`application:${index}`, 'x'])
  await server.command('MSET', ...application.flat())
  const store = redisStore(newClient(server.url))
  const names = Array.from({ length: 50 }, (_, index) => `room:${index}`)
  await Promise.all(names.map((key) => store.acquire(ticket({ key }))))
  for (const count of [1, 7, 1000]) {
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const page = await store.inspect({ prefix: 'room:', cursor, count })
      expect(page.rooms.length).toBeLessThanOrEqual(count)
      seen.push(...page.rooms.map(({ key }) => key))
      cursor = page.next
    } while (cursor !== undefined)
    expect(seen.sort()).toEqual([...names].sort())
  }
  await store.close()
})

test.each([
  ['nothing', undefined, {}, /Expected `client` to be .*ioredis.*redis, got undefined/],
  ['an object that is no client', {}, {}, /Expected `client` to be .*, got an object/],
  ['a prefix that is no text', newClient('redis://127.0.0.1:1'), { prefix: 7 }, /Expected `prefix` .* got 7/],
  [
    'an option that there is not',
    newClient('redis://127.0.0.1:1'),
    { prefx: 'a' },
    /to be among `prefix`, .*, got `prefx`/,
  ],
])('%s is refused in one sentence', (_, client, options, message) => {
  expect(() => redisStore(client as never, options as never)).toThrow(message as RegExp)
})

async function keys(): Promise<string[]> {
  return ((await server.command('KEYS', '*')) as string[]).sort()
}
