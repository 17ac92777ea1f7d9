import { describe, expect, test } from 'vitest'
import { type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import { createLocks } from '../../../src/index.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { openRedlock } from '../../../src/stores/redlock/index.ts'
import { RedlockStore } from '../../../src/stores/redlock/redlock-store.ts'
import { shortestMs } from '../../base/measured.ts'
import type { RedisServer } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { newClient } from '../redis/clients.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { type Masters, startMasters, votedFence } from './masters.ts'
import { steeredLink } from './steered-link.ts'

describe('servers that let nobody hear messages for a while', () => {
  test('have waiters woken by them later', async () => {
    await using masters = await startMasters(3)
    const right = (mark: '+' | '-') =>
      Promise.all(
        masters.servers.map((server) => server.command('ACL', 'SETUSER', 'default', `${mark}subscribe`)),
      )
    await right('-')
    const store = masters.store()
    await expect(Promise.resolve(store.listen?.(() => {}))).rejects.toMatchObject({ code: 'store-refused' })
    await right('+')
    const woken: string[] = []
    await until('it hears messages', async () => {
      try {
        await store.listen?.((wake) => wake.tag !== 'all' && woken.push(wake.id))
        return true
      } catch {
        return false
      }
    })
    const [holder, waiter] = [ticket(), ticket()]
    fenceOf(await store.acquire(holder))
    expect(await store.acquire(waiter)).toMatchObject({ tag: 'queued' })
    await store.release(releaseOf(holder))
    await until('the waiter is woken', () => woken.includes(waiter.id))
    await store.close()
  })
})

describe('a server that hangs', () => {
  test('costs nothing: not on connecting, and not on acquire, renewal or release', async () => {
    await using masters = await startMasters(5)
    await masters.servers[1]?.pause()
    const tookMs = await shortestMs(250, async () => {
      const startedAt = performance.now()
      const store = await openRedlock(`redlock:${masters.urls}`)
      const mine = ticket({ ttlMs: 20_000 })
      const fence = fenceOf(await store.acquire(mine))
      expect(await store.renew([mine])).toEqual([{ tag: 'held', fence }])
      expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
      await store.close()
      return performance.now() - startedAt
    })
    // A store that has never met the server would wait 300 ms for its answer.
    expect(tookMs).toBeLessThan(250)
  })

  test('is not waited for either when the others have decided that the answer is no', async () => {
    await using masters = await startMasters(5)
    const holding = masters.store()
    fenceOf(await holding.acquire(ticket({ key: 'taken' })))
    for (const server of masters.servers.slice(3)) await server.pause()
    const open = () => masters.store({ maxTtl: '9m' })
    const busyMs = await shortestMs(250, async () => {
      const startedAt = performance.now()
      const store = open()
      expect((await store.acquire(ticket({ key: 'taken', patienceMs: 0 }))).tag).toBe('busy')
      await store.close()
      return performance.now() - startedAt
    })
    // A store that has never met the server would wait 300 ms for its answer.
    expect(busyMs).toBeLessThan(250)
    await holding.close()
    for (const server of masters.servers.slice(0, 3)) await server.kill()
    const failedMs = await shortestMs(500, async () => {
      const startedAt = performance.now()
      const store = open()
      await expect(store.acquire(ticket({ key: 'free' }))).rejects.toMatchObject({
        code: 'store-unavailable',
      })
      await store.close()
      return performance.now() - startedAt
    })
    // Without the three servers there is no quorum. If a server is needed for a quorum, the store waits two seconds for
    // it.
    expect(failedMs).toBeLessThan(500)
  })

  test('is asked no more until it is back, so nothing piles up', async () => {
    await using masters = await startMasters(3)
    const hung = masters.servers[0] as RedisServer
    const links = masters.urls.map(steeredLink)
    const [sent, words] = [links.map(() => 0), links.map(() => 0)] as [number[], number[]]
    for (const [index, link] of links.entries()) {
      link.onRequest = (_, args) => {
        sent[index] = (sent[index] ?? 0) + 1
        words[index] = (words[index] ?? 0) + args.length
      }
    }
    const settings = { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 }
    const locks = createLocks(
      new RedlockStore(
        links.map(({ link }) => link),
        settings,
      ),
    )
    /** How many requests each server gets while the lock is taken 20 times. */
    const requestsOf20 = async (): Promise<readonly number[]> => {
      const before = [...sent]
      for (let round = 0; round < 20; round += 1) await locks.withLock('piling', () => {})
      return sent.map((count, index) => count - (before[index] ?? 0))
    }
    await locks.withLock('warm', () => {})
    await hung.pause()
    // When the server is given up depends on the speed of the machine.
    await until('the server is given up', async () => (await requestsOf20())[0] === 0)
    // One request can be about many tickets, so their words count.
    const [ofHungUntilThen = 0, ofHealthyUntilThen = 0] = words
    expect(ofHungUntilThen).toBeLessThan(2 * ofHealthyUntilThen)
    let [asked, others] = [0, 0]
    for (let round = 0; round < 10; round += 1) {
      const [ofHung = 0, ofHealthy = 0] = await requestsOf20()
      asked += ofHung
      others += ofHealthy
    }
    // Now and then the store opens a new connection and asks whether the server is back.
    expect(asked).toBeLessThan(others / 20)
    expect(others).toBeGreaterThan(200)
    hung.resume()
    await until('it takes part again', async () => ((await requestsOf20())[0] ?? 0) >= 20)
    await nothingLeft(masters)
    await locks.close()
  })

  test('has its vote taken back when it answers after all, whether the attempt had won or not', async () => {
    await using masters = await startMasters(3)
    const [store, other] = [masters.store(), masters.store()]
    await masters.meet(store, other)
    const hung = masters.servers[0] as RedisServer
    await hung.pause()
    const [won, lost] = [ticket({ key: 'won' }), ticket({ key: 'lost', patienceMs: 0 })]
    const holder = ticket({ key: 'lost' })
    fenceOf(await other.acquire(holder))
    fenceOf(await store.acquire(won))
    expect((await store.acquire(lost)).tag).toBe('busy')
    await store.release(releaseOf(won))
    await other.release(releaseOf(holder))
    hung.resume()
    await nothingLeft(masters)
    for (const view of [store, other]) await view.close()
  })
})

describe('with the majority away', () => {
  test.each(['pause', 'kill'] as const)(
    '(%s) a wait ends in its time with a clean error, and nothing is left behind',
    async (way) => {
      await using masters = await startMasters(3, { appendOnly: true })
      const locks = createLocks(masters.store())
      await locks.withLock('warm', () => {})
      for (const server of masters.servers.slice(0, 2)) await server[way]()
      const tookMs = await shortestMs(2500, async () => {
        const startedAt = performance.now()
        await expect(locks.acquire('k', { wait: '1s' })).rejects.toMatchObject({
          code: 'store-unavailable',
          key: 'k',
        })
        return performance.now() - startedAt
      })
      expect(tookMs).toBeLessThan(2500)
      for (const server of masters.servers.slice(0, 2)) {
        if (way === 'pause') server.resume()
        else await server.restart()
      }
      await nothingLeft(masters)
      await locks.withLock('k', () => {})
      await locks.close()
    },
  )
})

describe('a server that has forgotten its votes', () => {
  test.each(['restarted', 'flushed'])(
    '(%s) has no vote that counts until no forgotten holder can hold any more',
    async (how) => {
      await using masters = await startMasters(3)
      const options = { maxTtl: '3s' }
      const [store, other] = [masters.store(options), masters.store(options)]
      await other.release(releaseOf(ticket()))
      const holder = ticket({ ttlMs: 3000 })
      const askedAt = performance.now()
      const fence = fenceOf(await store.acquire(holder))
      for (const server of masters.servers.slice(0, 2)) {
        if (how === 'restarted') await server.restart()
        else await server.command('FLUSHALL')
      }
      const next = await until('the votes count again', async () => {
        // A ticket that was refused may not ask again: a server that did not answer gets its cancellation later.
        const thief = ticket({ ttlMs: 3000, patienceMs: 0 })
        const outcome = await settled(other.acquire(thief))
        if (outcome?.tag === 'held') return outcome
        await settled(other.release(releaseOf(thief)))
        return undefined
      })
      // The holder keeps the key for its ttl. The clocks of the servers and of this process differ by less than the allowance.
      expect(performance.now() - askedAt).toBeGreaterThan(holder.ttlMs - 20)
      expect(fenceOf(next) > fence).toBe(true)
      for (const view of [store, other]) await view.close()
    },
  )

  test('gets its votes back from a holder that is in time, even if most of the servers have forgotten them', async () => {
    await using masters = await startMasters(3)
    const store = masters.store()
    await masters.meet(store)
    const holder = ticket()
    const fence = fenceOf(await store.acquire(holder))
    await masters.untilAllHave(holder)
    for (const server of masters.servers.slice(0, 2)) await server.restart()
    const answers = await until('they answer', () => settled(store.renew([holder])))
    expect(answers).toEqual([{ tag: 'held', fence }])
    for (const server of masters.servers) {
      await until('all of them know the fence', async () => {
        // A server that answers later than most of the others hears of the fence with the next renewal.
        await settled(store.renew([holder]))
        return (await votedFence(server, holder)) === String(fence)
      })
    }
    await store.release(releaseOf(holder))
    await nothingLeft(masters)
    await store.close()
  })

  test('gets no vote from a holder that is too late', async () => {
    await using masters = await startMasters(3)
    const store = masters.store()
    await masters.meet(store)
    // A vote that comes later than this is none, also on a busy machine.
    const holder = ticket({ ttlMs: 3000 })
    fenceOf(await store.acquire(holder))
    for (const server of masters.servers) await server.command('FLUSHALL')
    await new Promise((resolve) => setTimeout(resolve, holder.ttlMs))
    expect(await store.renew([holder])).toEqual([{ tag: 'gone', evicted: false }])
    await store.close()
  })

  test('counts at once if it has forgotten nothing, because it keeps every write', async () => {
    await using masters = await startMasters(3, { appendOnly: true })
    const [store, other] = [masters.store(), masters.store()]
    const [holder, refused, next] = [ticket(), ticket({ patienceMs: 0 }), ticket({ patienceMs: 0 })]
    const fence = fenceOf(await store.acquire(holder))
    // An acquire is answered when a majority has voted. All servers restart here, so each of them must have the vote first.
    await masters.untilAllHave(holder)
    for (const server of masters.servers) {
      await server.kill()
      await server.restart()
    }
    await until('it still holds', async () => (await settled(store.renew([holder])))?.[0]?.tag === 'held')
    expect((await until('they answer', () => settled(other.acquire(refused)))).tag).toBe('busy')
    await store.release(releaseOf(holder))
    // A release is answered by a majority. The other store may still wait for the connection to one of these servers.
    const free = await until('the key is free', async () => {
      const answer = await settled(other.acquire(next))
      return answer?.tag === 'held' ? answer : undefined
    })
    expect(free.fence > fence).toBe(true)
    for (const view of [store, other]) await view.close()
  })

  test('that never had any votes is waited for once, and an error says so', async () => {
    await using masters = await startMasters(3, { young: true })
    const store = masters.store({ maxTtl: '2s' })
    const mine = ticket({ ttlMs: 1000 })
    await expect(store.acquire(mine)).rejects.toMatchObject({
      code: 'store-unavailable',
      message: expect.stringContaining('maxTtl') as string,
    })
    const answer = await until('their votes count', async () => settled(store.acquire(mine)))
    fenceOf(answer)
    await store.close()
  })
})

describe('votes that are split', () => {
  test.each([
    ['that wait', 60_000],
    ['that do not wait', 0],
  ])('between two tickets %s give the key to one of them, and then to the other', async (_, patienceMs) => {
    await using masters = await startMasters(4)
    const tickets = [ticket({ patienceMs }), ticket({ patienceMs })] as const
    const stores = [masters.store(), masters.store()] as const
    await masters.meet(...stores)
    for (const [index, server] of masters.servers.entries()) {
      const alone = redisStore(newClient(server.url))
      fenceOf(await alone.acquire(tickets[index % 2] as Ticket))
      await alone.close()
    }
    const first = await Promise.any(tickets.map((mine, index) => held(stores[index] as Store, mine)))
    const [winner, loser] = first === tickets[0] ? [0, 1] : [1, 0]
    await stores[winner as 0].release(releaseOf(tickets[winner as 0]))
    expect(await held(stores[loser as 0], tickets[loser as 0])).toBe(tickets[loser as 0])
    await stores[loser as 0].release(releaseOf(tickets[loser as 0]))
    for (const store of stores) await store.close()
  })

  test('between readers, each before a writer that the others wait behind, go to all readers in the end', async () => {
    await using masters = await startMasters(3)
    const readers = Array.from({ length: 3 }, () => ticket({ limit: UNLIMITED }))
    const all = [...readers, ticket()]
    // A store that has not met a server cannot release there what the test has put there.
    const stores = all.map(() => masters.store())
    await masters.meet(...stores)
    for (const [index, server] of masters.servers.entries()) {
      const alone = redisStore(newClient(server.url))
      const first = readers[index] as Ticket
      fenceOf(await alone.acquire(first))
      for (const mine of all.slice().reverse()) if (mine !== first) await alone.acquire(mine)
      await alone.close()
    }
    await Promise.all(
      all.map(async (mine, index) => {
        const store = stores[index] as Store
        await held(store, mine)
        await store.release(releaseOf(mine))
      }),
    )
    await nothingLeft(masters)
    for (const store of stores) await store.close()
  })

  test('with a process that died of the split do not wait for the end of its vote', async () => {
    await using masters = await startMasters(5)
    const dead = ticket({ id: '0 is the smallest of all ids' })
    const all = Array.from({ length: 4 }, (_, index) =>
      ticket({ id: `${index + 1} of ${crypto.randomUUID()}` }),
    )
    const stores = all.map(() => masters.store())
    await masters.meet(...stores)
    for (const [index, server] of masters.servers.entries()) {
      const alone = redisStore(newClient(server.url))
      fenceOf(await alone.acquire(all[index] ?? dead))
      await alone.close()
    }
    await Promise.all(
      all.map(async (mine, index) => {
        const store = stores[index] as Store
        await held(store, mine)
        await store.release(releaseOf(mine))
      }),
    )
    for (const store of stores) await store.close()
  })

  test('when many tickets ask at once: all have their turn, one after the other', async () => {
    await using masters = await startMasters(5)
    await masters.servers[4]?.kill()
    const all = Array.from({ length: 5 }, () => createLocks(masters.store()))
    let inside = 0
    let served = 0
    await Promise.all(
      all.map(async (locks) => {
        for (let round = 0; round < 12; round += 1) {
          await locks.withLock('rush', async () => {
            inside += 1
            expect(inside).toBe(1)
            await new Promise((resolve) => setImmediate(resolve))
            inside -= 1
            served += 1
          })
        }
      }),
    )
    expect(served).toBe(60)
    await Promise.all(all.map((locks) => locks.close()))
    await nothingLeft(masters, masters.servers.slice(0, 4))
  })
})

describe('people', () => {
  test('evictions reach every server that is there, and a server that was away evicts as soon as it is back', async () => {
    await using masters = await startMasters(3)
    const [store, other] = [masters.store(), masters.store()]
    const holder = ticket()
    await masters.meet(store, other)
    fenceOf(await store.acquire(holder))
    await masters.untilAllHave(holder)
    await masters.servers[2]?.pause()
    expect(await other.evict({ key: holder.key, id: holder.id, reason: 'stuck' })).toEqual([holder.id])
    expect(await store.renew([holder])).toEqual([{ tag: 'gone', evicted: true, reason: 'stuck' }])
    masters.servers[2]?.resume()
    await until('nobody holds it there', async () => {
      const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
      return rooms.length === 0 && (await roomsOn(masters.servers[2] as RedisServer)) === 0
    })
    for (const view of [store, other]) await view.close()
  })

  test('rooms show a ticket with a quorum as the holder, and a ticket with less as a waiter', async () => {
    await using masters = await startMasters(3)
    const store = masters.store()
    const [holder, waiter] = [ticket(), ticket()]
    await masters.servers[2]?.pause()
    const fence = fenceOf(await store.acquire(holder))
    masters.servers[2]?.resume()
    expect((await store.acquire(waiter)).tag).toBe('queued')
    const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 10 })
    expect(rooms).toMatchObject([
      { key: holder.key, holders: [{ id: holder.id, fence, state: 'held' }], queue: [{ id: waiter.id }] },
    ])
    await store.close()
  })
})

