import { Cluster } from 'ioredis'
import { createClient, createCluster } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Store, Wake } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import { PATIENT_MASTERS, type RedisCluster, startCluster } from '../../servers/redis-cluster.ts'
import { PATIENT_SENTINELS, startSentinels } from '../../servers/redis-sentinel.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { type FaultProxy, startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { startMasters } from '../redlock/masters.ts'
import { releaseOf, ticket } from '../tickets.ts'
import { clients, newClient } from './clients.ts'

/**
 * The store replaces a silent connection after ten seconds. This limit only ends a test whose connection is never
 * replaced.
 */
const PATIENT = { withinMs: 60_000, everyMs: 100 }
const TEST_MS = 120_000

describe.each(Object.entries(clients))('one server, through %s', (_, newClient) => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.close())

  test(
    'a connection that is silent from its first request on is replaced',
    async () => {
      await using proxy = await startProxy({ targetPort: server.port })
      proxy.silenceNext()
      const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
      await answers(store)
      await store.close()
    },
    TEST_MS,
  )

  test(
    'a connection that is silent before the password was taken is replaced, too',
    async () => {
      await using locked = await startRedis({ password: 'sesame' })
      await using proxy = await startProxy({ targetPort: locked.port })
      proxy.silenceNext()
      const store = redisStore(newClient(`redis://:sesame@127.0.0.1:${proxy.port}`))
      await answers(store)
      await store.close()
    },
    TEST_MS,
  )

  test(
    'a subscription that falls silent is replaced, and messages come again',
    async () => {
      await using proxy = await startProxy({ targetPort: server.port })
      const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
      await hearsAgain(store, redisStore(newClient(server.url)), () => proxy.silence('subscribe'))
    },
    TEST_MS,
  )

  test(
    'a subscription that is silent from the beginning is replaced, too',
    async () => {
      await using proxy = await startProxy({ targetPort: server.port })
      proxy.silenceNext()
      const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
      await store.listen?.(() => {})
      await store.close()
    },
    TEST_MS,
  )
})

test(
  'a master that Sentinels know: first request and subscription alike',
  async () => {
    await using group = await startSentinels(PATIENT_SENTINELS)
    const [told] = group.servers as [RedisServer]
    await using proxy = await startProxy({ targetPort: told.port })
    const [host, name] = ['127.0.0.1', group.name]
    const natMap = { [`${host}:${told.port}`]: { host, port: proxy.port } }
    const { Redis } = await import('ioredis')
    const sentinels = [...group.addresses]
    proxy.silenceNext()
    const store = redisStore(new Redis({ sentinels, name, natMap, lazyConnect: true }))
    await answers(store)
    const other = redisStore(createClient(), { sentinel: { name, nodes: sentinels } })
    await hearsAgain(store, other, () => proxy.silence('subscribe'))
  },
  TEST_MS,
)

describe('a cluster', () => {
  let cluster: RedisCluster
  const proxies = new Map<number, FaultProxy>()
  beforeAll(async () => {
    cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
    for (const { port } of cluster.servers) proxies.set(port, await startProxy({ targetPort: port }))
  })
  afterAll(async () => {
    for (const each of [...proxies.values(), cluster]) await each.close()
  })

  const through = (address: string): { host: string; port: number } => {
    const port = Number(address.slice(address.lastIndexOf(':') + 1))
    return { host: '127.0.0.1', port: proxies.get(port)?.port ?? port }
  }
  const natMap = (): Record<string, { host: string; port: number }> =>
    Object.fromEntries(
      cluster.addresses.map(({ port }) => [`127.0.0.1:${port}`, through(`127.0.0.1:${port}`)]),
    )
  const stores: Readonly<Record<string, () => Store>> = {
    ioredis: () => redisStore(new Cluster([...cluster.addresses], { natMap: natMap(), lazyConnect: true })),
    redis: () =>
      redisStore(
        createCluster({
          rootNodes: cluster.addresses.map((socket) => ({ socket })),
          nodeAddressMap: natMap(),
        }),
      ),
  }

  test.each(Object.entries(stores))(
    'a connection that is silent from its first request on is replaced, through %s',
    async (_, newStore) => {
      const store = newStore()
      // The store uses connections of their own to ask for the map of the cluster.
      await store.acquire(ticket({ key: '{a}warm', patienceMs: 0 }))
      const { port } = await cluster.masterOf('holdfast:{b}')
      proxies.get(port)?.silenceNext()
      await answers(store, 'b')
      await store.close()
    },
    TEST_MS,
  )

  test.each(Object.entries(stores))(
    'the subscription for all keys and the one for a slot are replaced when they fall silent, through %s',
    async (_, newStore) => {
      const silence = (): number => {
        let count = 0
        for (const proxy of proxies.values()) count += proxy.silence('subscribe')
        return count
      }
      await hearsAgain(newStore(), newStore(), silence)
    },
    TEST_MS,
  )
})

