import { Cluster, Redis } from 'ioredis'
import { Cluster as Cluster6, Redis as Redis6 } from 'ioredis6'
import { createClient, createCluster } from 'redis'
import { createClient as createClient6, createCluster as createCluster6 } from 'redis6'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { redisGuard } from '../../src/guard/index.ts'
import { PATIENT_MASTERS, type RedisCluster, startCluster } from '../servers/redis-cluster.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())
beforeEach(async () => {
  await server.command('FLUSHALL')
})

type Guarded = Parameters<typeof redisGuard>[0]
const kinds: [string, (url: string) => Promise<{ client: Guarded; end: () => unknown }>][] = [
  ['ioredis 5', async (url) => ended(new Redis(url))],
  ['ioredis 6', async (url) => ended(new Redis6(url))],
  ['redis 5', async (url) => destroyed(await createClient({ url }).connect())],
  ['redis 6', async (url) => destroyed(await createClient6({ url }).connect())],
]
const ended = (client: Redis | Redis6 | Cluster | Cluster6) => ({ client, end: () => client.disconnect() })
const destroyed = <Client extends { destroy(): void }>(client: Client) => ({
  client: client as unknown as Guarded,
  end: () => client.destroy(),
})

describe.each(kinds)('through %s', (_, open) => {
  test('a key takes writes under its fence or a later one, and refuses older ones', async () => {
    const { client, end } = await open(server.url)
    const set = (fence: bigint, value: string | number) =>
      redisGuard(client, { resource: 'account:1', fence, command: 'SET', keys: ['account:1'], args: [value] })
    expect(await set(7n, 60)).toBe('OK')
    expect(await set(7n, 50)).toBe('OK')
    await expect(set(6n, 0)).rejects.toMatchObject({
      code: 'stale-fence',
      key: 'account:1',
      cause: expect.objectContaining({ message: expect.stringContaining('has seen 7') }),
    })
    expect(await server.command('GET', 'account:1')).toBe('50')
    expect(await set(8n, 40)).toBe('OK')
    expect(await server.command('GET', '{account:1}:holdfast-fence')).toBe('8')
    end()
  })

  test('a script of one’s own has its keys and arguments as ever', async () => {
    const { client, end } = await open(server.url)
    const move = (fence: bigint) =>
      redisGuard(client, {
        fence,
        resource: 'accounts',
        script: `
          redis.call('DECRBY', KEYS[1], ARGV[1])
          return {redis.call('INCRBY', KEYS[2], ARGV[1]), #KEYS, #ARGV}`,
        keys: ['a', 'b'],
        args: ['10'],
      })
    expect(await move(7n)).toEqual([10, 2, 1])
    await expect(move(6n)).rejects.toMatchObject({ code: 'stale-fence' })
    expect(await server.command('MGET', 'a', 'b')).toEqual(['-10', '10'])
    end()
  })
})

test('fences are compared exactly, also if they are too large for an exact number', async () => {
  const redis = new Redis(server.url)
  const set = (fence: bigint) =>
    redisGuard(redis, { resource: 'r', fence, command: 'SET', keys: ['r'], args: [1] })
  await set(9n)
  await set(10n)
  await set(9_007_199_254_740_993n)
  await expect(set(9_007_199_254_740_992n)).rejects.toMatchObject({ code: 'stale-fence' })
  await set(9_223_372_036_854_775_807n)
  redis.disconnect()
})

test('an error of the command comes through as it is, and the fence is remembered all the same', async () => {
  const redis = new Redis(server.url)
  await redis.set('account:1', 'text')
  const incremented = redisGuard(redis, {
    resource: 'account:1',
    fence: 7n,
    command: 'INCR',
    keys: ['account:1'],
  })
  await expect(incremented).rejects.toThrow('not an integer')
  expect(await redis.get('{account:1}:holdfast-fence')).toBe('7')
  redis.disconnect()
})

test('the prefix of ioredis goes before the fence, too', async () => {
  const redis = new Redis(server.url, { keyPrefix: 'app:' })
  await redisGuard(redis, { resource: 'r', fence: 7n, command: 'SET', keys: ['r'], args: [1] })
  expect((await server.command('KEYS', '*')) as string[]).toEqual(
    expect.arrayContaining(['app:r', 'app:{r}:holdfast-fence']),
  )
  redis.disconnect()
})