test('a server whose fences are far ahead takes the others with it, so that they rise without it, too', async () => {
  await using masters = await startMasters(3)
  const ahead = String((Date.now() + 3_600_000) * 1000)
  await masters.servers[0]?.command('SET', 'holdfast:fence', ahead)
  const store = masters.store()
  let last = 0n
  for (let round = 0; round < 12; round += 1) {
    if (round === 6) await masters.servers[0]?.pause()
    const mine = ticket({ key: 'ahead' })
    const fence = fenceOf(await store.acquire(mine))
    expect(fence > last).toBe(true)
    last = fence
    await store.release(releaseOf(mine))
  }
  await store.close()
})

test('a waiter is woken by a message, and meanwhile asks only often enough to be remembered', async () => {
  await using masters = await startMasters(3)
  const stores = [masters.store(), masters.store()] as const
  await masters.meet(...stores)
  const [locks, others] = [createLocks(stores[0]), createLocks(stores[1])]
  const lease = await locks.acquire('k', { renew: false })
  const waiting = Array.from({ length: 20 }, () => others.acquire('k'))
  // Two servers are enough for an answer. The third one may get the same requests later.
  for (const server of masters.servers) {
    const alone = redisStore(newClient(server.url))
    await until('all of them wait there', async () => {
      const { rooms } = await alone.inspect({ prefix: 'k', exact: true, cursor: undefined, count: 1 })
      return rooms.some(({ holders, queue }) => holders.length + queue.length === 21)
    })
    await alone.close()
  }
  for (const { command } of masters.servers) await command('CONFIG', 'RESETSTAT')
  const from = performance.now()
  await new Promise((resolve) => setTimeout(resolve, 1500))
  for (const server of masters.servers) {
    const asked = await scriptsRun(server)
    expect(asked).toBeLessThan(6 * Math.max(1, (performance.now() - from) / 1500))
  }
  await lease.release()
  for (const one of waiting) await (await one).release()
  for (const one of [locks, others]) await one.close()
})

