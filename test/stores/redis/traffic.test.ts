import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { undisturbed } from '../../base/measured.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { newClient } from './clients.ts'

let server: RedisServer
let store: Store
beforeAll(async () => {
  server = await startRedis()
  store = redisStore(newClient(server.url))
  // Opens all connections and loads the scripts before the test counts anything.
  await store.listen?.(() => {})
  const [holder, waiter] = [ticket(), ticket()]
  await store.acquire(holder)
  await store.acquire(waiter)
  await store.release(releaseOf(holder))
  await store.renew([waiter])
  await store.release(releaseOf(waiter))
})
beforeEach(() => server.command('CONFIG', 'RESETSTAT'))
afterAll(async () => {
  await store.close()
  await server.close()
})

type Stats = Readonly<Record<string, number>>

/** How many requests the store has sent. The commands inside scripts count under other names. */
function sentOf({ evalsha = 0, eval: evals = 0, subscribe = 0, scan = 0 }: Stats): number {
  return evalsha + evals + subscribe + scan
}

/** How many commands came from inside the scripts. The PING of the connection for messages may fall into this time. */
function insideOf({ evalsha: _, 'config|resetstat': _ours, ping: _alive, ...inside }: Stats): number {
  return Object.values(inside).reduce((sum, calls) => sum + calls, 0)
}

/**
 * What the server counts while the scene is played. If the server is silent for half a second, as on a busy machine, the store
 * opens a second connection and sends two EVAL on it. Such a scene is played again.
 */
async function statsOf(play: () => Promise<unknown>): Promise<Stats> {
  return undisturbed(
    (stats) => OF_SECOND_CONNECTION.every((command) => stats[command] === undefined),
    async () => {
      await server.command('CONFIG', 'RESETSTAT')
      await play()
      return server.commandStats()
    },
  )
}

const OF_SECOND_CONNECTION = ['hello', 'info', 'client|setinfo', 'eval']

test('a free key costs one command to take and one to give back', async () => {
  const stats = await statsOf(async () => {
    for (let round = 0; round < 50; round += 1) {
      const mine = ticket()
      fenceOf(await store.acquire(mine))
      await store.release(releaseOf(mine))
    }
  })
  expect(sentOf(stats)).toBe(100)
})

test.each([10, 1000])(
  'a hand-over costs one command with %i in the queue, because its message is the lease',
  async (waiters) => {
    const woken = new Map<string, () => void>()
    const unlisten = await store.listen?.((wake) => wake.tag !== 'all' && woken.get(wake.id)?.())
    let last = ticket()
    await store.acquire(last)
    const stats = await statsOf(async () => {
      const queue = Array.from({ length: waiters }, () => ticket())
      const wakes = queue.map(({ id }) => new Promise<void>((wake) => woken.set(id, wake)))
      for (const waiter of queue) await store.acquire(waiter)
      await server.command('CONFIG', 'RESETSTAT')
      for (const [index, next] of queue.entries()) {
        await store.release(releaseOf(last))
        await wakes[index]
        last = next
      }
    })
    expect(sentOf(stats)).toBe(waiters)
    // The releasing process hears of its own waiters in the answer.
    expect(stats['publish']).toBeUndefined()
    await store.release(releaseOf(last))
    unlisten?.()
  },
)

test('a permit of a semaphore that others hold, too, costs few commands', async () => {
  const others = Array.from({ length: 3 }, () => ticket({ limit: 10 }))
  for (const each of others) fenceOf(await store.acquire(each))
  const room = () => server.command('ZRANGE', 'holdfast:{key}', '0', '-1')
  const before = await room()
  const stats = await statsOf(async () => {
    const mine = ticket({ limit: 10 })
    fenceOf(await store.acquire(mine))
    await store.release(releaseOf(mine))
  })
  expect(stats['evalsha']).toBe(2)
  expect(insideOf(stats)).toBeLessThanOrEqual(16)
  expect(await room()).toEqual(before)
  for (const each of others) await store.release(releaseOf(each))
})

