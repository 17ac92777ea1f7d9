import { Cluster, Redis } from 'ioredis'
import { createCluster } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect, diagnose, isHoldfastError } from '../../../src/index.ts'
import { openRedis, openRedisCluster, redisStore } from '../../../src/stores/redis/index.ts'
import { PATIENT_SENTINELS, startSentinels } from '../../servers/redis-sentinel.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { clients } from './clients.ts'

const NONE = { code: 'store-refused', message: expect.stringMatching(/no database with the number/) }

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

async function keyspace(of: RedisServer = server): Promise<string> {
  return String(await of.command('INFO', 'keyspace')).replace(/^#.*\r\n/, '')
}

describe.each(Object.entries(clients))('through %s', (_, newClient) => {
  test('a database that the server does not have is refused, and nothing is kept in another one', async () => {
    await server.command('FLUSHALL')
    const store = redisStore(newClient(`${server.url}/99`))
    for (let attempt = 0; attempt < 2; attempt += 1) {
      await expect(store.acquire(ticket())).rejects.toMatchObject(NONE)
      await expect(store.inspect({ prefix: '', cursor: undefined, count: 1 })).rejects.toMatchObject(NONE)
    }
    expect(await keyspace()).toBe('')
    await store.close()
  })

  test('a database that the server has is used, also after the connection was lost', async () => {
    await server.command('FLUSHALL')
    const store = redisStore(newClient(`${server.url}/7`))
    for (let round = 0; round < 3; round += 1) {
      const mine = ticket({ key: `round:${round}` })
      await until('it is granted', async () => (await outcome(store.acquire(mine))).value !== undefined)
      await server.command('CLIENT', 'KILL', 'TYPE', 'normal')
    }
    expect(await keyspace()).toMatch(/^db7:keys=4,[^\n]*\n$/)
    await store.close()
  })

  test('a user that may not select a database any more is refused after a lost connection', async () => {
    await server.command('FLUSHALL')
    await server.command('ACL', 'SETUSER', 'locks', 'reset', 'on', '>secret', '~*', '&*', '+@all')
    const store = redisStore(newClient(`redis://locks:secret@127.0.0.1:${server.port}/7`))
    const [first, second] = [ticket({ key: 'first' }), ticket({ key: 'second' })]
    fenceOf(await store.acquire(first))
    await server.command('ACL', 'SETUSER', 'locks', '-select')
    await server.command('CLIENT', 'KILL', 'USER', 'locks')
    const reason = await until('the server says no', async () => {
      const { value, error } = await outcome(store.acquire(second))
      expect(value).toBeUndefined()
      return isHoldfastError(error, 'store-refused') && error
    })
    expect(reason.message).toContain('docs/redis.md')
    expect(await keyspace()).toMatch(/^db7:keys=2,[^\n]*\n$/)
    await store.close()
  })
})

async function outcome<T>(answer: T | Promise<T>): Promise<{ value?: T; error?: unknown }> {
  try {
    return { value: await answer }
  } catch (error) {
    return { error }
  }
}

test('requests of the same tick are in the database, too, and in their order', async () => {
  await server.command('FLUSHALL')
  const store = redisStore(new Redis(`${server.url}/5`, { lazyConnect: true }))
  const mine = ticket()
  const [taken, released, again] = await Promise.all([
    store.acquire(mine),
    Promise.resolve().then(() => store.release(releaseOf(mine))),
    Promise.resolve().then(() => store.acquire(ticket({ key: 'other' }))),
  ])
  expect([taken.tag, released.was, again.tag]).toEqual(['held', 'held', 'held'])
  expect(await keyspace()).toMatch(/^db5:keys=2,[^\n]*\n$/)
  await store.close()
})

test('a database costs no request but one for each connection', async () => {
  const store = redisStore(new Redis(`${server.url}/5`, { lazyConnect: true }))
  await server.command('CONFIG', 'RESETSTAT')
  for (let round = 0; round < 20; round += 1) {
    const mine = ticket()
    await store.acquire(mine)
    await store.release(releaseOf(mine))
  }
  expect((await server.commandStats())['select']).toBe(1)
  await store.close()
})

describe('a url', () => {
  test.each([
    ['/6', 'db6'],
    ['?db=6', 'db6'],
    ['/6?db=6', 'db6'],
    ['/?db=06', 'db6'],
    ['', 'db0'],
  ])('names the database by %s', async (part, database) => {
    await server.command('FLUSHALL')
    const store = await openRedis(server.url + part)
    fenceOf(await store.acquire(ticket()))
    expect(await keyspace()).toMatch(new RegExp(`^${database}:keys=2`))
    await store.close()
  })

  test.each(['/6?db=5', '?db=six', '?db=6&db=7', '/1/2'])('is refused with %s', async (part) => {
    await expect(openRedis(server.url + part)).rejects.toMatchObject({ code: 'invalid-argument' })
    await expect(connect(`redlock:${server.url}${part}`)).rejects.toMatchObject({ code: 'invalid-argument' })
  })

  test('with a database that is not there is refused in one sentence, and the doctor says the same', async () => {
    await expect(connect(`${server.url}/99`)).rejects.toMatchObject(NONE)
    const { verdict, findings } = await diagnose(`${server.url}/99`)
    expect(verdict).toBe('problem')
    // Nothing else: the server refuses every question, which says nothing of rights.
    expect(findings).toEqual([
      {
        check: 'connection',
        verdict: 'problem',
        text: expect.stringMatching(/no database with the number/),
      },
    ])
  })
})

test('the master that Sentinels know is asked for the database, and the Sentinels are not', async () => {
  await using group = await startSentinels(PATIENT_SENTINELS)
  const [master] = group.servers as [RedisServer]
  const locks = await connect(group.url.replace(/(\/mymaster)?(\/\d*)?$/, `/${group.name}/6`))
  await locks.acquire('key')
  expect(await keyspace(master)).toMatch(/^db6:keys=2/)
  await locks.close()
  const sentinels = [...group.addresses]
  const none = redisStore(new Redis({ sentinels, name: group.name, db: 99, lazyConnect: true }))
  await expect(none.acquire(ticket())).rejects.toMatchObject(NONE)
  await none.close()
})

describe('a cluster', () => {
  test.each(['/3', '/0', '?db=3'])('has no databases, so its url is refused with %s', async (part) => {
    await expect(openRedisCluster(`redis+cluster://127.0.0.1:7000${part}`)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining('no database, as a Redis Cluster has only one'),
    })
  })

  test('is refused with a client that was made for another database', () => {
    const nodes = [{ host: '127.0.0.1', port: 7000 }]
    const redisOptions = { db: 3 } as object
    const made = [
      () => redisStore(new Cluster(nodes, { redisOptions, lazyConnect: true })),
      () =>
        redisStore(
          createCluster({ rootNodes: nodes.map((socket) => ({ socket })), defaults: { database: 3 } }),
        ),
    ]
    for (const make of made) expect(make).toThrow(/^Expected a client of a Redis Cluster to use database 0/)
  })
})
