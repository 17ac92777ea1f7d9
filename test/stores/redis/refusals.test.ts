import { once } from 'node:events'
import { createServer } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { clients, newClient } from './clients.ts'

describe.each(Object.entries(clients))('through %s', (_, newClient) => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis({ password: 'sesame' })
  })
  afterAll(() => server.close())

  test('the right password is all that a client needs', async () => {
    const store = redisStore(newClient(server.url))
    await store.listen?.(() => {})
    const mine = ticket()
    fenceOf(await store.acquire(mine))
    await store.release(releaseOf(mine))
    await store.close()
  })

  test.each([
    ['a wrong password', (url: string) => url.replace('sesame', 'sesami')],
    ['no password', (url: string) => url.replace(':sesame@', '')],
    ['a user that is not there', (url: string) => url.replace(':sesame', 'nobody:sesame')],
  ])('%s is refused at once, and appears in no message', async (_, change) => {
    const store = redisStore(newClient(change(server.url)))
    for (const call of [
      () => store.acquire(ticket()),
      () => store.listen?.(() => {}),
      () => store.renew([ticket()]),
    ]) {
      const error = await rejection(call())
      expect(error).toMatchObject({ code: 'store-refused', message: expect.stringContaining('credentials') })
      expect(everythingIn(error)).not.toMatch(/sesam|nobody/)
    }
    await store.close()
  })
})

describe('a server in protected mode', () => {
  const DENIED =
    '-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.'
  // The handshake of ioredis 6 takes "no password is set" for a harmless warning, and swallows the reply.
  const others = Object.entries(clients).filter(([name]) => name !== 'ioredis 6')

  test.each(others)('is refused in one sentence, through %s', async (_, newClient) => {
    const server = createServer((socket) => {
      socket.on('error', () => {})
      socket.end(`${DENIED} In this mode connections are only accepted from the loopback interface.\r\n`)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as { port: number }
    const store = redisStore(newClient(`redis://127.0.0.1:${port}`))
    expect(await rejection(store.acquire(ticket()))).toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('protected mode'),
      cause: { message: expect.stringContaining('DENIED') },
    })
    await store.close()
    server.close()
  })
})

describe('a read-only replica', () => {
  test('counts as unavailable for a moment, as in a fail-over, and is then refused', async () => {
    await using primary = await startRedis()
    await using replica = await startRedis({ replicaOf: primary })
    const store = redisStore(newClient(replica.url))
    expect(await rejection(store.acquire(ticket()))).toMatchObject({ code: 'store-unavailable' })
    const refused = await until('it is refused', async () => {
      const error = await rejection(store.acquire(ticket()))
      return (error as { code: string }).code === 'store-refused' ? error : undefined
    })
    expect(refused).toMatchObject({ message: expect.stringMatching(/read-only replica.*primary/) })
    expect((await store.inspect({ prefix: '', cursor: undefined, count: 1 })).rooms).toEqual([])
    await replica.command('REPLICAOF', 'NO', 'ONE')
    fenceOf(await store.acquire(ticket()))
    await store.close()
  })
})

describe('a server that is still loading', () => {
  test('is unavailable until it has loaded', async () => {
    const slowly = ['--key-load-delay', '5000', '--loading-process-events-interval-bytes', '1024']
    await using server = await startRedis({ args: [...slowly, '--rdbcompression', 'no'] })
    const store = redisStore(newClient(server.url))
    const mine = ticket()
    const fence = fenceOf(await store.acquire(mine))
    for (let index = 0; index < 1000; index += 1)
      await server.command('SET', `load:${index}`, 'x'.repeat(100))
    await server.command('SAVE')
    const restarted = server.restart()
    const error = await until('it loads', async () => {
      const failure = await rejection(store.renew([mine])).catch(() => undefined)
      return failure instanceof Error && failure.message.includes('loading') && failure
    })
    expect(error).toMatchObject({ code: 'store-unavailable' })
    await restarted
    const [answer] = await until('it has loaded', () => settled(store.renew([mine])))
    expect(answer).toEqual({ tag: 'held', fence })
    await store.close()
  })
})

describe('a server without memory', () => {
  test('grants nothing more, and keeps, moves and takes back what it has granted', async () => {
    await using server = await startRedis({ args: ['--maxmemory-policy', 'noeviction'] })
    const store = redisStore(newClient(server.url))
    const [lone, holder, waiter] = [ticket({ key: 'lone', ttlMs: 20_000 }), ticket(), ticket()]
    for (const each of [lone, holder, waiter]) await store.acquire(each)
    await server.command('CONFIG', 'SET', 'maxmemory', '1')
    expect(await rejection(store.acquire(ticket({ key: 'other' })))).toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('maxmemory'),
    })
    const answers = await store.renew([{ ...lone, ttlMs: 60_000 }, holder, waiter])
    expect(answers).toMatchObject([{ tag: 'held' }, { tag: 'held' }, { tag: 'queued' }])
    const { rooms } = await store.inspect({ prefix: 'lone', cursor: undefined, count: 1 })
    expect(rooms[0]?.holders[0]?.remainingMs).toBeGreaterThan(30_000)
    expect(Number(await server.command('PTTL', 'holdfast:{lone}'))).toBeGreaterThan(30_000)
    expect(await store.release(releaseOf(holder))).toEqual({ was: 'held' })
    expect(await store.renew([waiter])).toMatchObject([{ tag: 'held' }])
    for (const each of [lone, waiter]) expect(await store.release(releaseOf(each))).toEqual({ was: 'held' })
    await store.close()
  })
})

