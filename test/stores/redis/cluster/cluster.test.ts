import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { Cluster, Redis } from 'ioredis'
import { createClient, createCluster } from 'redis'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Store, Wake } from '../../../../src/contract/store.ts'
import { connect, createLocks } from '../../../../src/index.ts'
import { SlotTags, slotOf } from '../../../../src/stores/redis/cluster/slots.ts'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { PATIENT_MASTERS, type RedisCluster, startCluster } from '../../../servers/redis-cluster.ts'
import { startRedis } from '../../../servers/redis-server.ts'
import { type FaultProxy, startProxy } from '../../../servers/tcp-proxy.ts'
import { until } from '../../../servers/until.ts'
import { readProjectFile } from '../../../tidy/project.ts'
import { fenceOf, releaseOf, ticket } from '../../tickets.ts'
import { newClient } from '../clients.ts'
import { newClusterClient } from './clients.ts'

let cluster: RedisCluster
beforeAll(async () => {
  cluster = await startCluster({ replicas: 0, password: 'sesame', args: PATIENT_MASTERS })
})
afterAll(() => cluster.close())

const secret = { redisOptions: { password: 'sesame' }, lazyConnect: true }

test('the store computes the same slot of a name as the servers', async () => {
  const server = cluster.servers[0]
  const names = fc.sample(fc.stringMatching(/^[a-c{}é ]{0,12}$/), { numRuns: 300, seed: 4 })
  const told = await Promise.all(names.map((name) => server?.command('CLUSTER', 'KEYSLOT', name)))
  expect(names.map(slotOf)).toEqual(told)
})

test('every slot has a tag of a few characters, also behind a prefix with a brace', () => {
  for (const prefix of ['holdfast:', 'a{b:']) {
    const tags = new SlotTags((tag) => `${prefix}{${tag}}`)
    for (let slot = 0; slot < 16_384; slot += 1) {
      expect(slotOf(`${prefix}{${tags.tagOf(slot)}}fence`)).toBe(slot)
      expect(tags.tagOf(slot).length).toBeLessThan(5)
    }
  }
})

test('several keys in different slots are one lease, and none is left behind', async () => {
  const locks = await connect(cluster.url)
  const keys = ['account:1', 'account:2', 'account:3', 'account:4']
  await Promise.all(
    Array.from({ length: 6 }, (_, turn) =>
      locks.withLocks(turn % 2 === 0 ? keys : keys.toReversed(), async (lease) => {
        expect(lease.state).toBe('held')
      }),
    ),
  )
  for await (const room of locks.inspect()) expect(room).toBeUndefined()
  await locks.close()
})

test('a keyPrefix is honoured, and one with a tag of its own keeps all rooms in one slot', async () => {
  const client = new Cluster([...cluster.addresses], { ...secret, keyPrefix: '{app}:' })
  const store = redisStore(client, { prefix: 'locks:' })
  const tickets = ['one', 'two', '}{', '', 'a}b'].map((key) => ticket({ key }))
  for (const each of tickets) fenceOf(await store.acquire(each))
  const { rooms } = await store.inspect({ prefix: 't', cursor: undefined, count: 10 })
  expect(rooms.map(({ key }) => key)).toEqual(['two'])
  const keys = (await cluster.command('KEYS', '{app}:locks:*')) as string[][]
  expect(keys.filter((found) => found.length > 0)).toHaveLength(1)
  expect(await store.renew(tickets)).toMatchObject(tickets.map(() => ({ tag: 'held' })))
  for (const each of tickets) await store.release(releaseOf(each))
  await store.close()
})

