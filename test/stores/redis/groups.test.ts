import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { newClient } from './clients.ts'
import { clockClient } from './clock-client.ts'

let server: RedisServer
let store: Store
beforeAll(async () => {
  server = await startRedis()
  store = redisStore(newClient(server.url))
})
beforeEach(() => server.command('FLUSHALL'))
afterAll(async () => {
  await store.close()
  await server.close()
})

/** A holder and its waiters, which are a group by now. */
async function newGroup(
  size: number,
  { of = store, ...draft }: Partial<Ticket> & { of?: Store } = {},
): Promise<{ holder: Ticket; waiters: Ticket[] }> {
  const holder = ticket(draft)
  const waiters = Array.from({ length: size }, () => ticket(draft))
  fenceOf(await of.acquire(holder))
  for (const waiter of waiters) await of.acquire(waiter)
  for (let round = 0; round < 2; round += 1) expect(tagsOf(await of.renew(waiters))).toEqual(['queued'])
  return { holder, waiters }
}

function tagsOf(answers: readonly { readonly tag: string }[]): string[] {
  return [...new Set(answers.map(({ tag }) => tag))]
}

/** Hands the key from one to the next, and returns who had it, in order. */
async function handOverAll(holder: Ticket, waiters: readonly Ticket[]): Promise<string[]> {
  const order: string[] = []
  const left = new Set(waiters)
  for (let last = holder; left.size > 0; ) {
    await store.release(releaseOf(last))
    const before = left.size
    for (const waiter of left) {
      if ((await store.renew([waiter]))[0]?.tag !== 'held') continue
      order.push(waiter.id)
      left.delete(waiter)
      last = waiter
      break
    }
    if (left.size === before) throw new Error(`Nobody got the key after ${order.length} of ${waiters.length}`)
  }
  return order
}

async function sentForRenewal(waiters: readonly Ticket[]): Promise<{ calls: number; inside: number }> {
  await server.command('CONFIG', 'RESETSTAT')
  expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
  const { evalsha = 0, 'config|resetstat': _, ...inside } = await server.commandStats()
  return { calls: evalsha, inside: Object.values(inside).reduce((sum, calls) => sum + calls, 0) }
}

test.each([10, 100, 500])('%i waiters are remembered by one entry', async (size) => {
  const { waiters } = await newGroup(size)
  const { calls, inside } = await sentForRenewal(waiters)
  expect(calls).toBe(1)
  expect(inside).toBeLessThan(12)
})

test('a group is asked about once for each part of it that is due', async () => {
  const { waiters } = await newGroup(100)
  for (const part of [waiters.slice(0, 60), waiters.slice(60)]) {
    const { calls, inside } = await sentForRenewal(part)
    expect(calls).toBe(1)
    expect(inside).toBeLessThan(12)
  }
})

test('a waiter that gives up leaves alone, and the others keep their places', async () => {
  const { holder, waiters } = await newGroup(12)
  expect(await store.release(releaseOf(waiters[3] as Ticket))).toEqual({ was: 'queued' })
  const rest = waiters.filter((_, at) => at !== 3)
  expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
  expect((await store.renew([waiters[3] as Ticket])).map(({ tag }) => tag)).toEqual(['gone'])
  expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
  expect(await handOverAll(holder, rest)).toEqual(rest.map(({ id }) => id))
})

test('the head of a group gets the key by one release, and the group hears of it', async () => {
  const { holder, waiters } = await newGroup(10)
  const [head, ...rest] = waiters as [Ticket, ...Ticket[]]
  await store.release(releaseOf(holder))
  const answers = await store.renew(waiters)
  expect(answers.map(({ tag }) => tag)).toEqual(['held', ...rest.map(() => 'queued')])
  expect(await handOverAll(head, rest)).toEqual(rest.map(({ id }) => id))
})

test('a waiter that nobody asks about any more is forgotten, although its release was lost and its group waits on', async () => {
  const { waiters } = await newGroup(10, { patienceMs: 1500, acceptMs: 1500 })
  const [ghost, ...rest] = waiters as [Ticket, ...Ticket[]]
  await until('the ghost is forgotten', async () => {
    expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
    const page = await store.inspect({ prefix: 'key', cursor: undefined, count: 10 })
    return page.rooms[0]?.queue.length === rest.length
  })
  expect((await store.renew([ghost]))[0]?.tag).toBe('gone')
  expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
})

test('people see the waiters of a group, until its process is gone for as long as it is remembered', async () => {
  const { holder, waiters } = await newGroup(10, { patienceMs: 1000, acceptMs: 1000 })
  const queue = async () =>
    (await store.inspect({ prefix: 'key', cursor: undefined, count: 10 })).rooms[0]?.queue ?? []
  for (const endsAt = performance.now() + 1500; performance.now() < endsAt; ) {
    await store.renew(waiters)
    expect((await queue()).map(({ id }) => id)).toEqual(waiters.map(({ id }) => id))
  }
  await until('they are forgotten', async () => (await queue()).length === 0)
  await store.release(releaseOf(holder))
  expect(await server.command('EXISTS', 'holdfast:{key}')).toBe(0)
})

test('a server that has lost its data says so to each waiter of a group', async () => {
  const { waiters } = await newGroup(10)
  await server.command('FLUSHALL')
  expect(tagsOf(await store.renew(waiters))).toEqual(['gone'])
})

test('each waiter of a group hears of its eviction', async () => {
  const { waiters } = await newGroup(10)
  await store.evict({ key: 'key', id: waiters[4]?.id, reason: 'a test' })
  const answers = await store.renew(waiters)
  expect(answers.map((answer) => answer.tag === 'gone' && answer.evicted)).toEqual(
    waiters.map((_, at) => at === 4),
  )
})

test('a group that another client has asked about one by one is made anew', async () => {
  const { holder, waiters } = await newGroup(10)
  const other = redisStore(newClient(server.url))
  onTestFinished(() => other.close())
  expect(tagsOf(await other.renew(waiters.slice(0, 1)))).toEqual(['queued'])
  expect((await sentForRenewal(waiters)).calls).toBe(2)
  expect((await sentForRenewal(waiters)).calls).toBe(1)
  expect(await handOverAll(holder, waiters)).toEqual(waiters.map(({ id }) => id))
})

test('groups whose processes are gone do not pile up in a room that is never empty', async () => {
  const client = clockClient(server.url)
  let now = Date.now()
  await client.setTime(now)
  const stores = Array.from({ length: 15 }, () => redisStore(client))
  onTestFinished(async () => {
    for (const each of stores) await each.close()
  })
  const terms = { ttlMs: 86_400_000, patienceMs: 1000, acceptMs: 1000 }
  const members = async (): Promise<number> => {
    const all = (await server.command('ZRANGEBYLEX', 'holdfast:{key}', '[r', '(s')) as unknown[]
    return all.length
  }
  const holder = ticket(terms)
  fenceOf(await (stores[0] as Store).acquire(holder))
  const counts: number[] = []
  for (let times = 0; times < 60; times += 1) {
    const of = stores[times % stores.length] as Store
    const waiters = Array.from({ length: 8 }, () => ticket(terms))
    for (const waiter of waiters) await of.acquire(waiter)
    await of.renew(waiters)
    counts.push(await members())
    now += 70_000
    await client.setTime(now)
  }
  expect(Math.max(...counts)).toBeLessThan(10)
})