describe('in a cluster', () => {
  let cluster: RedisCluster
  beforeAll(async () => {
    cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
  })
  afterAll(() => cluster.close())

  const opened: Record<string, () => Promise<{ client: Guarded; end: () => unknown }>> = {
    'ioredis 5': async () => ended(new Cluster([...cluster.addresses])),
    'ioredis 6': async () => ended(new Cluster6([...cluster.addresses])),
    'redis 5': async () => {
      const rootNodes = cluster.addresses.map((socket) => ({ socket }))
      return destroyed(await createCluster({ rootNodes }).connect())
    },
    'redis 6': async () => {
      const rootNodes = cluster.addresses.map((socket) => ({ socket }))
      return destroyed(await createCluster6({ rootNodes }).connect())
    },
  }

  test.each(Object.entries(opened))(
    'through %s, the fence is in the slot of the resource and of what has its hash tag, on whatever server that is',
    async (name, open) => {
      const { client, end } = await open()
      // Twelve resources, so some are on each of the three servers.
      for (let index = 0; index < 12; index += 1) {
        const resource = `${name} ${index}`
        const set = (fence: bigint, key: string) =>
          redisGuard(client, { resource, fence, command: 'SET', keys: [key], args: [1] })
        expect(await set(7n, resource)).toBe('OK')
        expect(await set(7n, `{${resource}}:log`)).toBe('OK')
        await expect(set(6n, resource)).rejects.toMatchObject({ code: 'stale-fence', key: resource })
      }
      const tagged = { resource: `{${name}}:account`, fence: 7n, command: 'SET', args: [1] }
      expect(await redisGuard(client, { ...tagged, keys: [`{${name}}:log`] })).toBe('OK')
      end()
    },
  )

  test.each(Object.entries(opened))(
    'through %s, keys of other slots are refused in one sentence, and nothing is written',
    async (name, open) => {
      const { client, end } = await open()
      const resource = `account of ${name}`
      const guarded = { resource, fence: 7n, command: 'SET', keys: ['elsewhere'], args: [1] }
      await expect(redisGuard(client, guarded)).rejects.toMatchObject({
        code: 'invalid-argument',
        message: expect.stringContaining(
          `Give each of them the hash tag {${resource}}; nothing was written.`,
        ),
        cause: expect.objectContaining({ message: expect.stringContaining('CROSSSLOT') }),
      })
      const server = await cluster.masterOf('elsewhere')
      expect(await server.command('EXISTS', 'elsewhere')).toBe(0)
      end()
    },
  )
})

test('resources with odd braces have fences of their own, each in the slot that is documented', async () => {
  await using cluster = await startRedis({ args: ['--cluster-enabled', 'yes'] })
  const slot = (key: string) => cluster.command('CLUSTER', 'KEYSLOT', key)
  const names: Record<string, string> = {
    // The hash tag that the fence must share.
    x: 'x',
    '{x}': 'x',
    '{x}:holdfast-fence': 'x',
    'a{x}b': 'x',
    'a{b': 'a{b',
    'a{b}c{d}': 'b',
    '{{b}}': '{b',
    '{a}{}': 'a',
    // These names have no hash tag, so characters that would make one are escaped.
    '{}': '{{%7D}',
    '}{': '{%7D{}',
    'a}b': '{a%7Db}',
    '{a%7Db}': 'a%7Db',
    'a%7Db': 'a%7Db',
    'mail:ann%40example.org': 'mail:ann%40example.org',
    '100%': '100%',
    'a{}b{c}': '{a{%7Db{c%7D}',
    '{}{c}': '{{%7D{c%7D}',
  }
  const redis = new Redis(server.url)
  const own = new Set<string>()
  for (const [resource, beside] of Object.entries(names)) {
    const set = (fence: bigint) =>
      redisGuard(redis, { resource, fence, command: 'SET', keys: ['written'], args: [1] })
    // If two resources shared a fence, the first fence of the second one would be stale.
    await set(BigInt(100 - own.size))
    const [fenceKey = '', ...others] = (await redis.keys('*')).filter(
      (key) => key !== 'written' && !own.has(key),
    )
    expect([resource, others]).toEqual([resource, []])
    expect([resource, await slot(fenceKey)]).toEqual([resource, await slot(beside)])
    own.add(fenceKey)
  }
  redis.disconnect()
})

const base = { resource: 'r', fence: 5n, command: 'SET', keys: ['r'], args: ['1'] }
const wrong: [string, object, string][] = [
  ['neither command nor script', { ...base, command: undefined }, '`command` to be the name of a command'],
  ['command and script', { ...base, script: 'return 1' }, '`command` to be the name of a command (or'],
  ['a script that is none', { ...base, command: undefined, script: 5 }, '`command` to be'],
  ['no keys', { ...base, keys: undefined }, '`keys` to be an array with at least one text'],
  ['an empty list of keys', { ...base, keys: [] }, '`keys` to be an array with at least one text'],
  ['a key that is a number', { ...base, keys: [1] }, '`keys` to be an array with at least one text'],
  ['an argument that is an object', { ...base, args: [{}] }, '`args` to be an array of texts and numbers'],
  ['an argument that is no number', { ...base, args: [Number.NaN] }, '`args` to be'],
  ['a fence that is none', { ...base, fence: 'now' }, '`fence` to be'],
  ['a misspelt option', { ...base, arguments: [] }, 'the options to be among'],
]
test.each(wrong)('%s is refused before anything is asked', async (_, options, message) => {
  const untouched = { evalsha: () => {}, eval: () => Promise.reject(new Error('asked')) }
  await expect(redisGuard(untouched, options as never)).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining(`Expected ${message}`),
  })
})

test('a client that is none is refused', async () => {
  await expect(redisGuard({} as never, base)).rejects.toThrow(/^Expected `client` to be a `Redis`/)
})
