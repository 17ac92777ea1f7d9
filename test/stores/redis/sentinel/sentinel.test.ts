import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { Redis as Redis6 } from 'ioredis6'
import { createClient, createSentinel } from 'redis'
import { createClient as createClient6 } from 'redis6'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../../../src/contract/store.ts'
import { connect, createLocks } from '../../../../src/index.ts'
import { openRedisSentinel, redisStore } from '../../../../src/stores/redis/index.ts'
import { shortestMs } from '../../../base/measured.ts'
import { PATIENT_SENTINELS, type SentinelGroup, startSentinels } from '../../../servers/redis-sentinel.ts'
import { type RedisServer, startRedis } from '../../../servers/redis-server.ts'
import { until } from '../../../servers/until.ts'
import { conformanceCases, isAboutGrants } from '../../conformance-cases.ts'
import { fenceOf, ticket } from '../../tickets.ts'
import { hearsReset, keepsPlaces } from '../fail-over.ts'

/** The stores that a user may make over Sentinels. */
const stores: Readonly<Record<string, (group: SentinelGroup) => Store>> = {
  'ioredis 5': ({ addresses, name }) =>
    redisStore(new Redis({ sentinels: [...addresses], name, lazyConnect: true })),
  'ioredis 6': ({ addresses, name }) =>
    redisStore(new Redis6({ sentinels: [...addresses], name, lazyConnect: true })),
  'redis 5': ({ addresses, name }) => redisStore(createClient(), { sentinel: { name, nodes: addresses } }),
  'redis 6': ({ addresses, name }) => redisStore(createClient6(), { sentinel: { name, nodes: addresses } }),
}

describe.each(Object.entries(stores))('over Sentinels, through %s', (_, newStore) => {
  test('a master that is killed is followed at once, with holders, queue and rising fences', async () => {
    await using group = await startSentinels()
    const store = newStore(group)
    const former = await group.master()
    await keepsPlaces(store, {
      key: 'key',
      failOver: async () => {
        await group.servers[1]?.follows(former)
        await former.kill()
        await group.successorOf(former)
      },
    })
    fenceOf(await store.acquire(ticket({ key: 'after' })))
    expect(await (await group.successorOf(former)).command('EXISTS', 'holdfast:{after}')).toBe(1)
    await store.close()
  })
})

describe('a fail-over under two processes', () => {
  test.each([
    ['SIGKILL', (group: SentinelGroup) => group.servers[0]?.kill()],
    ['SIGSTOP', (group: SentinelGroup) => group.servers[0]?.pause()],
  ] as const)(
    'by %s of the master, with writes that it had not passed on: the holder is told, the waiter goes on, and the next fence is higher',
    async (_, strike) => {
      await using group = await startSentinels()
      const former = await group.master()
      await using locks = await connect(group.url)
      const kept = await locks.acquire('kept', { ttl: '60s' })
      const worker = startWorker([group.url, 'theirs', 'kept'])
      await until('the other process holds and waits', async () => {
        const rooms = locks.inspect({ prefix: 'kept' })
        for await (const room of rooms) return room.queue.length === 1
        return undefined
      })
      await group.servers[1]?.follows(former)
      await group.cutOffReplicas()
      const lost = await locks.acquire('lost', { ttl: '60s' })
      const isTold = hearsReset(lost)
      await strike(group)
      const successor = await group.successorOf(former)
      // The next renewal would be due after 20 s, so something else tells the holder.
      await isTold()
      const next = await locks.acquire('lost')
      expect(next.fence > lost.fence).toBe(true)
      expect(await kept.extend()).toBeUndefined()
      await kept.release()
      const acquired = await until('the other process has the key', () => worker.line('acquired'))
      expect(BigInt(acquired) > kept.fence).toBe(true)
      expect(worker.line('lost')).toBeUndefined()
      if (_ === 'SIGSTOP') {
        former.resume()
        await until('the old master follows', async () => {
          // The demoted server closes all connections.
          const info = await former.command('INFO', 'replication').catch(() => '')
          return String(info).includes('role:slave')
        })
      }
      expect(await successor.command('EXISTS', 'holdfast:{lost}')).toBe(1)
    },
  )
})

test('an old master that is demoted while it runs is left at once', async () => {
  await using group = await startSentinels()
  const former = await group.master()
  await using locks = createLocks(await openRedisSentinel(group.url))
  const lease = await locks.acquire('key', { ttl: '60s' })
  expect(lease.signal.aborted).toBe(false)
  await group.servers[1]?.follows(former)
  await group.sentinels[0]?.command('SENTINEL', 'FAILOVER', group.name)
  await group.successorOf(former)
  await lease.extend()
  const other = await locks.acquire('other')
  expect(other.fence > lease.fence).toBe(true)
  expect(lease.state).toBe('held')
})

