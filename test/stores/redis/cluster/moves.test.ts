import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLocks } from '../../../../src/index.ts'
import { slotOf } from '../../../../src/stores/redis/cluster/slots.ts'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import {
  PATIENT_MASTERS,
  type RedisCluster,
  type SlotMove,
  startCluster,
} from '../../../servers/redis-cluster.ts'
import { type RedisOptions, type RedisServer, startRedis } from '../../../servers/redis-server.ts'
import { until } from '../../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../../tickets.ts'
import { startCrew } from '../crew.ts'
import { clusterClients, newClusterClient } from './clients.ts'

let cluster: RedisCluster
beforeAll(async () => {
  cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
})
afterAll(() => cluster.close())

test.each(Object.entries(clusterClients))(
  'a slot that moves from master to master under load loses nothing and gives no key twice, through %s',
  async (name, newClient) => {
    const key = `moving with ${name}`
    const clients = Array.from({ length: 2 }, () => createLocks(redisStore(newClient(cluster))))
    const crew = startCrew(clients, { key, callsEach: 3 })
    for (let moves = 0; moves < 3; moves += 1) {
      const before = crew.turns
      const move = await cluster.beginMove(roomOf(key), await anotherMaster(roomOf(key)))
      for (let keys = 0; keys < 2; keys += 1) await move.moveKey()
      await move.finish()
      // The work goes on where the slot is now.
      await expect.poll(() => crew.turns, { timeout: 60_000 }).toBeGreaterThan(before + 5)
    }
    await crew.stop()
    expect(((await cluster.command('KEYS', `*${key}*`)) as string[][]).flat()).toEqual([])
  },
)

test('a room is never left half done on a server that the slot is leaving', async () => {
  const key = 'half done'
  const [one, other] = [redisStore(newClusterClient(cluster)), redisStore(newClusterClient(cluster))]
  const [holder, waiter] = [ticket({ key }), ticket({ key })]
  const fence = fenceOf(await one.acquire(holder))
  const move = await cluster.beginMove(roomOf(key), await anotherMaster(roomOf(key)))
  // For the second ticket the room has to become another kind of key, which would be away for a moment.
  await expect(other.acquire(waiter)).rejects.toMatchObject({
    code: 'store-unavailable',
    message: expect.stringMatching(/^The slot of the key is being moved/),
  })
  expect(await one.renew([holder])).toEqual([{ tag: 'held', fence }])
  const asked = await whileItMoves(move, () => other.acquire(waiter))
  expect(asked).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(await one.renew([holder])).toEqual([{ tag: 'held', fence }])
  await one.release(releaseOf(holder))
  expect(fenceOf(await other.acquire(waiter)) > fence).toBe(true)
  await other.release(releaseOf(waiter))
  for (const store of [one, other]) await store.close()
})

test('the store waits for a room on one server and its last fence on another until both are together again', async () => {
  const key = 'torn apart'
  const store = redisStore(newClusterClient(cluster))
  const holder = ticket({ key })
  const fence = fenceOf(await store.acquire(holder))
  const { move, source } = await tornApart(key)
  await expect(
    source.command('EVAL', 'return 1', '2', await fenceNameOn(source, key), roomOf(key)),
  ).rejects.toThrow(/^TRYAGAIN/)
  const renewed = await whileItMoves(move, () => store.renew([holder]))
  expect(renewed).toEqual([{ tag: 'held', fence }])
  await store.release(releaseOf(holder))
  await store.close()
})

test('waiters that are remembered together wait on while their slot moves', async () => {
  const key = 'with a group'
  const store = redisStore(newClusterClient(cluster))
  const holder = ticket({ key })
  const waiters = Array.from({ length: 20 }, () => ticket({ key }))
  fenceOf(await store.acquire(holder))
  await Promise.all(waiters.map((waiter) => store.acquire(waiter)))
  for (let round = 0; round < 2; round += 1) await store.renew(waiters)
  for (let moves = 0; moves < 2; moves += 1) {
    const source = await cluster.masterOf(roomOf(key))
    const move = await cluster.beginMove(roomOf(key), await anotherMaster(roomOf(key)))
    // The question is gathered where the slot is, and asked while it moves.
    const asked = await whileItMoves(move, () => store.renew(waiters))
    expect(new Set(asked.map(({ tag }) => tag))).toEqual(new Set(['queued']))
    expect((await cluster.masterOf(roomOf(key))).port).not.toBe(source.port)
    expect(new Set((await store.renew(waiters)).map(({ tag }) => tag))).toEqual(new Set(['queued']))
  }
  const { rooms } = await store.inspect({ prefix: key, cursor: undefined, count: 1 })
  expect(rooms[0]?.queue.map(({ id }) => id)).toEqual(waiters.map(({ id }) => id))
  await store.release(releaseOf(holder))
  fenceOf((await store.renew(waiters.slice(0, 1)))[0])
  await store.close()
})

test('a ticket that is acquired, cancelled and asked for late while the slot moves has no effect', async () => {
  const key = 'given up'
  const store = redisStore(newClusterClient(cluster))
  const [holder, late] = [ticket({ key }), ticket({ key })]
  fenceOf(await store.acquire(holder))
  const { move } = await tornApart(key)
  const [answer, was] = await whileItMoves(move, () =>
    Promise.all([store.acquire(late), store.release({ key, id: late.id, cancel: true })]),
  )
  // The order of the two requests does not matter: after both, the ticket is not there and does not come back.
  expect(['queued', 'gone']).toContain(answer.tag)
  expect(['queued', 'unknown']).toContain(was.was)
  expect(await store.acquire(late)).toMatchObject({ tag: 'gone' })
  await store.release(releaseOf(holder))
  await store.close()
})