test('a try on a taken key changes nothing, and is answered by few commands', async () => {
  const room = async (key: string): Promise<unknown[]> => {
    const type = String(await server.command('TYPE', `holdfast:{${key}}`))
    const reading = type === 'string' ? ['GET'] : ['ZRANGE', '0', '-1']
    const content = await server.command(reading[0] as string, `holdfast:{${key}}`, ...reading.slice(1))
    return [type, content]
  }
  const [lone, head, waiter] = [ticket(), ticket({ key: 'crowd' }), ticket({ key: 'crowd' })]
  const permits = Array.from({ length: 3 }, () => ticket({ key: 'permits', limit: 3 }))
  for (const each of [lone, head, waiter, ...permits]) await store.acquire(each)
  for (const [holder, most] of [
    [lone, 4],
    [head, 5],
    [permits[0] ?? head, 6],
  ] as const) {
    const before = await room(holder.key)
    for (const minHoldMs of [0, 1000]) {
      const stats = await statsOf(async () => {
        const answer = await store.acquire(
          ticket({ key: holder.key, limit: holder.limit, patienceMs: 0, minHoldMs }),
        )
        expect(answer).toMatchObject({ tag: 'busy', retryMs: expect.any(Number) })
        expect(answer.tag === 'busy' && answer.retryMs).toBeGreaterThan(30_000)
      })
      expect(stats['evalsha']).toBe(1)
      expect(insideOf(stats)).toBeLessThanOrEqual(most)
    }
    expect(await room(holder.key)).toEqual(before)
    // The holder itself asks again, because it has heard no answer.
    expect((await store.acquire({ ...holder, patienceMs: 0 })).tag).toBe('held')
  }
  expect((await store.acquire(ticket({ key: 'permits', limit: 4, patienceMs: 0 }))).tag).toBe('busy')
  for (const each of [waiter, lone, head, ...permits]) await store.release(releaseOf(each))
})

test('requests of one tick share a command, and are answered one by one', async () => {
  const stats = await statsOf(async () => {
    const tickets = Array.from({ length: 15 }, (_, index) => ticket({ key: `tick:${index % 12}` }))
    const answers = await Promise.all(tickets.map((each) => store.acquire(each)))
    expect(answers.map(({ tag }) => tag)).toEqual(tickets.map((_, index) => (index < 12 ? 'held' : 'queued')))
    await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
  })
  expect(sentOf(stats)).toBe(2)
})

test('many requests of one tick go in two commands, so that one is under way while the other is answered', async () => {
  const stats = await statsOf(async () => {
    const tickets = Array.from({ length: 64 }, (_, index) => ticket({ key: `tick:${index % 60}` }))
    const answers = await Promise.all(tickets.map((each) => store.acquire(each)))
    expect(answers.map(({ tag }) => tag)).toEqual(tickets.map((_, index) => (index < 60 ? 'held' : 'queued')))
    await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
  })
  expect(sentOf(stats)).toBe(2 + 2)
})

test('the acquires of a tick come after its releases, also in two commands', async () => {
  const held = Array.from({ length: 40 }, (_, index) => ticket({ key: `turn:${index}` }))
  await Promise.all(held.map((each) => store.acquire(each)))
  const next = held.map(({ key }) => ticket({ key, patienceMs: 0 }))
  const taken = next.map((each) => store.acquire(each))
  await Promise.all(held.map((each) => store.release(releaseOf(each))))
  for (const answer of await Promise.all(taken)) fenceOf(answer)
  await Promise.all(next.map((each) => store.release(releaseOf(each))))
})

test('many free keys are taken with one command inside the script for each', async () => {
  const tickets = Array.from({ length: 60 }, (_, index) => ticket({ key: `free:${index}` }))
  await Promise.all(tickets.map((each) => store.acquire(each)))
  const { set = 0, get = 0, del = 0, zadd = 0 } = await server.commandStats()
  // They go in two commands. The script of each one reads and writes the last fence once.
  expect([set, get, del, zadd]).toEqual([60 + 2 * 2, 0, 0, 0])
  await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
})

