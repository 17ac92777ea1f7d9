import { Cluster } from 'ioredis'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { RenewAnswer, Wake } from '../../../../src/contract/store.ts'
import { createLocks } from '../../../../src/index.ts'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { type RedisCluster, startCluster } from '../../../servers/redis-cluster.ts'
import type { RedisServer } from '../../../servers/redis-server.ts'
import { until } from '../../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../../tickets.ts'
import { startCrew } from '../crew.ts'
import { answered, hearsReset, keepsPlaces } from '../fail-over.ts'
import { clusterClients, newClusterClient } from './clients.ts'

let cluster: RedisCluster
beforeAll(async () => {
  cluster = await startCluster()
})
afterAll(() => cluster.close())

/** Brings servers that were killed or paused back as replicas. */
afterEach(async () => {
  for (const server of cluster.servers) if (!server.isRunning) await server.restart()
  await until(
    'all are back',
    async () => {
      const states = await Promise.all(cluster.servers.map((server) => server.command('CLUSTER', 'INFO')))
      const masters = await cluster.masters()
      const replicas = await Promise.all(masters.map((master) => master.command('INFO', 'replication')))
      return (
        states.every((state) => String(state).includes('cluster_state:ok')) &&
        masters.length === 3 &&
        replicas.every((info) => String(info).includes('state=online'))
      )
    },
    { everyMs: 50 },
  )
})

// The other clients are in conformance.test.ts, because each fail-over takes seconds.
describe.each(['ioredis 6', 'redis 6'])('through %s', (name) => {
  const newClient = clusterClients[name] as (typeof clusterClients)[string]

  test('a master that is killed is followed at once, with holders, queue and rising fences', async () => {
    const store = redisStore(newClient(cluster))
    await keepsPlaces(store, {
      key: 'killed',
      failOver: async () => {
        const former = await cluster.masterOf('holdfast:{killed}')
        await replicated(former)
        await former.kill()
        await cluster.successorOf(former, 'holdfast:{killed}')
      },
    })
    await store.close()
  })
})

test('a fail-over is followed although the search for the masters was refused before', async () => {
  const key = 'refused'
  const onAll = (...command: readonly string[]) =>
    Promise.all(cluster.servers.map((server) => server.command(...command)))
  await onAll('ACL', 'SETUSER', 'locks', 'reset', 'on', '>sesame', '~*', '&*', '+@all')
  const redisOptions = { username: 'locks', password: 'sesame' }
  const store = redisStore(new Cluster([...cluster.addresses], { redisOptions, lazyConnect: true }))
  await store.acquire(ticket({ key }))
  const former = await cluster.masterOf(`holdfast:{${key}}`)
  await replicated(former)
  await onAll('ACL', 'SETUSER', 'locks', '-cluster')
  await former.command('CLIENT', 'KILL', 'USER', 'locks')
  let before = 0
  await until(
    'the search has ended with a refusal',
    async () => {
      const infos = await onAll('INFO', 'commandstats')
      const [last, refused] = [before, sum(infos.map(refusedSearches))]
      before = refused
      return refused > 0 && refused === last
    },
    { everyMs: 500 },
  )
  await onAll('ACL', 'SETUSER', 'locks', '+@all')
  await former.kill()
  await cluster.successorOf(former, `holdfast:{${key}}`)
  await answered(() => store.acquire(ticket({ key })))
  await store.close()
})

function refusedSearches(info: unknown): number {
  return Number(/cluster\|slots:.*rejected_calls=(\d+)/.exec(String(info))?.[1] ?? 0)
}

function sum(counts: readonly number[]): number {
  return counts.reduce((one, other) => one + other, 0)
}

test('waiters ask again when the connection for the messages of their slot was lost', async () => {
  const store = redisStore(newClusterClient(cluster))
  const wakes: Wake[] = []
  await store.listen?.((wake) => wakes.push(wake))
  const [holder, waiter] = [ticket({ key: 'deaf' }), ticket({ key: 'deaf' })]
  for (const each of [holder, waiter]) await store.acquire(each)
  const master = await cluster.masterOf('holdfast:{deaf}')
  const id = await until('it listens', async () => {
    const list = String(await master.command('CLIENT', 'LIST', 'TYPE', 'pubsub'))
    return /^id=(\d+) .*cmd=ssubscribe/m.exec(list)?.[1]
  })
  wakes.length = 0
  await master.command('CLIENT', 'KILL', 'ID', id)
  await until('it is told to ask again', () => wakes.some(({ tag }) => tag === 'all'), { withinMs: 10_000 })
  for (const each of [waiter, holder]) await store.release(releaseOf(each))
  await store.close()
})

test('a grant that was lost with its master is told at once, and the next fence is higher', async () => {
  const room = 'holdfast:{lost}'
  await using locks = createLocks(redisStore(newClusterClient(cluster)))
  const former = await cluster.masterOf(room)
  const replica = await cluster.replicaOf(former)
  await (await locks.acquire('lost')).release()
  await replicated(former)
  // The replica receives no more writes of the master, and may still be promoted.
  await replica.command('CONFIG', 'SET', 'masteruser', 'nobody', 'masterauth', 'nothing')
  await former.command('CLIENT', 'KILL', 'TYPE', 'replica')
  const lost = await locks.acquire('lost', { ttl: '60s' })
  const isTold = hearsReset(lost)
  await former.kill()
  await cluster.successorOf(former, room)
  await replica.command('CONFIG', 'SET', 'masteruser', '', 'masterauth', '')
  // The next renewal would be due after 20 s, so something else tells the holder.
  await isTold()
  const next = await locks.acquire('lost')
  expect(next.fence > lost.fence).toBe(true)
})