test('a process listens for a slot only while it waits there, and no other process is told', async () => {
  const room = 'holdfast:{sharded}'
  const [one, other] = [redisStore(newClusterFor()), redisStore(newClusterFor())]
  const heard: Wake[] = []
  await other.listen?.((wake) => heard.push(wake))
  const server = await cluster.masterOf(room)
  const channels = async (): Promise<number> =>
    ((await server.command('PUBSUB', 'SHARDCHANNELS')) as string[]).length
  const [holder, waiter] = [ticket({ key: 'sharded' }), ticket({ key: 'sharded', patienceMs: 6000 })]
  fenceOf(await one.acquire(holder))
  expect(await channels()).toBe(0)
  await other.acquire(waiter)
  await until('it listens', async () => (await channels()) === 1)
  await cluster.command('CONFIG', 'RESETSTAT')
  await one.release(releaseOf(holder))
  // The message is the lease, because the server of the slot has counted a subscriber.
  await until('it holds', () => heard.some((wake) => wake.tag === 'granted' && wake.id === waiter.id))
  const stats = await server.commandStats()
  expect([stats['spublish'], stats['publish']]).toEqual([1, undefined])
  await other.acquire(waiter)
  await other.release(releaseOf(waiter))
  await until('it listens no more', async () => (await channels()) === 0)
  for (const store of [one, other]) await store.close()
})

test('a message to all servers is a hint: no server knows whether it reached the process', async () => {
  const [one, other] = [redisStore(newClusterFor()), redisStore(newClusterFor())]
  const heard: Wake[] = []
  await other.listen?.((wake) => heard.push(wake))
  const [holder, waiter] = [ticket({ key: 'unheard' }), ticket({ key: 'unheard' })]
  fenceOf(await one.acquire(holder))
  await other.acquire(waiter)
  const server = await cluster.masterOf('holdfast:{unheard}')
  // The connection of the slot is lost. The connection for all servers may be on another server.
  await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub')
  await one.release(releaseOf(holder))
  const { rooms } = await one.inspect({ prefix: 'unheard', cursor: undefined, count: 1 })
  expect(rooms[0]?.holders).toMatchObject([{ id: waiter.id, state: 'offered' }])
  expect(heard.filter(({ tag }) => tag === 'granted')).toEqual([])
  fenceOf(await other.acquire(waiter))
  await other.release(releaseOf(waiter))
  for (const store of [one, other]) await store.close()
})

test('a holder without waiters is told of its eviction all the same', async () => {
  const [one, other] = [redisStore(newClusterFor()), redisStore(newClusterFor())]
  const heard: Wake[] = []
  await other.listen?.((wake) => heard.push(wake))
  const mine = ticket({ key: 'evicted' })
  fenceOf(await other.acquire(mine))
  expect(await one.evict({ key: 'evicted', id: mine.id, reason: 'stuck' })).toEqual([mine.id])
  await until('it is told', () => heard.some((wake) => wake.tag !== 'all' && wake.id === mine.id))
  expect(await other.renew([mine])).toEqual([{ tag: 'gone', evicted: true, reason: 'stuck' }])
  for (const store of [one, other]) await store.close()
})

test.each(['ioredis', 'redis', 'createNode'])(
  'a reply that is lost costs nothing, behind addresses that %s translates',
  async (name) => {
    const proxies = await Promise.all(
      cluster.addresses.map(
        async ({ host, port }) => [`${host}:${port}`, await startProxy({ targetPort: port })] as const,
      ),
    )
    const map = Object.fromEntries(
      proxies.map(([address, { port }]) => [address, { host: '127.0.0.1', port }]),
    )
    const seeds = proxies.map(([, { port }]) => ({ host: '127.0.0.1', port }))
    const createNode = (address: { host: string; port: number }): Redis =>
      new Redis({
        ...secret.redisOptions,
        ...(map[`${address.host}:${address.port}`] ?? address),
        lazyConnect: true,
      })
    const store =
      name === 'createNode'
        ? redisStore(newClusterFor(), { cluster: { nodes: seeds, createNode } })
        : redisStore(
            name === 'ioredis'
              ? new Cluster(seeds, { ...secret, natMap: map })
              : createCluster({
                  rootNodes: seeds.map((socket) => ({ socket })),
                  defaults: { password: 'sesame' },
                  nodeAddressMap: map,
                }),
          )
    const proxyOf = async (key: string): Promise<FaultProxy> => {
      const { port } = await cluster.masterOf(`holdfast:{${key}}`)
      return (proxies.find(([address]) => address === `127.0.0.1:${port}`) as (typeof proxies)[number])[1]
    }
    const [warm, mine] = [ticket({ key: '{lost} warm' }), ticket({ key: '{lost} reply' })]
    fenceOf(await store.acquire(warm))
    fenceOf(await store.acquire(mine))
    await store.release(releaseOf(mine))
    const again = ticket({ key: mine.key })
    const lost = (await proxyOf(mine.key)).loseNextReply(again.id)
    await expect(store.acquire(again)).rejects.toMatchObject({ code: 'store-unavailable', key: mine.key })
    await lost
    const fence = await until('it is answered', async () => {
      const answer = await Promise.resolve(store.acquire(again)).catch(() => undefined)
      return answer?.tag === 'held' && answer.fence
    })
    const { rooms } = await store.inspect({ prefix: mine.key, cursor: undefined, count: 1 })
    expect(rooms[0]?.holders).toMatchObject([{ id: again.id, fence }])
    for (const each of [warm, again]) await store.release(releaseOf(each))
    await store.close()
    for (const [, proxy] of proxies) await proxy.close()
  },
)