test('a key may come several times in one tick', async () => {
  const [first, second, third] = [ticket(), ticket(), ticket()]
  const [one, other, again] = await Promise.all([first, second, first].map((each) => store.acquire(each)))
  expect(again).toEqual(one)
  expect(other).toMatchObject({ tag: 'queued', ahead: 0 })
  const [handedOver, unknown, behind, confirmed] = await Promise.all([
    store.release(releaseOf(first)),
    store.release(releaseOf(first)),
    store.acquire(third),
    store.acquire(second),
  ])
  expect([handedOver, unknown]).toEqual([{ was: 'held' }, { was: 'unknown' }])
  expect(behind).toMatchObject({ tag: 'queued', ahead: 0 })
  expect(fenceOf(confirmed)).toBeGreaterThan(fenceOf(one))
  const ends = [second, third, second].map((each) => store.release(releaseOf(each)))
  expect(await Promise.all(ends)).toEqual([{ was: 'held' }, { was: 'held' }, { was: 'unknown' }])
  expect(await server.command('EXISTS', 'holdfast:{key}')).toBe(0)
})

test('a key that is released in a tick is free for an acquire of the same tick', async () => {
  const [first, second] = [ticket(), ticket({ patienceMs: 0 })]
  await store.acquire(first)
  const [taken] = await Promise.all([store.acquire(second), store.release(releaseOf(first))])
  fenceOf(taken)
  await store.release(releaseOf(second))
})

test('a thousand renewals on the same terms are two commands', async () => {
  const tickets = Array.from({ length: 1000 }, (_, index) => ticket({ key: `renew:${index}` }))
  await Promise.all(tickets.map((each) => store.acquire(each)))
  const stats = await statsOf(async () => {
    const answers = await store.renew(tickets)
    expect(answers.every(({ tag }) => tag === 'held')).toBe(true)
  })
  expect(sentOf(stats)).toBe(2)
  await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
})

test('waiters that wait send nothing, and neither does an idle store', async () => {
  const [holder, waiter] = [ticket({ key: 'idle' }), ticket({ key: 'idle' })]
  await store.acquire(holder)
  await store.acquire(waiter)
  await server.command('CONFIG', 'RESETSTAT')
  const startedAt = performance.now()
  await until('a second has passed', () => performance.now() - startedAt > 1000)
  expect(sentOf(await server.commandStats())).toBe(0)
  for (const each of [holder, waiter]) await store.release(releaseOf(each))
})

test('a quiet connection for messages gets a PING every five seconds, however many tickets wait', async () => {
  const holder = ticket({ key: 'quiet' })
  const waiters = Array.from({ length: 100 }, () => ticket({ key: 'quiet' }))
  for (const each of [holder, ...waiters]) await store.acquire(each)
  const from = performance.now()
  await server.command('CONFIG', 'RESETSTAT')
  // The second PING comes five seconds after the first, which comes after this.
  await until('it was asked twice', async () => ((await server.commandStats())['ping'] ?? 0) >= 2)
  expect(performance.now() - from).toBeGreaterThan(4000)
  expect(sentOf(await server.commandStats())).toBe(0)
  for (const each of [holder, ...waiters]) await store.release(releaseOf(each))
})

test('a million keys that were taken and released leave nothing behind', async () => {
  const before = await server.command('DBSIZE')
  for (let done = 0; done < 1_000_000; done += 20_000) {
    const tickets = Array.from({ length: 20_000 }, (_, index) =>
      ticket({ key: `million:${done + index}`, id: `id-${index}` }),
    )
    await Promise.all(tickets.map((each) => store.acquire(each)))
    await Promise.all(tickets.map((each) => store.release(releaseOf(each))))
  }
  expect(await server.command('DBSIZE')).toBe(before)
  expect(before).toBe(1)
})

test('rooms whose holders and waiters never came back are gone soon after the last of these was forgotten', async () => {
  const lone = ticket({ key: 'lone', ttlMs: 20_000 })
  const delayed = ticket({ key: 'delayed', ttlMs: 100, lockDelayMs: 100 })
  // On a busy machine the waiter may come when the holder's ttl is over, and hold.
  const [holder, waiter] = [ticket({ ttlMs: 100 }), ticket({ ttlMs: 100, patienceMs: 200 })]
  for (const each of [lone, delayed, holder, waiter]) await store.acquire(each)
  await store.release({ key: 'cancelled', id: 'nobody', cancel: true })
  for (const [key, mostMs] of [
    ['lone', 20_000],
    ['delayed', 30_200],
    ['key', 30_200],
    ['cancelled', 90_000],
  ] as const) {
    const keptMs = Number(await server.command('PTTL', `holdfast:{${key}}`))
    expect(keptMs).toBeGreaterThan(mostMs - 10_000)
    expect(keptMs).toBeLessThanOrEqual(mostMs)
  }
  for (const each of [lone, delayed, holder, waiter]) await store.release(releaseOf(each))
})

