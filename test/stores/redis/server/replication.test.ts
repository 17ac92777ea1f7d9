import { createClient } from 'redis'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../../../src/contract/store.ts'
import { createLocks, isHoldfastError } from '../../../../src/index.ts'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import type { RawConnection } from '../../../../src/stores/redis/server/client-link.ts'
import { Replication } from '../../../../src/stores/redis/server/replication.ts'
import { shortestMs, unlessLate } from '../../../base/measured.ts'
import { startSentinels } from '../../../servers/redis-sentinel.ts'
import { type RedisServer, startRedis } from '../../../servers/redis-server.ts'
import { startProxy } from '../../../servers/tcp-proxy.ts'
import { until } from '../../../servers/until.ts'
import { readProjectFile } from '../../../tidy/project.ts'
import { fenceOf, releaseOf, ticket } from '../../tickets.ts'
import { clients, newClient } from '../clients.ts'
import { answered } from '../fail-over.ts'

let server: RedisServer
let replica: RedisServer
beforeAll(async () => {
  server = await startRedis()
  replica = await startRedis({ replicaOf: server, args: ['--repl-ping-replica-period', '1'] })
})
beforeEach(async () => {
  replica.resume()
  await server.command('FLUSHALL')
  await replica.follows(server)
  await server.command('CONFIG', 'RESETSTAT')
})
afterAll(async () => {
  await replica.close()
  await server.close()
})