test('rooms are listed although a master loses its last slot while it answers', async () => {
  const options: RedisOptions = { isMember: true, args: ['--cluster-allow-replica-migration', 'no'] }
  await using small = await startRedis(options)
  await using large = await startRedis(options)
  await small.command('CLUSTER', 'ADDSLOTS', '0')
  await large.command('CLUSTER', 'ADDSLOTSRANGE', '1', '16383')
  await large.command('CLUSTER', 'SET-CONFIG-EPOCH', '2')
  const [, busPort] = (await large.command('CONFIG', 'GET', 'cluster-port')) as [string, string]
  await small.command('CLUSTER', 'MEET', '127.0.0.1', large.port, busPort)
  await until('both say that the cluster is fine', async () => {
    const infos = await Promise.all([small, large].map((server) => server.command('CLUSTER', 'INFO')))
    return infos.every((info) => String(info).includes('cluster_state:ok'))
  })
  const numbers = Array.from({ length: 100_000 }, (_, number) => `${number}`)
  const [first = '', ...others] = numbers.filter((key) => slotOf(roomOf(key)) === 0)
  const store = redisStore(newClusterClient({ addresses: [{ host: '127.0.0.1', port: small.port }] }))
  fenceOf(await store.acquire(ticket({ key: first })))
  await small.command('FLUSHALL')
  const target = String(await large.command('CLUSTER', 'MYID'))
  for (const server of [large, small]) await server.command('CLUSTER', 'SETSLOT', '0', 'NODE', target)
  await small.pause()
  const asked = others.map((key) => store.acquire(ticket({ key })))
  // Both requests are under way. The server says first that it has no slot any more, and then lists its rooms.
  await new Promise((resolve) => setImmediate(resolve))
  const listed = store.inspect({ prefix: '', cursor: undefined, count: 10 })
  await new Promise((resolve) => setImmediate(resolve))
  small.resume()
  for (const answer of await Promise.all(asked)) fenceOf(answer)
  expect(others).toEqual(expect.arrayContaining((await listed).rooms.map((room) => room.key)))
  await store.close()
})

test('a master that gets a slot of another one during a listing is not left out of it', async () => {
  const client = newClusterClient(cluster)
  const foreign = Array.from({ length: 6000 }, (_, number) => `theirs:${number}`)
  await Promise.all(foreign.map((name) => client.set(name, '')))
  const store = redisStore(newClusterClient(cluster))
  const tickets = Array.from({ length: 60 }, (_, number) => ticket({ key: `listed:${number}` }))
  await Promise.all(tickets.map((each) => store.acquire(each)))
  const seen = new Map<string, RedisServer>()
  let [cursor, first, isMoved]: [string | undefined, RedisServer | undefined, boolean] = [
    undefined,
    undefined,
    false,
  ]
  do {
    const { rooms, next } = await store.inspect({ prefix: 'listed:', cursor, count: 1 })
    cursor = next
    for (const { key } of rooms) {
      const master = await cluster.masterOf(roomOf(key))
      seen.set(key, master)
      first ??= master
      if (isMoved || master === first) continue
      // The first room of the second master. A slot of the first one comes to it, and the store hears of that.
      isMoved = true
      const [moved = ''] = [...seen].find(([, on]) => on === first) ?? []
      const move = await cluster.beginMove(roomOf(moved), master)
      await move.finish()
      expect(await store.acquire(ticket({ key: moved, patienceMs: 0 }))).toMatchObject({ tag: 'busy' })
    }
  } while (cursor !== undefined)
  expect([...seen.keys()].sort()).toEqual(tickets.map(({ key }) => key).sort())
  await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
  await Promise.all(foreign.map((name) => client.del(name)))
  client.disconnect()
  await store.close()
})

function roomOf(key: string): string {
  return `holdfast:{${key}}`
}

/**
 * The answer to what is asked before the slot is where it goes. A request waits for a second. If the machine was too slow for
 * that, it asks again.
 */
async function whileItMoves<T>(move: SlotMove, ask: () => T | Promise<T>): Promise<T> {
  const from = performance.now()
  const asked = Promise.allSettled([ask()])
  await move.finish()
  const tookMs = performance.now() - from
  const [outcome] = await asked
  if (outcome.status === 'fulfilled') return outcome.value
  if (tookMs < 900) throw outcome.reason
  return ask()
}

async function anotherMaster(room: string): Promise<RedisServer> {
  const [masters, owner] = await Promise.all([cluster.masters(), cluster.masterOf(room)])
  return masters[(masters.indexOf(owner) + 1) % masters.length] as RedisServer
}

/** Begins to move a slot, and moves the last fence first. */
async function tornApart(key: string): Promise<{ readonly move: SlotMove; readonly source: RedisServer }> {
  const source = await cluster.masterOf(roomOf(key))
  const fence = await fenceNameOn(source, key)
  const move = await cluster.beginMove(roomOf(key), await anotherMaster(roomOf(key)))
  await move.moveKey(fence)
  return { move, source }
}

const fenceNames = new Map<string, string>()

async function fenceNameOn(server: RedisServer, key: string): Promise<string> {
  const known = fenceNames.get(key)
  if (known !== undefined) return known
  const slot = String(await server.command('CLUSTER', 'KEYSLOT', roomOf(key)))
  const names = (await server.command('CLUSTER', 'GETKEYSINSLOT', slot, '10')) as string[]
  const name = names.find((each) => each.endsWith('}fence')) ?? ''
  fenceNames.set(key, name)
  return name
}
