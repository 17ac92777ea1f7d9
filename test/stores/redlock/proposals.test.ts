import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Store, Ticket } from '../../../src/contract/store.ts'
import { ioredisLink } from '../../../src/stores/redis/server/ioredis.ts'
import { RedlockServer } from '../../../src/stores/redlock/redlock-server.ts'
import { RedlockStore } from '../../../src/stores/redlock/redlock-store.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { age, type Masters, startMasters } from './masters.ts'
import { type SteeredLink, steeredLink } from './steered-link.ts'

describe('one server, asked for a vote with a proposed fence', () => {
  let server: RedisServer
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.close())

  let redlockServer: RedlockServer
  beforeEach(async () => {
    await server.command('FLUSHALL')
    await age(server)
    redlockServer = redlockServerOf(server, 600_000)
  })
  afterEach(() => redlockServer.close())

  /**
   * Whether the server gives a proposal that is so far ahead. Tries again as long as the server's time may have
   * overtaken the proposal on the way.
   */
  async function gives(
    asked: RedlockServer,
    aheadUs: number,
  ): Promise<{ readonly mine: Ticket; readonly fence: number }> {
    let [mine, fence] = [ticket(), 0]
    await until('it gives what is proposed', async () => {
      mine = ticket({ key: crypto.randomUUID() })
      fence = (await timeOf(server)) + aheadUs
      return fenceOf(await asked.requestVote(mine, fence)) === BigInt(fence)
    })
    return { mine, fence }
  }

  /** Expects a lower fence than the proposal, which is so far ahead. Tries again if half of that time has passed meanwhile. */
  async function givesLess(asked: RedlockServer, aheadUs: number): Promise<void> {
    const [fence, proposal] = await until('the server is asked in time', async () => {
      const from = await timeOf(server)
      const answer = await asked.requestVote(ticket({ key: crypto.randomUUID() }), from + aheadUs)
      const tookUs = (await timeOf(server)) - from
      return tookUs < aheadUs / 2 && ([fenceOf(answer), BigInt(from + aheadUs)] as const)
    })
    expect(fence).toBeLessThan(proposal)
  }

  test('gives the proposal, once, when it is a little ahead of the time of the server', async () => {
    const { mine, fence } = await gives(redlockServer, 900_000)
    expect(fenceOf(await redlockServer.requestVote(mine, fence + 1))).toBe(BigInt(fence))
    expect(fenceOf(await redlockServer.requestVote(ticket({ key: 'other' }), fence))).toBeGreaterThan(
      BigInt(fence),
    )
  })

  test('gives its own fence when the proposal is lower than its time or than the last fence, or far ahead', async () => {
    const now = await timeOf(server)
    expect(fenceOf(await redlockServer.requestVote(ticket({ key: 'past' }), now - 1))).toBeGreaterThan(
      BigInt(now),
    )
    await givesLess(redlockServer, 60_000_000)
    const last = now + 60_000_000
    await server.command('SET', 'holdfast:fence', last)
    const low = (await timeOf(server)) + 900_000
    expect(fenceOf(await redlockServer.requestVote(ticket({ key: 'low' }), low))).toBe(BigInt(last + 1))
    expect(fenceOf(await redlockServer.requestVote(ticket({ key: 'short' }), 999_999))).toBe(BigInt(last + 2))
  })

  test('gives its own fence when it was flushed, and for as long as it may have forgotten a holder', async () => {
    await redlockServer.requestVote(ticket({ key: 'before' }), undefined)
    await server.command('FLUSHALL')
    await givesLess(redlockServer, 900_000)
    await server.command('SET', 'holdfast:since', `name - ${Date.now() - 590_000}`)
    await givesLess(redlockServer, 900_000)
    await server.command('SET', 'holdfast:since', `name - ${Date.now() - 600_000}`)
    await gives(redlockServer, 900_000)
  })

  test('gives no proposal that its time would not be beyond when its vote counts again after it was flushed', async () => {
    const hasty = redlockServerOf(server, 200)
    await gives(hasty, 150_000)
    await givesLess(hasty, 900_000)
    await hasty.close()
  })
})