test('an old master that no Sentinel can demote, and that still answers, is left at once', async () => {
  await using group = await startSentinels({ password: 'sesame' })
  const former = await group.master()
  await using locks = createLocks(await openRedisSentinel(group.url))
  const lease = await locks.acquire('key', { ttl: '60s' })
  expect(lease.signal.aborted).toBe(false)
  await group.servers[1]?.follows(former)
  await group.hideFromSentinels(former)
  const successor = await group.successorOf(former)
  const other = await until('a lock is taken on the new master', async () => {
    const taken = await locks.acquire('other')
    if ((await successor.command('EXISTS', 'holdfast:{other}')) === 1) return taken
    await taken.release()
    return undefined
  })
  await lease.extend()
  const before = await former.commandStats()
  for (let round = 0; round < 10; round += 1) await lease.extend()
  await other.release()
  expect((await former.commandStats())['evalsha']).toBe(before['evalsha'])
  expect(String(await former.command('INFO', 'replication'))).toMatch(/role:master/)
})

test('a new master is not left again because of Sentinels that have not heard of it yet', async () => {
  await using former = await startRedis()
  await using master = await startRedis()
  const sentinelOf = (server: RedisServer, epoch: number): Promise<RedisServer> =>
    startRedis({
      config: [
        `sentinel monitor mymaster 127.0.0.1 ${server.port} 2`,
        `sentinel config-epoch mymaster ${epoch}`,
        'sentinel down-after-milliseconds mymaster 60000',
      ],
      args: ['--sentinel'],
    })
  await using first = await sentinelOf(master, 5)
  await using second = await sentinelOf(former, 4)
  await using third = await sentinelOf(former, 4)
  const sentinels = [first, second, third].map(({ port }) => ({ host: '127.0.0.1', port }))
  await second.pause()
  const store = redisStore(new Redis({ sentinels, name: 'mymaster', lazyConnect: true }))
  const mine = ticket()
  const fence = fenceOf(await store.acquire(mine))
  second.resume()
  for (let round = 0; round < 3; round += 1) {
    await first.pause()
    const asked = await Promise.all([second, third].map(connectionsTo))
    // After a lost connection the store asks the Sentinels again.
    await master.command('CLIENT', 'KILL', 'TYPE', 'normal')
    const renewed = until('it is renewed', async () => {
      try {
        return await store.renew([mine])
      } catch {
        return undefined
      }
    })
    await until('the other two were asked', async () =>
      (await Promise.all(asked.map((more) => more()))).every(Boolean),
    )
    first.resume()
    expect(fenceOf((await renewed)[0])).toBe(fence)
  }
  // The only Sentinel that knows of the fail-over goes away for good.
  await first.close()
  await master.command('CLIENT', 'KILL', 'TYPE', 'normal')
  const [answer] = await until('it is renewed on the new master', async () => {
    try {
      return await store.renew([mine])
    } catch {
      return undefined
    }
  })
  expect(fenceOf(answer)).toBe(fence)
  expect((await former.commandStats())['eval']).toBeUndefined()
  await store.close()
})

/** Returns a check: whether the server has got connections since then, besides this one. */
async function connectionsTo(server: RedisServer): Promise<() => Promise<boolean>> {
  const received = async (): Promise<number> =>
    Number(/total_connections_received:(\d+)/.exec(String(await server.command('INFO', 'stats')))?.[1])
  let own = await received()
  return async () => {
    own += 1
    return (await received()) > own
  }
}

describe('a store over Sentinels that waits for a replica keeps the contract', () => {
  let group: SentinelGroup
  beforeAll(async () => {
    group = await startSentinels(PATIENT_SENTINELS)
    // The conformance suite comes only when the master counts the replica, which takes a second.
    await group.servers[1]?.follows(await group.master())
  })
  afterAll(() => group.close())
  const cases = conformanceCases({ open: () => redisStore(sentinelClient(group), { replicas: 1 }) })
  for (const { name, run } of cases) test(name, run)
})

// With `replicas`, no message is a lease. So the cases about that run without.
describe('a store over Sentinels that waits for no replica sends leases by message', () => {
  let group: SentinelGroup
  beforeAll(async () => {
    group = await startSentinels({ ...PATIENT_SENTINELS, replicas: 0 })
  })
  afterAll(() => group.close())
  const cases = conformanceCases({ open: () => redisStore(sentinelClient(group)), grants: true })
  for (const { name, run } of cases.filter(isAboutGrants)) test(name, run)
})

