import { setTimeout as paused } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { type Store, UNLIMITED } from '../../../src/contract/store.ts'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import type { RedisServer } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { clockClient } from '../redis/clock-client.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { age, type Masters, startMasters } from './masters.ts'

const SECOND_MS = 1000
const MINUTE_MS = 60 * SECOND_MS
const HOUR_MS = 60 * MINUTE_MS

let masters: Masters
beforeAll(async () => {
  masters = await startMasters(3)
})
afterAll(() => masters.close())

let startMs: number
let stores: Store[]
beforeEach(async () => {
  startMs = Date.now()
  stores = []
  for (const server of masters.servers) {
    await server.command('FLUSHALL')
    await age(server)
  }
  await setClocks(0)
})
afterEach(async () => {
  for (const server of masters.servers) server.resume()
  await Promise.all(stores.map((store) => store.close()))
})

/** The clock of the first server is an hour ahead of the others, and `maxTtl` is five minutes. */
async function setClocks(laterMs: number): Promise<void> {
  for (const [index, server] of masters.servers.entries())
    await setClock(server, laterMs + (index === 0 ? HOUR_MS : 0))
}

async function setClock({ command }: RedisServer, laterMs: number): Promise<void> {
  const ms = startMs + laterMs
  await command('MSET', 'clock:s', Math.floor(ms / 1000), 'clock:us', (ms % 1000) * 1000)
}

function newStore({ fences = true, servers = masters.servers } = {}): Store {
  const clients = servers.map(({ url }) => clockClient(url))
  const store = redlockStore(clients, { maxTtl: '5m', fences })
  stores.push(store)
  return store
}

test('a fence that a server has accepted and forgotten is not followed by a lower one', async () => {
  const [ahead, forgetful, other] = masters.servers
  await other?.pause()
  const mine = ticket({ patienceMs: 0 })
  const first = newStore()
  const fences = await settledFences(first, mine)
  await Promise.allSettled([first.release(releaseOf(mine))])
  other?.resume()
  await forgetful?.command('FLUSHALL')
  await setClocks(0)
  await ahead?.pause()
  // Another process meets the server, and writes down that it may have forgotten something.
  await expect(newStore().acquire(ticket({ key: 'other', patienceMs: 0 }))).rejects.toThrow(
    'do not count yet',
  )
  ahead?.resume()
  await setClocks(6 * MINUTE_MS)
  await ahead?.pause()
  const next = ticket({ key: 'next', patienceMs: 0 })
  fences.push(fenceOf(await newStore().acquire(next)))
  expect([...fences].sort()).toEqual(fences)
})

/** The fence, or nothing if the servers do not agree on one. */
async function settledFences(store: Store, mine: ReturnType<typeof ticket>): Promise<bigint[]> {
  try {
    return [fenceOf(await store.acquire(mine))]
  } catch (error) {
    expect(error).toMatchObject({
      code: 'store-unavailable',
      message: expect.stringMatching(/clocks of some of them are `maxTtl` or more apart/),
    })
    return []
  }
}

test.each([
  ['a writer', 1],
  ['a reader', UNLIMITED],
])('%s gets its fence from the servers whose clocks agree, each time a higher one', async (_, limit) => {
  const store = newStore()
  let last = 0n
  for (let round = 0; round < 10; round += 1) {
    const mine = ticket({ key: `k${round % 2}`, limit, patienceMs: 0 })
    const fence = fenceOf(await store.acquire(mine))
    expect(fence).toBeGreaterThan(last)
    expect(fence).toBeLessThan(BigInt(startMs + MINUTE_MS) * 1000n)
    expect(await store.renew([mine])).toEqual([{ tag: 'held', fence }])
    last = fence
    await store.release(releaseOf(mine))
  }
})

test('a server whose clock is off does not keep others from agreeing, also if one more server is away', async () => {
  await using five = await startMasters(5)
  // The second server is less than `maxTtl` behind the first one, and less than `maxTtl` ahead of the others.
  const laterMs = [400, 200, 0, 0, 0].map((seconds) => seconds * SECOND_MS)
  for (const [index, server] of five.servers.entries()) await setClock(server, laterMs[index] ?? 0)
  const away = five.servers[4]
  let last = 0n
  for (let round = 0; round < 12; round += 1) {
    if (round === 6) await away?.pause()
    // Each second process meets the servers for the first time.
    const [store] = round % 2 === 0 ? [newStore({ servers: five.servers })] : stores
    const mine = ticket({ key: `k${round % 3}`, patienceMs: 0 })
    const fence = fenceOf(await store?.acquire(mine))
    expect(fence).toBeGreaterThan(last)
    expect(fence).toBeLessThan(BigInt(startMs + 300 * SECOND_MS) * 1000n)
    last = fence
    await store?.release(releaseOf(mine))
  }
})

test('an error about clocks that are apart says which server does not answer, too', async () => {
  const [, , other] = masters.servers
  await other?.pause()
  const store = newStore()
  // Before and after the store knows that it is away.
  for (const key of ['first', 'second'])
    await expect(store.acquire(ticket({ key, patienceMs: 0 }))).rejects.toMatchObject({
      code: 'store-unavailable',
      message: expect.stringMatching(
        /`maxTtl` or more apart.* One more server is missing: Redis server 3 of the list does not answer/,
      ),
    })
})

test.each([
  ['a writer', 1],
  ['a reader', UNLIMITED],
])('the first claim of %s is for the servers whose clocks agree', async (_, limit) => {
  const [, right] = masters.servers
  const store = newStore()
  await masters.meet(store)
  await right?.command('CONFIG', 'RESETSTAT')
  const mine = ticket({ limit, patienceMs: 0 })
  fenceOf(await store.acquire(mine))
  // The vote, and the claim if the proposed fence was not agreed.
  expect((await right?.commandStats())?.['eval']).toBeLessThanOrEqual(2)
})

test('a fence that is too far ahead of a server is told to it once, and not with each renewal', async () => {
  // The first server answers first, so its answers count.
  const [behind, ...others] = masters.servers
  if (behind === undefined) throw new Error('Expected a server')
  for (const server of others) await setClock(server, 2 * HOUR_MS)
  const store = newStore()
  await masters.meet(store)
  const mine = ticket({ patienceMs: 0 })
  fenceOf(await store.acquire(mine))
  await behind.command('CONFIG', 'RESETSTAT')
  let renewals = 0
  const renew = async (): Promise<void> => {
    await store.renew([mine])
    renewals += 1
  }
  const evals = async (): Promise<number> => (await behind.commandStats())['eval'] ?? 0
  await until('it is told', async () => {
    await renew()
    return (await evals()) > renewals
  })
  for (let round = 0; round < 20; round += 1) await renew()
  await until('all renewals have come', async () => (await evals()) > renewals)
  await paused(100)
  expect(await evals()).toBe(renewals + 1)
})

test('without fences the clocks do not matter, also for a minimum hold', async () => {
  const store = newStore({ fences: false })
  const [, , other] = masters.servers
  await other?.pause()
  for (const minHoldMs of [0, 1000]) {
    const mine = ticket({ key: `k${minHoldMs}`, minHoldMs, patienceMs: 0 })
    expect(fenceOf(await store.acquire(mine))).toBe(0n)
    await store.release(releaseOf(mine))
  }
})
