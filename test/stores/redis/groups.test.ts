import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { GONE, type Store, type Ticket } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { type FaultProxy, startProxy } from '../../servers/tcp-proxy.ts'
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

/** A holder, and its waiters as a group. */
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

/** Stores whose server has a clock that stands still. `pass` moves it on. */
async function newClockedStores(
  count: number,
): Promise<{ of: readonly [Store, ...Store[]]; pass(ms: number): Promise<void> }> {
  const clock = clockClient(server.url)
  let now = Date.now()
  const pass = (ms: number): Promise<void> => {
    now += ms
    return clock.setTime(now)
  }
  await pass(0)
  const stores = Array.from({ length: count }, () => redisStore(clock))
  onTestFinished(async () => {
    for (const each of stores) await each.close()
  })
  return { of: stores as unknown as readonly [Store, ...Store[]], pass }
}

async function queueOf(of: Store): Promise<readonly { readonly id: string }[]> {
  const { rooms } = await of.inspect({ prefix: 'key', cursor: undefined, count: 10 })
  return rooms[0]?.queue ?? []
}

function tagsOf(answers: readonly { readonly tag: string }[]): string[] {
  return [...new Set(answers.map(({ tag }) => tag))]
}

/** Hands the key over until no waiter is left, and returns the holders in order. */
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

async function sentForRenewal(
  waiters: readonly Ticket[],
  of: Store = store,
): Promise<{ calls: number; inside: number }> {
  await server.command('CONFIG', 'RESETSTAT')
  expect(tagsOf(await of.renew(waiters))).toEqual(['queued'])
  const { evalsha = 0, 'config|resetstat': _, ...inside } = await server.commandStats()
  return { calls: evalsha, inside: Object.values(inside).reduce((sum, calls) => sum + calls, 0) }
}

test.each([10, 100, 500])('%i waiters are remembered by one entry', async (size) => {
  const { waiters } = await newGroup(size)
  const { calls, inside } = await sentForRenewal(waiters)
  expect(calls).toBe(1)
  expect(inside).toBeLessThan(12)
})

