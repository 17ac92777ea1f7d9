import { Cluster, Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { createLocks, type Locks } from '../../../src/index.ts'
import { type RedisStoreOptions, redisStore } from '../../../src/stores/redis/index.ts'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import { shortestMs, undisturbed, unlessLate } from '../../base/measured.ts'
import { PATIENT_MASTERS, startCluster } from '../../servers/redis-cluster.ts'
import { PATIENT_SENTINELS, startSentinels } from '../../servers/redis-sentinel.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { type FaultProxy, startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { startMasters } from '../redlock/masters.ts'
import { type Client, clients, newClient } from './clients.ts'

/** A firewall forgets the connections of a store: they stay open, and no byte passes any more. New connections work. */
describe.concurrent.each(Object.entries(clients))(
  'a connection that dies silently, through %s,',
  (_, newClient) => {
    let server: RedisServer
    beforeAll(async () => {
      server = await startRedis()
    })
    afterAll(() => server.close())

    test('costs no lease of three seconds', async () => {
      await using proxy = await startProxy({ targetPort: server.port })
      await outlives(() => redisStore(newClient(`redis://127.0.0.1:${proxy.port}`)), [proxy])
    })

    test('delays the next try by less than four seconds', async () => {
      const tookMs = await shortestMs(4000, async () => {
        await using proxy = await startProxy({ targetPort: server.port })
        await using locks = locksAt(proxy.port, newClient)
        await (await locks.acquire('used')).release()
        proxy.strand()
        const triedAt = performance.now()
        const lease = await locks.tryAcquire('tried')
        const delayMs = performance.now() - triedAt
        await lease?.release()
        return delayMs
      })
      expect(tookMs).toBeLessThan(4000)
    })

    test('is replaced, so that messages wake a waiter again', { timeout: 120_000 }, async () => {
      await using proxy = await startProxy({ targetPort: server.port })
      const [locks, others] = [locksAt(proxy.port, newClient), locksAt(server.port, newClient)]
      let isWoken = false
      locks.on('acquired', ({ wokenMs }) => {
        isWoken = wokenMs !== undefined
      })
      const handsOver = async (): Promise<boolean> => {
        isWoken = false
        const held = await others.acquire('messages')
        const next = locks.acquire('messages')
        await until('it waits', async () => (await others.peek('messages'))?.queue.length === 1)
        await held.release()
        await (await next).release()
        return isWoken
      }
      await until('a message wakes it', handsOver)
      proxy.strand()
      await until('a message wakes it again', handsOver)
      await Promise.all([locks, others].map((each) => each.close()))
    })

    test('delays a release by less than four seconds', async () => {
      const tookMs = await shortestMs(4000, async () => {
        await using proxy = await startProxy({ targetPort: server.port })
        await using locks = locksAt(proxy.port, newClient)
        await using others = locksAt(server.port, newClient)
        const lease = await locks.acquire('released', { ttl: 60_000 })
        proxy.strand()
        const releasedAt = performance.now()
        await lease.release()
        await (await others.acquire('released')).release()
        return performance.now() - releasedAt
      })
      expect(tookMs).toBeLessThan(4000)
    })
  },
)

describe.concurrent('all connections that die at once cost no lease of three seconds', () => {
  const host = '127.0.0.1'

  test('on a master that Sentinels know', async () => {
    await using group = await startSentinels(PATIENT_SENTINELS)
    const { servers, addresses, name } = group
    await using proxies = await proxiesOf(servers)
    const natMap = natMapOf(servers, proxies.all)
    await outlives(() => {
      return redisStore(new Redis({ sentinels: [...addresses], name, natMap, lazyConnect: true }))
    }, proxies.all)
  })

  test('on a cluster', async () => {
    await using cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
    await using proxies = await proxiesOf(cluster.servers)
    const natMap = natMapOf(cluster.servers, proxies.all)
    await outlives(() => {
      return redisStore(new Cluster([...cluster.addresses], { natMap, lazyConnect: true }))
    }, proxies.all)
  })

  test('on several masters', async () => {
    await using masters = await startMasters(3)
    await using proxies = await proxiesOf(masters.servers)
    await outlives(() => {
      const masterClients = proxies.all.map(({ port }) => newClient(`redis://${host}:${port}`))
      return redlockStore(masterClients, { maxTtl: '10m' })
    }, proxies.all)
  })

  function natMapOf(servers: readonly RedisServer[], proxies: readonly FaultProxy[]): NatMap {
    return Object.fromEntries(
      servers.map(({ port }, at) => [`${host}:${port}`, { host, port: proxies[at]?.port ?? port }]),
    )
  }
})

type NatMap = Record<string, { host: string; port: number }>

async function proxiesOf(
  servers: readonly RedisServer[],
): Promise<AsyncDisposable & { readonly all: readonly FaultProxy[] }> {
  const all = await Promise.all(servers.map(({ port }) => startProxy({ targetPort: port })))
  return {
    all,
    [Symbol.asyncDispose]: async () => {
      await Promise.all(all.map((proxy) => proxy.close()))
    },
  }
}

/** Checks that a short lease is held for eight seconds after all connections of the store have died. */
async function outlives(openStore: () => Store, proxies: readonly FaultProxy[]): Promise<void> {
  // On a busy machine a new connection may take longer than the lease lasts.
  await unlessLate(
    async () => {
      await using locks = createLocks(openStore())
      const lease = await locks.acquire('short', { ttl: 3000 })
      const { signal, fence } = lease
      for (const proxy of proxies) proxy.strand()
      await passed(8000)
      expect(signal.aborted).toBe(false)
      expect(lease.state).toBe('held')
      expect(await locks.peek('short')).toMatchObject({ holders: [{ id: lease.id, fence }] })
      await lease.release()
    },
    () => true,
  )
}

describe('a server that answers late', () => {
  let server: RedisServer
  let locks: Locks
  beforeAll(async () => {
    server = await startRedis()
  })
  afterEach(() => locks.close())
  afterAll(() => server.close())

  test('because it hangs for six seconds gets at most two connections more, and costs no lease', async () => {
    locks = locksAt(server.port, newClient)
    const lease = await locks.acquire('hangs', { ttl: 20_000 })
    const opened = await connectionsSince(server)
    const trying = await whilePaused(server, 6000, () => locks.acquire('meanwhile'))
    await trying.release()
    expect(await opened()).toBeLessThanOrEqual(2)
    await lease.extend()
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('because it hangs again and again keeps its connection, and gets at most one more in five seconds', async () => {
    locks = locksAt(server.port, newClient)
    const failures = failuresOf(locks)
    await (await locks.acquire('warm')).release()
    const opened = await connectionsSince(server)
    const startedAt = performance.now()
    for (let round = 0; round < 4; round += 1) {
      const trying = await whilePaused(server, 900, () => locks.acquire('slow'))
      await trying.release()
    }
    expect(await opened()).toBeLessThanOrEqual(1 + (performance.now() - startedAt) / 5000)
    expect(failures).toEqual([])
  })

  test('because scripts are held back in a fail-over keeps its connection', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    locks = locksAt(proxy.port, newClient)
    const failures = failuresOf(locks)
    await (await locks.acquire('warm')).release()
    await server.command('CLIENT', 'PAUSE', '2500', 'WRITE')
    await (await locks.acquire('paused')).release()
    expect(failures).toEqual([])
    await until('only the first connection is left', () => proxy.connections === 1)
  })

  test('because replicas are missing keeps its connection', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    // On a busy machine the server may be silent long enough for a second connection.
    const connections = await undisturbed(
      (count) => count === 1,
      async () => {
        locks = locksAt(proxy.port, newClient, { replicas: 1 })
        const failures = failuresOf(locks)
        const opened = await connectionsSince(server)
        await expect(locks.acquire('unreplicated', { wait: 4000 })).rejects.toThrow()
        for (const failure of failures) expect(failure).toContain('had reached 0 replicas')
        const count = await opened()
        await locks.close()
        return count
      },
    )
    expect(connections).toBe(1)
  })
})

/** The result of a call that begins while the server hangs. */
async function whilePaused<T>(server: RedisServer, ms: number, call: () => Promise<T>): Promise<T> {
  await server.pause()
  try {
    const result = call()
    await passed(ms)
    server.resume()
    return await result
  } finally {
    server.resume()
  }
}

/** Grows by each request that fails, and not by one that is only late. */
function failuresOf(locks: Locks): readonly string[] {
  const failures: string[] = []
  locks.on('store-error', ({ error }) => {
    if (error !== undefined) failures.push(String(error))
  })
  return failures
}

function locksAt(port: number, newClient: (url: string) => Client, options?: RedisStoreOptions): Locks {
  return createLocks(redisStore(newClient(`redis://127.0.0.1:${port}`), options))
}

async function passed(ms: number): Promise<void> {
  const endsAt = performance.now() + ms
  await until('the time has passed', () => performance.now() >= endsAt)
}

/** How many connections the server has accepted since this call, apart from those of the questions themselves. */
async function connectionsSince(server: RedisServer): Promise<() => Promise<number>> {
  const accepted = async (): Promise<number> => {
    const stats = String(await server.command('INFO', 'stats'))
    return Number(/^total_connections_received:(\d+)/m.exec(stats)?.[1])
  }
  const before = await accepted()
  return async () => (await accepted()) - before - 1
}