test('a grant waits for the replica of the master that gives it', async () => {
  const store = redisStore(newClusterClient(cluster), { replicas: 1 })
  const mine = ticket({ key: 'replicated' })
  // The server may have become a replica a moment ago.
  const fence = fenceOf(await answered(() => store.acquire(mine)))
  const master = await cluster.masterOf('holdfast:{replicated}')
  const replica = await cluster.replicaOf(master)
  await replica.pause()
  await expect(store.renew([mine])).rejects.toMatchObject({
    code: 'store-unavailable',
    message: expect.stringContaining('0 repli'),
  })
  replica.resume()
  expect(await answered(() => store.renew([mine]))).toEqual([{ tag: 'held', fence }])
  await store.release(releaseOf(mine))
  await store.close()
})

test('a master that hangs holds up no key of another, until it is replaced', async () => {
  const store = redisStore(newClusterClient(cluster))
  const keys = Array.from({ length: 12 }, (_, index) => `hanging ${index}`)
  const tickets = keys.map((key) => ticket({ key }))
  for (const each of tickets) fenceOf(await store.acquire(each))
  const former = await cluster.masterOf('holdfast:{hanging 0}')
  const there = await Promise.all(
    keys.map(async (key) => (await cluster.masterOf(`holdfast:{${key}}`)) === former),
  )
  expect(new Set(there).size).toBe(2)
  await replicated(former)
  await former.pause()
  const [renewed, elsewhere] = await Promise.all([
    store.renew(tickets),
    store.acquire(ticket({ key: keys[there.indexOf(false)] as string, patienceMs: 0 })),
  ])
  expect(elsewhere).toMatchObject({ tag: 'busy' })
  expect(Array.from(renewed, (answer: RenewAnswer | undefined) => answer?.tag)).toEqual(
    there.map((hangs) => (hangs ? undefined : 'held')),
  )
  await cluster.successorOf(former, 'holdfast:{hanging 0}')
  const all = await until('all are answered', async () => {
    const answers = await answered(() => store.renew(tickets))
    return Array.from(answers, (answer: RenewAnswer | undefined) => answer?.tag).every(Boolean) && answers
  })
  expect(all.map(({ tag }) => tag)).toEqual(keys.map(() => 'held'))
  for (const each of tickets) await store.release(releaseOf(each))
  await store.close()
})

test('a master that hands over to its replica under load loses nothing and gives no key twice', async () => {
  const clients = [
    createLocks(redisStore(newClusterClient(cluster))),
    createLocks(redisStore(clusterClients['redis 5']?.(cluster) as never)),
  ]
  const crew = startCrew(clients, { key: 'handed over', callsEach: 2 })
  for (let round = 0; round < 2; round += 1) {
    await cluster.handOver('holdfast:{handed over}')
    const before = crew.turns
    await until('it goes on', () => crew.turns > before + 5)
  }
  await crew.stop()
})

test('masters that are killed while four keys are taken and released cost no fence its order', async () => {
  const crews = Array.from({ length: 2 }, () => createLocks(redisStore(newClusterClient(cluster))))
  const keys = ['north', 'east', 'south', 'west']
  const last = new Map<string, bigint>()
  let done = 0
  let stop = false
  const work = async (locks: (typeof crews)[number]): Promise<void> => {
    while (!stop) {
      const key = keys[done % keys.length] as string
      try {
        const lease = await locks.acquire(key, { wait: '60s', ttl: '20s' })
        // The key of a grant that was lost with its master may be granted again, but only under a higher fence.
        expect(lease.fence > (last.get(key) ?? 0n)).toBe(true)
        last.set(key, lease.fence)
        await lease.release()
        done += 1
      } catch (error) {
        expect(error).toMatchObject({
          code: expect.stringMatching(/^(lease-lost|acquire-timeout|store-unavailable)$/),
        })
      }
    }
  }
  const atWork = Promise.all(crews.flatMap((locks) => [work(locks), work(locks)]))
  const former = await cluster.masterOf('holdfast:{north}')
  await until('they are at work', () => done > 50)
  await former.kill()
  await cluster.successorOf(former, 'holdfast:{north}')
  const before = done
  await until('they go on', () => done > before + 50)
  stop = true
  await atWork
  for (const locks of crews) await locks.close()
})

test('rooms are listed from all masters, also when one of them is replaced between two pages', async () => {
  const store = redisStore(newClusterClient(cluster))
  const tickets = Array.from({ length: 40 }, (_, index) =>
    ticket({ key: `listed:${String(index).padStart(2, '0')}` }),
  )
  await Promise.all(tickets.map((each) => store.acquire(each)))
  const keys = new Set<string>()
  let cursor: string | undefined
  let replaced = false
  for (let pages = 0; pages < 200; pages += 1) {
    const page = await answered(() => store.inspect({ prefix: 'listed:', cursor, count: 3 }))
    for (const room of page.rooms) keys.add(room.key)
    cursor = page.next
    if (cursor === undefined) break
    if (replaced || keys.size < 20) continue
    replaced = true
    await cluster.handOver(`holdfast:{${page.rooms.at(-1)?.key}}`)
  }
  expect([...keys].sort()).toEqual(tickets.map(({ key }) => key))
  await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
  await store.close()
})

/** Waits until the replica has all writes that the master has received so far. */
async function replicated(server: RedisServer): Promise<void> {
  await until('the replica has everything', async () => {
    const info = String(await server.command('INFO', 'replication'))
    const [, at] = /master_repl_offset:(\d+)/.exec(info) ?? []
    const [, got] = /slave0:.*offset=(\d+)/.exec(info) ?? []
    return at !== undefined && at === got
  })
}