describe('a store over Sentinels', () => {
  test('finds the master when one Sentinel hangs and another one is gone', async () => {
    await using group = await startSentinels(PATIENT_SENTINELS)
    await group.sentinels[0]?.pause()
    const tookMs = await shortestMs(900, async () => {
      const store = redisStore(sentinelClient(group))
      const begun = performance.now()
      fenceOf(await store.acquire(ticket({ key: crypto.randomUUID() })))
      const took = performance.now() - begun
      await store.close()
      return took
    })
    expect(tookMs).toBeLessThan(900)
    await group.sentinels[1]?.kill()
    const another = redisStore(sentinelClient(group))
    fenceOf(await another.acquire(ticket({ key: 'another' })))
    await another.close()
  })

  test('keeps no process alive, also while the master and a Sentinel are gone', async () => {
    await using group = await startSentinels({ replicas: 0 })
    const pids = [group.servers[0], group.sentinels[0]].map((server) => String(server?.pid))
    const worker = startWorker([group.url, ...pids], 'sentinel-and-leave')
    await until('it has ended by itself', () => worker.exitCode() === 0)
    expect(worker.output()).toMatch(/^acquire-timeout\n(store-unavailable|lease-lost)\nthe end\n$/)
  })

  test('uses passwords: one for the servers, and another one for the Sentinels', async () => {
    await using group = await startSentinels({
      ...PATIENT_SENTINELS,
      password: 'sesame',
      sentinelPassword: 'open',
    })
    const locks = await connect(`${group.url}?sentinelPassword=open`)
    expect(await locks.tryAcquire('key')).not.toBeNull()
    await locks.close()
    await expect(connect(group.url)).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/^The Sentinels did not accept/),
    })
    await expect(
      connect(`${group.url.replace('sesame', 'sesami')}?sentinelPassword=open`),
    ).rejects.toMatchObject({ code: 'store-refused', message: /^The Redis server did not accept/ })
  })

  test('says in one sentence what is wrong', async () => {
    await using group = await startSentinels({ replicas: 0 })
    const port = group.servers[0]?.port
    const wrong: [string, string, RegExp][] = [
      [group.url.replace('mymaster', 'yours'), 'store-refused', /know no master called "yours"/],
      ['redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster', 'store-unavailable', /^No Sentinel could be/],
      [`redis+sentinel://127.0.0.1:${port}/mymaster`, 'store-unavailable', /and not of Redis servers/],
    ]
    for (const [url, code, message] of wrong)
      await expect(connect(url)).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
  })

  test.each([
    ['redis+sentinel://s1:26379', 'without the hosts of the Sentinels or the name of the master'],
    ['redis+sentinel://:se%cret@s1/mymaster', 'a % that is not written as %25'],
    ['redis+sentinel://s1:99999/mymaster', 'hosts are not like host:26379'],
    ['redis+sentinel://s1/mymaster?replica=1', 'replicas, sentinelUsername, sentinelPassword, got something'],
    ['redis+sentinel://s1/mymaster?sentinelPassword=se&cret', 'sentinelPassword, got something else'],
  ])('refuses the url %s', async (url, message) => {
    await expect(connect(url)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining(message),
    })
    await expect(connect(url)).rejects.not.toMatchObject({ message: expect.stringContaining('cret') })
  })

  test('refuses options that are no way to find a master', () => {
    const nodes = [{ host: 's1' }]
    const wrong: [() => unknown, RegExp][] = [
      [
        () => redisStore(createClient(), { sentinel: { name: '', nodes } }),
        /what the Sentinels call the master/,
      ],
      [
        () => redisStore(createClient(), { sentinel: { name: 'm', nodes: [] } }),
        /one Sentinel or more, got an array of 0/,
      ],
      [
        () => redisStore(createClient(), { sentinel: { name: 'm', nodes: [{ host: 's1', port: 0 }] } }),
        /each of `sentinel.nodes`/,
      ],
      [() => redisStore(createClient(), { sentinel: { name: 'm', node: nodes } as never }), /got `node`/],
      [
        () =>
          redisStore(createSentinel({ name: 'm', sentinelRootNodes: [{ host: 's1', port: 1 }] }) as never),
        /does not tell how it was made/,
      ],
      [
        () => redisStore(new Redis({ sentinels: nodes, name: 'm', role: 'slave', lazyConnect: true })),
        /role `slave`/,
      ],
    ]
    for (const [make, message] of wrong) expect(make).toThrow(message)
  })
})

function sentinelClient({ addresses, name }: SentinelGroup): Redis {
  return new Redis({ sentinels: [...addresses], name, lazyConnect: true })
}

interface Worker {
  line(begin: string): string | undefined
  output(): string
  exitCode(): number | null
}

function startWorker(args: readonly string[], program = 'sentinel-worker'): Worker {
  const file = fileURLToPath(new URL(`processes/${program}.mjs`, import.meta.url))
  const child = spawn(process.execPath, ['--import', 'tsx', file, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output += text
  })
  return {
    line: (begin) => new RegExp(`^${begin} (.*)$`, 'm').exec(output)?.[1],
    output: () => output,
    exitCode: () => child.exitCode,
  }
}