/** Waits until every server has released everything. A server that missed a release gets it a little later. */
async function nothingLeft(masters: Masters, servers = masters.servers): Promise<void> {
  for (const server of servers) {
    await until('no holder and no waiter is left', async () => (await roomsOn(server)) === 0)
  }
}

/** The number of rooms with a holder or a waiter. Tombstones alone do not count. */
async function roomsOn(server: RedisServer): Promise<number> {
  let rooms = 0
  for (const key of (await server.command('KEYS', 'holdfast:{*')) as string[]) {
    if ((await server.command('TYPE', key)) !== 'zset') rooms += 1
    else {
      const members = (await server.command('ZRANGE', key, 0, -1)) as string[]
      if (members.some((member) => /^[eq]/.test(member))) rooms += 1
    }
  }
  return rooms
}

async function scriptsRun(server: RedisServer): Promise<number> {
  const { eval: texts = 0, evalsha = 0 } = await server.commandStats()
  return texts + evalsha
}

/** Asks until the ticket holds, as an engine without wakes would. */
async function held(store: Store, mine: Ticket): Promise<Ticket> {
  await until('it holds', async () => (await settled(store.acquire(mine)))?.tag === 'held')
  return mine
}

/** The answer, or undefined if it rejects. */
async function settled<T>(answer: T | Promise<T>): Promise<T | undefined> {
  try {
    return await answer
  } catch {
    return undefined
  }
}