test('a group takes one request for each part of it that is due', async () => {
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

test('a waiter that is not asked about any more is forgotten, although its release was lost and its group waits on', async () => {
  const { of, pass } = await newClockedStores(1)
  const { waiters } = await newGroup(10, { of: of[0], patienceMs: 600, acceptMs: 600 })
  const [ghost, ...rest] = waiters as [Ticket, ...Ticket[]]
  await until('the ghost is forgotten', async () => {
    await pass(100)
    expect(tagsOf(await of[0].renew(rest))).toEqual(['queued'])
    return (await queueOf(of[0])).length === rest.length
  })
  expect((await of[0].renew([ghost]))[0]?.tag).toBe('gone')
  expect(tagsOf(await of[0].renew(rest))).toEqual(['queued'])
})

test('people see the waiters of a group, until its process is away for longer than the store remembers them', async () => {
  const { of, pass } = await newClockedStores(1)
  const { holder, waiters } = await newGroup(10, { of: of[0], patienceMs: 1000, acceptMs: 1000 })
  for (let round = 0; round < 5; round += 1) {
    await pass(900)
    await of[0].renew(waiters)
    expect((await queueOf(of[0])).map(({ id }) => id)).toEqual(waiters.map(({ id }) => id))
  }
  await pass(1000)
  expect(await queueOf(of[0])).toEqual([])
  await of[0].release(releaseOf(holder))
  expect(await server.command('EXISTS', 'holdfast:{key}')).toBe(0)
})

test('a server that has lost its data tells that to each waiter of a group', async () => {
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

test('a group is made anew after another client has asked about its waiters one by one', async () => {
  const { holder, waiters } = await newGroup(10)
  const other = redisStore(newClient(server.url))
  onTestFinished(() => other.close())
  expect(tagsOf(await other.renew(waiters.slice(0, 1)))).toEqual(['queued'])
  expect((await sentForRenewal(waiters)).calls).toBe(2)
  expect((await sentForRenewal(waiters)).calls).toBe(1)
  expect(await handOverAll(holder, waiters)).toEqual(waiters.map(({ id }) => id))
})

test('a waiter of a group that is offered the key confirms with one request', async () => {
  const { holder, waiters } = await newGroup(10, { minHoldMs: 1 })
  await until('the holder may leave', async () => {
    await store.release(releaseOf(holder))
    const { rooms } = await store.inspect({ prefix: 'key', cursor: undefined, count: 1 })
    return rooms[0]?.holders[0]?.id === waiters[0]?.id
  })
  await server.command('CONFIG', 'RESETSTAT')
  expect(tagsOf(await store.renew(waiters.slice(0, 1)))).toEqual(['held'])
  expect((await server.commandStats())['evalsha']).toBe(1)
})

test('leases that waited in groups share their renewals', async () => {
  const holders: Ticket[] = []
  for (let number = 0; number < 20; number += 1) {
    const { holder, waiters } = await newGroup(8, { key: `key ${number}` })
    await store.release(releaseOf(holder))
    holders.push(waiters[0] as Ticket)
  }
  expect(tagsOf(await store.renew(holders))).toEqual(['held'])
  await server.command('CONFIG', 'RESETSTAT')
  expect(tagsOf(await store.renew(holders))).toEqual(['held'])
  expect((await server.commandStats())['evalsha']).toBe(1)
})

test('small groups for one key become one', async () => {
  const holder = ticket()
  fenceOf(await store.acquire(holder))
  const waiters: Ticket[] = []
  for (let times = 0; times < 20; times += 1) {
    const some = Array.from({ length: 8 }, () => ticket())
    for (const waiter of some) await store.acquire(waiter)
    expect(tagsOf(await store.renew(some))).toEqual(['queued'])
    waiters.push(...some)
  }
  expect(tagsOf(await store.renew(waiters))).toEqual(['queued'])
  expect((await sentForRenewal(waiters)).calls).toBe(1)
})

test('waiters that are renewed in two batches of one turn become one group', async () => {
  const { of } = await newClockedStores(1)
  const [holder, ...waiters] = Array.from({ length: 101 }, () => ticket()) as [Ticket, ...Ticket[]]
  fenceOf(await of[0].acquire(holder))
  for (const waiter of waiters) await of[0].acquire(waiter)
  for (let round = 0; round < 2; round += 1) {
    const batches = [waiters.slice(0, 64), waiters.slice(64)]
    for (const answers of await Promise.all(batches.map((batch) => of[0].renew(batch))))
      expect(tagsOf(answers)).toEqual(['queued'])
    const groups = (await server.command('ZRANGEBYLEX', 'holdfast:{key}', '[r', '(s')) as string[]
    expect(groups.map((entry) => entry.split(' ').slice(2))).toEqual([['100', '0']])
  }
})

test('remains of groups do not pile up in a room that is never empty', async () => {
  const { of, pass } = await newClockedStores(10)
  const [busy, stable, ...dying] = of as [Store, Store, ...Store[]]
  const terms = { ttlMs: 86_400_000, patienceMs: 6000, acceptMs: 6000 }
  const newcomer = async (of: Store): Promise<Ticket> => {
    const one = ticket(terms)
    await of.acquire(one)
    return one
  }
  const crowd = (of: Store): Promise<Ticket[]> => Promise.all(Array.from({ length: 8 }, () => newcomer(of)))
  await newcomer(stable)
  const idle = await crowd(stable)
  let waiters = await crowd(busy)
  for (let round = 0; round < 200; round += 1) {
    await pass(1900)
    expect(tagsOf(await stable.renew(idle))).toEqual(['queued'])
    expect(tagsOf(await busy.renew(waiters))).toEqual(['queued'])
    const [first, ...others] = waiters as [Ticket, ...Ticket[]]
    await busy.release(releaseOf(first))
    waiters = [...others, await newcomer(busy)]
    const ending = dying[round / 20]
    if (ending !== undefined) await ending.renew(await crowd(ending))
  }
  const groups = await server.command('ZRANGEBYLEX', 'holdfast:{key}', '[r', '(s')
  // The server forgets waiters of dead processes when they come to the head.
  expect((groups as unknown[]).length).toBeLessThanOrEqual(2 + dying.length)
})

test('the groups of a process are asked about in one request, also one that is due in two batches', async () => {
  const waiters: Ticket[] = []
  for (let number = 0; number < 40; number += 1)
    waiters.push(...(await newGroup(8, { key: `key ${number}` })).waiters)
  await server.command('CONFIG', 'RESETSTAT')
  const halves = [waiters.slice(0, 164), waiters.slice(164)]
  for (const answers of await Promise.all(halves.map((half) => store.renew(half))))
    expect(tagsOf(answers)).toEqual(['queued'])
  expect((await server.commandStats())['evalsha']).toBe(1)
})

test('thousands of waiters that come together are groups before they are first asked about', async () => {
  const holder = ticket()
  fenceOf(await store.acquire(holder))
  const waiters = Array.from({ length: 4000 }, () => ticket())
  const queued = await Promise.all(waiters.map((waiter) => store.acquire(waiter)))
  expect(queued.map((answer) => answer.tag === 'queued' && answer.ahead)).toEqual(waiters.map((_, at) => at))
  const { calls, inside } = await sentForRenewal(waiters)
  expect(calls).toBe(1)
  expect(inside).toBeLessThan(60)
  expect(await server.command('ZCARD', 'holdfast:{key}')).toBe(2 + 2 * waiters.length + 8)
  // Each leaves alone.
  expect(await store.release(releaseOf(waiters[700] as Ticket))).toEqual({ was: 'queued' })
  const rest = waiters.filter((_, at) => at !== 700)
  expect(tagsOf(await store.renew(rest))).toEqual(['queued'])
  expect((await store.renew([waiters[700] as Ticket]))[0]?.tag).toBe('gone')
  expect(await handOverAll(holder, rest.slice(0, 3))).toEqual(rest.slice(0, 3).map(({ id }) => id))
})

test('waiters that joined a group without an answer keep their places, and are asked about one by one', async () => {
  await using proxy = await startProxy({ targetPort: server.port })
  const of = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
  onTestFinished(() => of.close())
  fenceOf(await of.acquire(ticket()))
  const waiters = Array.from({ length: 2000 }, () => ticket())
  proxy.dropReplies()
  const lost = Promise.allSettled(waiters.map((waiter) => of.acquire(waiter)))
  await until(
    'the server has queued them',
    async () => Number(await server.command('ZCARD', 'holdfast:{key}')) > 4000,
  )
  proxy.cut()
  proxy.normal()
  expect(new Set((await lost).map(({ status }) => status))).toEqual(new Set(['rejected']))
  const queued = await Promise.all(waiters.map((waiter) => of.acquire(waiter)))
  expect(queued.map((answer) => answer.tag === 'queued' && answer.ahead)).toEqual(waiters.map((_, at) => at))
  for (let round = 0; round < 2; round += 1) expect(tagsOf(await of.renew(waiters))).toEqual(['queued'])
})

describe('a waiter that is asked about again before the server has answered', () => {
  test('stays in the group that it joined when it came', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const of = storeBehind(proxy)
    fenceOf(await of.acquire(ticket()))
    const { crowd: waiters, first } = await heldBack(of, proxy)
    const again = waiters.slice(0, 2600).map((waiter) => of.acquire(waiter))
    proxy.normal()
    for (const answers of [await Promise.all(first), await Promise.all(again)])
      expect(answers.map((answer) => answer.tag === 'queued' && answer.ahead)).toEqual(
        answers.map((_, at) => at),
      )
    expect((await sentForRenewal(waiters, of)).inside).toBeLessThan(60)
    expect(await server.command('ZCARD', 'holdfast:{key}')).toBe(2 + 2 * waiters.length + 8)
  })

  test('hears of a lease only by the question that was sent, because a lease counts from then', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const of = storeBehind(proxy)
    fenceOf(await of.acquire(ticket({ key: 'other' })))
    const { crowd, first } = await heldBack(of, proxy)
    const again = crowd.slice(0, 2).map((one) => of.acquire(one))
    proxy.normal()
    expect((await Promise.all(first)).slice(0, 2)).toMatchObject([{ tag: 'held' }, { tag: 'queued' }])
    expect(await Promise.race([again[0], sleep(100, 'nothing')])).toBe('nothing')
    expect(await again[1]).toEqual({ tag: 'queued', ahead: 0, askAgainMs: expect.any(Number) })
  })

  test('stays in the group that it joined when it was renewed', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const of = storeBehind(proxy)
    const holder = ticket()
    const waiters = Array.from({ length: 12 }, () => ticket())
    fenceOf(await of.acquire(holder))
    for (const waiter of waiters) await of.acquire(waiter)
    proxy.holdReplies()
    const first = of.renew(waiters)
    await until(
      'the server has made them a group',
      async () => Number(await server.command('ZCARD', 'holdfast:{key}')) === 2 + 2 * waiters.length + 1,
    )
    const lease = ticket({ key: 'other' })
    const again = of.renew([lease, ...waiters.slice(0, 5)])
    proxy.normal()
    expect(tagsOf(await first)).toEqual(['queued'])
    expect([...(await again)]).toEqual([GONE, ...waiters.slice(0, 5).map(() => undefined)])
    expect((await sentForRenewal(waiters, of)).inside).toBeLessThan(15)
    // They are too few for a group, so each question is about each of them.
    for (const waiter of waiters.slice(0, 8)) await of.release(releaseOf(waiter))
    proxy.holdRequests()
    const rest = waiters.slice(8)
    const [asked, askedAgain] = [of.renew(rest), of.renew(rest)]
    await server.command('DEL', 'holdfast:{key}')
    proxy.normal()
    expect(tagsOf([...(await asked), ...(await askedAgain)])).toEqual(['gone'])
  })

  test('is asked about anew if the server stays silent', async () => {
    await using proxy = await startProxy({ targetPort: server.port })
    const of = storeBehind(proxy)
    fenceOf(await of.acquire(ticket()))
    const waiters = Array.from({ length: 4000 }, () => ticket())
    proxy.dropReplies()
    const lost = waiters.map((waiter) => lossOf(of.acquire(waiter)))
    await sleep(3100)
    await server.command('CONFIG', 'RESETSTAT')
    const again = waiters.map((waiter) => lossOf(of.acquire(waiter)))
    await until('they are asked for again', async () => ((await server.commandStats())['evalsha'] ?? 0) >= 40)
    proxy.cut()
    proxy.normal()
    expect(new Set(await Promise.all([...lost, ...again]))).toEqual(new Set(['lost']))
    const queued = await Promise.all(waiters.map((waiter) => of.acquire(waiter)))
    expect(queued.map((answer) => answer.tag === 'queued' && answer.ahead)).toEqual(
      waiters.map((_, at) => at),
    )
  })
})

function storeBehind(proxy: FaultProxy): Store {
  const of = redisStore(newClient(`redis://127.0.0.1:${proxy.port}`))
  onTestFinished(() => of.close())
  return of
}

/** A crowd that the server has queued, while the proxy keeps its answers. */
async function heldBack(of: Store, proxy: FaultProxy) {
  const crowd = Array.from({ length: 4000 }, () => ticket())
  proxy.holdReplies()
  const first = crowd.map((one) => of.acquire(one))
  const isQueued = async () => Number(await server.command('ZCARD', 'holdfast:{key}')) > 7998
  await until('the server has queued them', isQueued)
  return { crowd, first }
}

async function lossOf(answer: unknown): Promise<unknown> {
  return Promise.resolve(answer).catch(() => 'lost')
}