describe('a key that is used by something else', () => {
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

  test.each([
    ['a string', ['SET', 'holdfast:{key}', 'hello']],
    ['a number', ['SET', 'holdfast:{key}', '42']],
    ['a list', ['RPUSH', 'holdfast:{key}', '2 t']],
    ['a hash', ['HSET', 'holdfast:{key}', 'a', 'b']],
    ['a sorted set', ['ZADD', 'holdfast:{key}', '1', 'one']],
  ])('(%s) is refused, left as it is, and in no other key’s way', async (_, command) => {
    await server.command(...command)
    const before = await server.command('DUMP', 'holdfast:{key}')
    const [mine, other] = [ticket(), ticket({ key: 'other' })]
    const answers = await Promise.allSettled([store.acquire(mine), store.acquire(other)])
    expect(answers).toMatchObject([
      { reason: { code: 'store-refused', key: 'key', message: expect.stringContaining('prefix') } },
      { value: { tag: 'held' } },
    ])
    expect(await rejection(store.release(releaseOf(mine)))).toMatchObject({ code: 'store-refused' })
    expect(await rejection(store.evict({ key: 'key', id: undefined, reason: '' }))).toMatchObject({
      code: 'store-refused',
    })
    expect(await store.renew([mine, other])).toMatchObject([{ tag: 'gone' }, { tag: 'held' }])
    const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
    expect(rooms.map(({ key }) => key)).toEqual(['other'])
    expect(await server.command('DUMP', 'holdfast:{key}')).toEqual(before)
  })

  test('and is a lone holder without an expiry: nobody else gets it until its release, and its neighbour is renewed', async () => {
    const [mine, other] = [ticket(), ticket({ key: 'other' })]
    for (const each of [mine, other]) fenceOf(await store.acquire(each))
    const holder = await server.command('GET', 'holdfast:{key}')
    await server.command('PERSIST', 'holdfast:{key}')
    expect(await store.renew([mine, other])).toMatchObject([{ tag: 'gone' }, { tag: 'held' }])
    expect(await store.renew([mine])).toMatchObject([{ tag: 'gone' }])
    expect(await rejection(store.acquire(ticket()))).toMatchObject({ code: 'store-refused' })
    const { rooms } = await store.inspect({ prefix: 'key', cursor: undefined, count: 1 })
    expect(rooms).toEqual([])
    expect(await server.command('GET', 'holdfast:{key}')).toBe(holder)
    expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
    expect((await store.acquire(ticket())).tag).toBe('held')
  })

  test('and is a lone holder in an earlier form: it is refused and left as it is', async () => {
    const mine = ticket()
    const other = `2 t${mine.id}\0h 1700000000000000 1700000000000000 9999999999999 0 1 1 1 0 0 inbox {}`
    await server.command('SET', 'holdfast:{key}', other, 'PX', '30000')
    expect(await store.renew([mine])).toMatchObject([{ tag: 'gone' }])
    expect(await rejection(store.acquire(mine))).toMatchObject({ code: 'store-refused' })
    expect(await server.command('GET', 'holdfast:{key}')).toBe(other)
  })

  test.each(['1', '3'])(
    'and was a lone holder of layout 2 before (now %s) does not renew the lease',
    async (layout) => {
      const mine = ticket()
      fenceOf(await store.acquire(mine))
      const holder = String(await server.command('GET', 'holdfast:{key}'))
      const other = `${layout}${holder.slice(1)}`
      await server.command('SET', 'holdfast:{key}', other, 'PX', '60000')
      expect(await store.renew([{ ...mine, ttlMs: 2 * mine.ttlMs }])).toMatchObject([{ tag: 'gone' }])
      expect(await server.command('GET', 'holdfast:{key}')).toBe(other)
    },
  )

  test('and is held by an id that begins with that of the caller is not renewed', async () => {
    const ids = Array.from({ length: 40 }, (_, more) => 'a'.repeat(2 + more))
    const holders = ids.map((id) => ticket({ key: id, id }))
    for (const each of holders) fenceOf(await store.acquire(each))
    const answers = await store.renew(holders.map((each) => ({ ...each, id: 'a', ttlMs: 2 * each.ttlMs })))
    expect(new Set(answers.map(({ tag }) => tag))).toEqual(new Set(['gone']))
    for (const each of holders) expect(await store.release(releaseOf(each))).toEqual({ was: 'held' })
  })

  test('and names the id of the caller in the owner of its holder is not renewed', async () => {
    const mine = ticket()
    const holder = ticket({ owner: JSON.stringify({ behind: mine.id }) })
    fenceOf(await store.acquire(holder))
    expect(await store.renew([{ ...mine, ttlMs: 2 * mine.ttlMs }])).toEqual([{ tag: 'gone', evicted: false }])
    expect(await store.release(releaseOf(holder))).toEqual({ was: 'held' })
  })

  test.each([
    ['one holder', ['SET', 'holdfast:{key}', '3 whatever comes next']],
    ['more', ['ZADD', 'holdfast:{key}', '0', '3 whatever comes next', '0', 'b']],
  ])('and was written by a newer version (%s) is refused with the advice to update', async (_, command) => {
    await server.command(...command)
    expect(await rejection(store.acquire(ticket()))).toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/newer version.*layout 3.*Update/),
    })
  })

  test('and was written by an older version is refused with the advice to stop that version', async () => {
    await server.command('SET', 'holdfast:{key}', '1 whatever was before')
    expect(await rejection(store.acquire(ticket()))).toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/older version.*layout 1.*Stop/),
    })
  })
})

async function settled<T>(answer: T | Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch {
    return undefined
  }
}

async function rejection(answer: unknown): Promise<unknown> {
  try {
    await answer
  } catch (error) {
    return error
  }
  throw new Error('Expected a rejection')
}

/** Everything of an error that a person or a log could see. */
function everythingIn(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return [error.stack, JSON.stringify(error), JSON.stringify({ ...error }), everythingIn(error.cause)].join(
    '\n',
  )
}
