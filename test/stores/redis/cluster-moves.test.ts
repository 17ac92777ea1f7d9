import { afterAll, beforeAll, expect, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisCluster, type SlotMove, startCluster } from '../../servers/redis-cluster.ts'
import type { RedisServer } from '../../servers/redis-server.ts'
import { clusterClients, newClusterClient } from './cluster-clients.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

let cluster: RedisCluster
beforeAll(async () => {
  cluster = await startCluster({ replicas: 0 })
}, 90_000)
afterAll(() => cluster.close())

test.each(Object.entries(clusterClients))(
  'a slot that moves from master to master under load loses nothing and gives nothing twice, through %s',
  async (name, newClient) => {
    const key = `moving with ${name}`
    const crews = Array.from({ length: 2 }, () => createLocks(redisStore(newClient(cluster))))
    const fences: bigint[] = []
    let inside = 0
    let stop = false
    const work = async (locks: (typeof crews)[number]): Promise<void> => {
      while (!stop) {
        await locks.withLock(key, { wait: '60s' }, async (lease) => {
          inside += 1
          expect(inside).toBe(1)
          fences.push(lease.fence)
          await lease.extend()
          expect(inside).toBe(1)
          inside -= 1
        })
      }
    }
    const crewsAtWork = Promise.all(crews.flatMap((locks) => [work(locks), work(locks), work(locks)]))
    for (let moves = 0; moves < 3; moves += 1) {
      const before = fences.length
      const move = await cluster.beginMove(roomOf(key), await anotherMaster(roomOf(key)))
      for (let keys = 0; keys < 2; keys += 1) await move.moveKey()
      await move.finish()
      // It goes on where it is now.
      await expect.poll(() => fences.length, { timeout: 20_000 }).toBeGreaterThan(before + 5)
    }
    stop = true
    await crewsAtWork
    expect(fences.every((fence, at) => at === 0 || fence > (fences[at - 1] as bigint))).toBe(true)
    for (const locks of crews) await locks.close()
    expect(((await cluster.command('KEYS', `*${key}*`)) as string[][]).flat()).toEqual([])
  },
  60_000,
)

test('a room is never left half done on a server that the slot is leaving', async () => {
  const key = 'half done'
  const [one, other] = [redisStore(newClusterClient(cluster)), redisStore(newClusterClient(cluster))]
  const [holder, waiter] = [ticket({ key }), ticket({ key })]
  const fence = fenceOf(await one.acquire(holder))
  const move = await cluster.beginMove(roomOf(key), await anotherMaster(roomOf(key)))
  // The room has to become another kind of key for the second ticket, and would be away for a moment.
  await expect(other.acquire(waiter)).rejects.toMatchObject({
    code: 'store-unavailable',
    message: expect.stringMatching(/^The slot of the key is being moved/),
  })
  expect(await one.renew([holder])).toEqual([{ tag: 'held', fence }])
  const asked = other.acquire(waiter)
  await move.finish()
  expect(await asked).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(await one.renew([holder])).toEqual([{ tag: 'held', fence }])
  await one.release(releaseOf(holder))
  expect(fenceOf(await other.acquire(waiter)) > fence).toBe(true)
  await other.release(releaseOf(waiter))
  for (const store of [one, other]) await store.close()
})

test('a room on one server and its last fence on another are waited for until they are together again', async () => {
  const key = 'torn apart'
  const store = redisStore(newClusterClient(cluster))
  const holder = ticket({ key })
  const fence = fenceOf(await store.acquire(holder))
  const { move, source } = await tornApart(key)
  await expect(
    source.command('EVAL', 'return 1', '2', await fenceNameOn(source, key), roomOf(key)),
  ).rejects.toThrow(/^TRYAGAIN/)
  const renewed = store.renew([holder])
  await move.finish()
  expect(await renewed).toEqual([{ tag: 'held', fence }])
  await store.release(releaseOf(holder))
  await store.close()
})

test('what is acquired, given up and asked for late while the slot moves has no effect', async () => {
  const key = 'given up'
  const store = redisStore(newClusterClient(cluster))
  const [holder, late] = [ticket({ key }), ticket({ key })]
  fenceOf(await store.acquire(holder))
  const { move } = await tornApart(key)
  const asked = store.acquire(late)
  const cancelled = store.release({ key, id: late.id, cancel: true })
  await move.finish()
  const [answer, was] = await Promise.all([asked, cancelled])
  // Whichever was first in the end: after both, the ticket is not there and does not come back.
  expect(['queued', 'gone']).toContain(answer.tag)
  expect(['queued', 'unknown']).toContain(was.was)
  expect(await store.acquire(late)).toMatchObject({ tag: 'gone' })
  await store.release(releaseOf(holder))
  await store.close()
})

function roomOf(key: string): string {
  return `holdfast:{${key}}`
}

async function anotherMaster(room: string): Promise<RedisServer> {
  const [masters, owner] = await Promise.all([cluster.masters(), cluster.masterOf(room)])
  return masters[(masters.indexOf(owner) + 1) % masters.length] as RedisServer
}

/** The move of a slot that has begun with the last fence. */
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