describe.each(Object.entries(clients))('a store that waits for a replica, through %s', (_, newClient) => {
  test('grants what the replica has, with one WAIT for each grant and each renewal', async () => {
    const store = redisStore(newClient(server.url), { replicas: 1 })
    const grants = async (): Promise<void> => {
      await server.command('CONFIG', 'RESETSTAT')
      await grantsOf20(store)
      expect((await server.commandStats())['wait']).toBe(40)
    }
    // A replica that gets no processor time for half a second counts as away.
    await unlessLate(grants, isUnavailable)
    await store.close()
  })

  async function grantsOf20(store: Store): Promise<void> {
    for (let round = 0; round < 20; round += 1) {
      const mine = ticket()
      fenceOf(await store.acquire(mine))
      expect(String(await replica.command('GET', 'holdfast:{key}'))).toContain(mine.id)
      expect(await store.renew([mine])).toMatchObject([{ tag: 'held' }])
      await store.release(releaseOf(mine))
    }
  }

  test('does not grant while the replica is away, says how many had it, and goes on when it is back', async () => {
    const store = redisStore(newClient(server.url), { replicas: 1 })
    const [mine, waiter] = [ticket(), ticket()]
    await replica.pause()
    await expect(store.acquire(mine)).rejects.toMatchObject({
      code: 'store-unavailable',
      key: 'key',
      message: expect.stringMatching(
        /^The grant had reached 0 replicas after 500 ms, and the option `replicas` asks for 1\./,
      ),
    })
    await expect(store.renew([mine])).rejects.toMatchObject({ code: 'store-unavailable' })
    // The waiter was granted nothing, so nothing could be lost.
    expect(await store.acquire(waiter)).toMatchObject({ tag: 'queued', ahead: 0 })
    replica.resume()
    const fence = await until('it is granted', () =>
      Promise.resolve(store.acquire(mine)).then(fenceOf, () => false as const),
    )
    expect(await answered(() => store.renew([mine, waiter]))).toMatchObject([
      { tag: 'held', fence },
      { tag: 'queued' },
    ])
    for (const each of [waiter, mine]) await store.release(releaseOf(each))
    await store.close()
  })

  test('fails requests that waited for a replica when the connection is lost, and requests written meanwhile', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const store = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`), { replicas: 1 })
    const warm = ticket({ key: 'warm' })
    await answered(() => store.acquire(warm))
    await replica.pause()
    // The first request waits for the replica when the connection is lost. The other one was written meanwhile.
    let lost: Promise<readonly PromiseSettledResult<unknown>[]> | undefined
    await until('it waits', async () => {
      // A request waits for half a second. A machine that stands still for as long does not see it wait.
      lost ??= Promise.allSettled([store.acquire(ticket({ key: crypto.randomUUID() }))]).finally(() => {
        lost = undefined
      })
      const info = String(await server.command('INFO', 'clients'))
      return lost !== undefined && info.includes('blocked_clients:1')
    })
    const waited = lost
    const also = Promise.allSettled([store.acquire(ticket({ key: 'two' }))])
    proxy.cut()
    for (const [outcome] of [(await waited) ?? [], await also])
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'store-unavailable' } })
    replica.resume()
    await store.close()
  })
})

test('the replicas’ answer about one connection says nothing of what was written to the connection before', async () => {
  const waits: ((got: number) => void)[] = []
  const connection: RawConnection = {
    send: () => new Promise((resolve) => waits.push(resolve)),
    reasonOf: (error) => error,
    close: () => {},
  }
  const replication = new Replication(1)
  const grant = (fence: string): Promise<unknown> =>
    replication.cover(Promise.resolve(`h${fence}`), connection)
  const first = grant('1')
  await until('the first is waited for', () => waits.length === 1)
  const before = Promise.allSettled([first, grant('2')])
  replication.lost()
  const after = grant('3')
  await until('the last is waited for', () => waits.length === 2)
  for (const answer of waits) answer(1)
  for (const outcome of await before) expect(outcome.status).toBe('rejected')
  expect(await after).toBe('h3')
})

describe('a store that waits for a replica', () => {
  test('needs +wait besides the rights of any other, and says so', async () => {
    const [, rights = ''] =
      /^ACL SETUSER locks on >a-good-password (.*)$/m.exec(readProjectFile('docs/redis.md')) ?? []
    const user = ['ACL', 'SETUSER', 'locks', 'reset', 'on', '>secret', ...rights.split(' ')]
    const url = `redis://locks:secret@127.0.0.1:${server.port}`
    await server.command(...user)
    const refused = redisStore(newClient(url), { replicas: 1 })
    await expect(refused.acquire(ticket({ key: 'refused' }))).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('docs/redis.md'),
    })
    await server.command(...user, '+wait')
    await server.command('ACL', 'LOG', 'RESET')
    const store = redisStore(newClient(url), { replicas: 1 })
    const mine = ticket()
    fenceOf(await answered(() => store.acquire(mine)))
    await store.release(releaseOf(mine))
    expect(await server.command('ACL', 'LOG')).toEqual([])
    for (const each of [refused, store]) await each.close()
  })

  test('waits once for all requests that are made in the meantime, also when no replica answers', async () => {
    const store = redisStore(newClient(server.url), { replicas: 1 })
    const warm = ticket({ key: 'warm' })
    fenceOf(await answered(() => store.acquire(warm)))
    await replica.pause()
    const tookMs = await shortestMs(5000, async () => {
      const begun = performance.now()
      const asked: Promise<unknown>[] = []
      for (let request = 0; request < 20; request += 1) {
        asked.push(Promise.resolve(store.acquire(ticket({ key: crypto.randomUUID() }))))
        await new Promise((resolve) => setImmediate(resolve))
      }
      const outcomes = await Promise.allSettled(asked)
      expect(outcomes.every(({ status }) => status === 'rejected')).toBe(true)
      return performance.now() - begun
    })
    // 20 time limits one after the other would take 10 s.
    expect(tookMs).toBeLessThan(5000)
    await store.close()
  })

  test('undoes a grant that was not replicated when its caller gives up, and loses a lease in time that is no longer replicated', async () => {
    const locks = createLocks(redisStore(newClient(server.url), { replicas: 1 }))
    const lease = await locks.acquire('held', { ttl: '3s' })
    await replica.pause()
    await expect(locks.acquire('new', { wait: '1s' })).rejects.toMatchObject({ key: 'new' })
    await until('it was given back', async () => {
      for await (const room of locks.inspect({ prefix: 'new' })) return room.holders.length === 0
      return true
    })
    await until('the lease is lost', () => lease.state === 'lost')
    expect(() => lease.assertHeld()).toThrow(/deadline passed/)
    replica.resume()
    expect(await answered(() => locks.tryAcquire('new'))).not.toBeNull()
    await locks.close()
  })

  test('keeps through a fail-over the leases that it has granted', async () => {
    await using group = await startSentinels()
    await group.servers[1]?.follows(await group.master())
    const store = redisStore(createClient(), {
      replicas: 1,
      sentinel: { name: group.name, nodes: group.addresses },
    })
    const held = Array.from({ length: 50 }, (_, index) => ticket({ key: `key ${index}` }))
    const fences = (await Promise.all(held.map((each) => answered(() => store.acquire(each))))).map(fenceOf)
    const former = await group.master()
    await former.kill()
    await group.successorOf(former)
    // The new master has no replica yet, so nothing is granted or confirmed.
    await expect(store.renew(held)).rejects.toMatchObject({ code: 'store-unavailable' })
    await former.restart()
    const renewed = await until('there is a replica again', () =>
      Promise.resolve(store.renew(held)).catch(() => false as const),
    )
    expect(renewed.map(fenceOf)).toEqual(fences)
    await store.close()
  })

  test.each([-1, 1.5, 101, Number.NaN, '1'])('refuses `replicas: %s`', (replicas) => {
    const make = (): Store => redisStore(newClient(server.url), { replicas: replicas as number })
    expect(make).toThrow(/^Expected `replicas` to be a whole number from 0 to 100, got /)
  })
})

function isUnavailable(error: unknown): boolean {
  return isHoldfastError(error, 'store-unavailable')
}