test(
  'one of several masters: its first connection and the subscriptions on all of them',
  async () => {
    await using masters = await startMasters(3)
    const proxies = await Promise.all(masters.servers.map(({ port }) => startProxy({ targetPort: port })))
    const newStore = (): Store =>
      redlockStore(
        proxies.map(({ port }) => newClient(`redis://127.0.0.1:${port}`)),
        { maxTtl: '10m' },
      )
    proxies[0]?.silenceNext()
    const store = newStore()
    let round = 0
    await until(
      'the first of them votes, too',
      async () => {
        round += 1
        const mine = ticket({ key: `votes:${round}` })
        await store.acquire(mine)
        // Waits until the vote has reached the server that was not waited for.
        const voted = await until(
          'it votes',
          async () =>
            masters.servers[0]?.command('EXISTS', `holdfast:{${mine.key}}`).then((count) => count === 1),
          { withinMs: 500 },
        ).catch(() => false)
        await store.release(releaseOf(mine))
        return voted
      },
      PATIENT,
    )
    await hearsAgain(store, newStore(), () => {
      let count = 0
      for (const proxy of proxies) count += proxy.silence('subscribe')
      return count
    })
    for (const proxy of proxies) await proxy.close()
  },
  TEST_MS,
)

/** Asks as the engine does: it asks again while an earlier request has no answer. */
async function answers(store: Store, key = 'first'): Promise<void> {
  const mine = ticket({ key })
  let answered = false
  await until(
    'the store answers',
    () => {
      void Promise.resolve(store.acquire(mine)).then(
        () => {
          answered = true
        },
        () => {},
      )
      return answered
    },
    { ...PATIENT, everyMs: 500 },
  )
  await store.release(releaseOf(mine))
}

/** Checks that the process of `store` is woken again, although nobody ends the connections that `silence` takes. */
async function hearsAgain(store: Store, other: Store, silence: () => number): Promise<void> {
  const wakes: Wake[] = []
  await store.listen?.((wake) => wakes.push(wake))
  // The key is always the same. A cluster's store listens to each slot separately, and would listen to a new slot on a
  // sound connection.
  const key = 'hears'
  const wakesFlow = async (): Promise<boolean> => {
    const [holder, head] = [ticket({ key }), ticket({ key })]
    await other.acquire(holder)
    await store.acquire(head)
    // The waiter asks again, so that a cluster's store listens to the slot.
    await store.renew([head])
    await other.release(releaseOf(holder))
    const woken = await until(
      'the wake has come',
      () => wakes.some((wake) => wake.tag !== 'all' && wake.id === head.id),
      { withinMs: 1000 },
    ).catch(() => false)
    await store.release(releaseOf(head))
    return woken
  }
  await until('wakes flow', wakesFlow)
  expect(silence()).toBeGreaterThan(0)
  await until('wakes flow again', wakesFlow, PATIENT)
  for (const view of [store, other]) await view.close()
}