describe('five servers', () => {
  let masters: Masters
  let store: Store
  beforeAll(async () => {
    masters = await startMasters(5)
    store = masters.store()
    const first = ticket()
    await store.acquire(first)
    await store.release(releaseOf(first))
  })
  afterAll(async () => {
    await store.close()
    await masters.close()
  })

  test('agree on the fence in the vote: a free key costs each of them one command to take, and one to give back', async () => {
    // The first server is asked for its time. Now and then a vote may come too late for the proposal.
    // On a busy machine many votes are late, so the fewest commands of several tries count.
    let last = 0n
    let fewest = Number.POSITIVE_INFINITY
    for (let tries = 0; tries < 20 && fewest >= 125; tries += 1) {
      for (const { command } of masters.servers) await command('CONFIG', 'RESETSTAT')
      for (let round = 0; round < 50; round += 1) {
        const mine = ticket()
        const fence = fenceOf(await store.acquire(mine))
        expect(fence).toBeGreaterThan(last)
        last = fence
        await store.release(releaseOf(mine))
      }
      const commands = await Promise.all(masters.servers.map(({ commandStats }) => commandStats()))
      fewest = Math.min(fewest, Math.max(...commands.map(({ evalsha = 0 }) => evalsha)))
    }
    expect(fewest).toBeLessThan(125)
  })

  test('give a fence above those that some of them have seen already', async () => {
    const seen = BigInt(Date.now() + 30_000) * 1000n
    for (const { command } of masters.servers.slice(0, 3))
      await command('SET', 'holdfast:fence', String(seen))
    const [mine, next] = [ticket(), ticket()]
    const fence = fenceOf(await store.acquire(mine))
    expect(fence).toBeGreaterThan(seen)
    await store.release(releaseOf(mine))
    expect(fenceOf(await store.acquire(next))).toBeGreaterThan(fence)
    await store.release(releaseOf(next))
  })
})

test('without fences no server counts one, and a key is handed over, renewed and refused as with them', async () => {
  await using masters = await startMasters(3)
  const store = masters.store({ fences: false })
  const [mine, other] = [ticket({ patienceMs: 0 }), ticket({ patienceMs: 0 })]
  const none = fenceOf(await store.acquire(mine))
  expect(fenceOf(await store.acquire(mine))).toBe(none)
  expect(await store.renew([mine])).toEqual([{ tag: 'held', fence: none }])
  expect(await store.acquire(other)).toMatchObject({ tag: 'busy' })
  for (const { command } of masters.servers) expect(await command('EXISTS', 'holdfast:fence')).toBe(0)
  await store.release(releaseOf(mine))
  expect(fenceOf(await store.acquire(other))).toBe(none)
  await store.close()
})

test('a server that was flushed does not vote for a second holder by a fence that is equal by chance', async () => {
  await using masters = await startMasters(3)
  const links = masters.urls.map(steeredLink)
  const settings = { prefix: 'holdfast:', fences: true, maxTtlMs: 600_000 }
  const [store, other] = [
    new RedlockStore(
      links.map(({ link }) => link),
      settings,
    ),
    masters.store(),
  ]
  await masters.meet(other)
  const cut = links[1] as SteeredLink
  cut.onRequest = () => {
    throw new Error('cut off')
  }
  const mine = ticket()
  fenceOf(await store.acquire(mine))
  await masters.servers[0]?.command('FLUSHALL')
  // The last fence after a fence was claimed for another key.
  const last = String((Date.now() + 500) * 1000)
  for (const { command } of masters.servers) await command('SET', 'holdfast:fence', last)
  await expect(other.acquire(ticket({ key: mine.key, patienceMs: 0 }))).rejects.toThrow(
    'less than `maxTtl` ago',
  )
  await store.close()
  await other.close()
})

async function timeOf({ command }: RedisServer): Promise<number> {
  const [seconds, micros] = (await command('TIME')) as string[]
  return Number(seconds) * 1e6 + Number(micros)
}

function redlockServerOf({ url }: RedisServer, maxTtlMs: number): RedlockServer {
  return new RedlockServer(ioredisLink(new Redis(url, { lazyConnect: true })), {
    index: 0,
    prefix: 'holdfast:',
    maxTtlMs,
    watch: { canSpare: () => true, onBack: () => {}, onIdentity: () => undefined, onRefusal: () => {} },
  })
}