test('a user that may do what the documentation lists is enough for a cluster', async () => {
  const [, rights = ''] =
    /^ACL SETUSER locks on >a-good-password (.*)$/m.exec(readProjectFile('docs/redis.md')) ?? []
  const [, more = ''] = /^ACL SETUSER locks (\+cluster.*)$/m.exec(readProjectFile('docs/redis.md')) ?? []
  await cluster.command(
    'ACL',
    'SETUSER',
    'locks',
    'reset',
    'on',
    '>secret',
    ...rights.split(' '),
    ...more.split(' '),
  )
  const locks = await connect(cluster.url.replace(':sesame@', 'locks:secret@'))
  const lease = await locks.acquire('permitted')
  const waiting = locks.acquire('permitted')
  await until('somebody waits', async () => {
    for await (const room of locks.inspect({ prefix: 'permitted' })) return room.queue.length === 1
    return undefined
  })
  await lease.release()
  await (await waiting).release()
  await locks.close()
  expect(await cluster.command('ACL', 'LOG')).toEqual([[], [], []])
})

test('says in one sentence what is wrong', async () => {
  await using alone = await startRedis()
  const [address] = cluster.addresses
  const wrong: [() => unknown, string, RegExp][] = [
    [() => connect(`redis+cluster://127.0.0.1:${alone.port}`), 'store-refused', /is not part of a cluster/],
    [
      () => connect('redis+cluster://127.0.0.1:1,127.0.0.1:2'),
      'store-unavailable',
      /^No server of the Redis cluster/,
    ],
    [() => connect(cluster.url.replace('sesame', 'sesami')), 'store-refused', /did not accept the user name/],
    [
      async () => {
        // The keys `a` to `h` are in slots of several servers.
        const store = redisStore(newClient(`redis://:sesame@127.0.0.1:${address?.port}`))
        const tickets = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'].map((key) => ticket({ key }))
        try {
          for (const each of tickets) await store.acquire(each)
        } finally {
          await store.close()
        }
      },
      'store-refused',
      /^The Redis server is part of a cluster\. Pass redisStore\(\) a client of the cluster/,
    ],
  ]
  for (const [attempt, code, message] of wrong)
    await expect(attempt()).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
})

test.each([
  ['redis+cluster://', 'without hosts'],
  ['redis+cluster://h1:7000/locks', 'something behind them'],
  ['redis+cluster://h1:7000/0', 'no database'],
  ['redis+cluster://:se%cret@h1', 'a % that is not written as %25'],
  ['redis+cluster://h1:99999', 'hosts are not like host:7000'],
  ['redis+cluster://h1?replica=1', 'to be among prefix, replicas, got something else'],
  ['redis+cluster://h1?password=se&cret', 'to be among prefix, replicas, got something else'],
])('refuses the url %s', async (url, message) => {
  await expect(connect(url)).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining(message),
  })
  await expect(connect(url)).rejects.not.toMatchObject({ message: expect.stringContaining('cret') })
})