test('leases whose ids differ in length are renewed in one call, each in its own place', async () => {
  const leases = ['a', 'a'.repeat(40), 'ab', 'a'.repeat(39)].map((id) => ticket({ key: `of ${id}`, id }))
  for (const each of leases) fenceOf(await store.acquire(each))
  const all = (command: 'GET' | 'PEXPIRETIME') =>
    Promise.all(leases.map(({ key }) => server.command(command, `holdfast:{${key}}`)))
  const [entries, expiries] = [await all('GET'), await all('PEXPIRETIME')]
  const answers = await store.renew(leases.map((each) => ({ ...each, ttlMs: each.ttlMs + 100_000 })))
  expect(answers.map(({ tag }) => tag)).toEqual(leases.map(() => 'held'))
  expect(await all('GET')).toEqual(entries)
  for (const [index, expiry] of (await all('PEXPIRETIME')).entries())
    expect(expiry).toBeGreaterThanOrEqual(Number(expiries[index]) + 100_000)
  for (const each of leases) await store.release(releaseOf(each))
})

test('a renewal with a shorter ttl leaves the expiry of the lease as it is', async () => {
  const mine = ticket({ key: 'shorter' })
  fenceOf(await store.acquire(mine))
  const before = await server.command('PEXPIRETIME', 'holdfast:{shorter}')
  fenceOf((await store.renew([{ ...mine, ttlMs: mine.ttlMs - 10_000 }]))[0])
  expect(await server.command('PEXPIRETIME', 'holdfast:{shorter}')).toBe(before)
  await store.release(releaseOf(mine))
})

test('after the server has lost all keys, a renewal costs it one command for each of them', async () => {
  const leases = Array.from({ length: 20 }, (_, index) => ticket({ key: `lost ${index}` }))
  const {
    evalsha: _,
    'config|resetstat': _ours,
    ping: _alive,
    ...inside
  } = await statsOf(async () => {
    expect(new Set((await store.renew(leases)).map(({ tag }) => tag))).toEqual(new Set(['gone']))
  })
  expect(inside).toEqual({ time: 1, mget: 1, zrange: 20 })
})

// The most frequent calls have fast paths in the scripts. Their answers are the same, so only the number of commands
// shows that a fast path is taken.
test.each([
  ['a free key is taken', [], 'acquire', 3],
  ['a lone holder is renewed', ['mine'], 'renew', 2],
  ['a lone holder is released', ['mine'], 'release', 2],
  ['a free key is released', [], 'release', 3],
  ['a key without holder is renewed', [], 'renew', 3],
  ['one more queues', ['other', 'other'], 'acquire', 7],
  ['the key is handed over', ['mine', 'other', 'other'], 'release', 6],
  ['the key is handed over to the last', ['mine', 'other'], 'release', 6],
  ['the key is handed over after an eviction', ['evicted', 'mine', 'other', 'other'], 'release', 6],
  ['a holder is renewed before a queue', ['mine', 'other', 'other'], 'renew', 5],
] as const)('%s with few commands inside the script', async (what, before, verb, commands) => {
  const stats = await statsOf(async () => {
    // What an attempt before has left.
    await store.evict({ key: what, id: undefined, reason: 'the end' })
    const mine = ticket({ key: what })
    let former: string | undefined
    for (const who of before) {
      const { key, id } = who === 'mine' ? mine : ticket({ key: what })
      await store.acquire({ ...mine, id })
      if ((before as readonly string[]).includes('evicted') && who === 'mine')
        await store.evict({ key, id: former, reason: 'stuck' })
      former = id
    }
    await server.command('CONFIG', 'RESETSTAT')
    if (verb === 'acquire') await store.acquire(mine)
    // A longer ttl: if the expiry stays the same to the millisecond, a renewal takes one command more.
    else if (verb === 'renew') await store.renew([{ ...mine, ttlMs: mine.ttlMs + 1000 }])
    else await store.release(releaseOf(mine))
  })
  expect(insideOf(stats), JSON.stringify(stats)).toBe(commands)
  await store.evict({ key: what, id: undefined, reason: 'the end' })
})