test('a prefix that begins with empty braces is refused: no tag behind it counts', () => {
  expect(() => redisStore(newClusterFor(), { prefix: 'locks{}:' })).toThrow(
    'Expected `prefix` to have no {} before other braces on a cluster, got "locks{}:".',
  )
  expect(() => redisStore(newClusterFor(), { prefix: 'locks{a}{}:' })).not.toThrow()
  expect(() => redisStore(createClient(), { prefix: 'locks{}:' })).not.toThrow()
})

test('Sentinels and a cluster do not go together', () => {
  const sentinel = { name: 'm', nodes: [{ host: 's1' }] }
  expect(() => redisStore(newClusterFor(), { sentinel })).toThrow(/no option `sentinel`/)
  expect(() => redisStore(createClient(), { sentinel })).not.toThrow()
})

test('a client of one server serves for a cluster whose servers the option `cluster` lists', async () => {
  const [one, other] = [
    new Redis({ ...secret.redisOptions, lazyConnect: true, keyPrefix: 'app:' }),
    createClient({ password: 'sesame' }),
  ].map((client) => redisStore(client, { cluster: { nodes: cluster.addresses } })) as [Store, Store]
  const held = ticket({ key: 'named' })
  fenceOf(await one.acquire(held))
  const third = redisStore(newClusterFor(), { prefix: 'app:holdfast:' })
  const { rooms } = await third.inspect({ prefix: held.key, cursor: undefined, count: 1 })
  expect(rooms[0]?.holders).toMatchObject([{ id: held.id }])
  fenceOf(await other.acquire(ticket({ key: held.key })))
  for (const store of [one, other, third]) await store.close()
})

test.each<[object, RegExp]>([
  [{ nodes: [] }, /`cluster.nodes` to be a list of one server or more/],
  [{ nodes: [{ port: 7000 }] }, /each of `cluster.nodes` to be like \{ host: 'redis-1', port: 6379 \}/],
  [{ nodes: [{ host: 'a' }], createNode: 'a' }, /`createNode` to be a function/],
  [{ nodes: [{ host: 'a' }] }, /`client` to be a client of a single server beside the option `cluster`/],
])('the option `cluster` with a client of a cluster and %o is refused', (options, sentence) => {
  expect(() => redisStore(newClusterFor(), { cluster: options as never })).toThrow(sentence)
})

test('a store that is never closed does not keep its process alive', async () => {
  const file = fileURLToPath(new URL('processes/forgotten-cluster.mjs', import.meta.url))
  for (const kind of ['ioredis', 'redis']) {
    const child = spawn(
      process.execPath,
      ['--import', 'tsx', file, kind, String(cluster.addresses[0]?.port)],
      {
        stdio: ['ignore', 'inherit', 'inherit'],
      },
    )
    try {
      const [code] = await once(child, 'exit', { signal: AbortSignal.timeout(120_000) })
      expect(code).toBe(0)
    } finally {
      child.kill('SIGKILL')
    }
  }
})

test('where servers know no messages for one slot, messages go to all of them', async () => {
  await using older = await startCluster({
    replicas: 0,
    args: ['--rename-command', 'SPUBLISH', '', '--rename-command', 'SSUBSCRIBE', ''],
  })
  const [one, other] = [
    createLocks(redisStore(newClusterClient(older))),
    createLocks(redisStore(newClusterClient(older))),
  ]
  const lease = await one.acquire('older', { ttl: '60s' })
  const waiting = other.acquire('older', { ttl: '60s', wait: '60s' })
  await until('somebody waits', async () => {
    for await (const room of one.inspect({ prefix: 'older' })) return room.queue.length === 1
    return undefined
  })
  await lease.release()
  await (await waiting).release()
  // A master without a replica is gone for good, and this cluster with it.
  const lost = await older.masterOf('holdfast:{older}')
  await lost.kill()
  const living = redisStore(newClusterClient(older))
  await until('the cluster says that it is down', async () => {
    const error = await Promise.resolve(living.acquire(ticket({ key: 'another' }))).then(
      () => undefined,
      (reason: unknown) => reason as Error,
    )
    return error?.message.startsWith('The Redis cluster is down') === true
  })
  for (const locks of [one, other, living]) await locks.close()
})

function newClusterFor(): Cluster {
  return new Cluster([...cluster.addresses], secret)
}
