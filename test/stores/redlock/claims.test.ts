import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { UNLIMITED } from '../../../src/contract/store.ts'
import { ioredisLink } from '../../../src/stores/redis/server/ioredis.ts'
import { RedlockServer } from '../../../src/stores/redlock/redlock-server.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { age } from './masters.ts'

/** The server's answer: it accepts the fence, and tells its time. */
const ACCEPTED = { tag: 'accepted', serverUs: expect.closeTo(Date.now() * 1000, -9) }

let server: RedisServer
let redlockServer: RedlockServer
beforeAll(async () => {
  server = await startRedis()
  await age(server)
  redlockServer = new RedlockServer(ioredisLink(new Redis(server.url, { lazyConnect: true })), {
    index: 0,
    prefix: 'holdfast:',
    maxTtlMs: 600_000,
    watch: { canSpare: () => true, onBack: () => {}, onIdentity: () => undefined, onRefusal: () => {} },
  })
})
afterAll(async () => {
  await redlockServer.close()
  await server.close()
})

describe.each([
  ['alone', false],
  ['before a queue', true],
])('one server, asked for a fence by a holder that is %s', (_, hasQueue) => {
  test('accepts the fence it gave itself and every higher one, and no lower one', async () => {
    const mine = ticket({ key: `own ${hasQueue}` })
    const own = fenceOf(await redlockServer.rooms.acquire(mine))
    if (hasQueue) await redlockServer.rooms.acquire(ticket({ key: mine.key }))
    expect(await redlockServer.claim(mine, { fence: own - 1n, mode: 'claim' })).toEqual({
      tag: 'too-low',
      above: own,
    })
    expect(await redlockServer.claim(mine, { fence: own, mode: 'claim' })).toEqual(ACCEPTED)
    const higher = own + 1_000_000n
    expect(await redlockServer.claim(mine, { fence: higher, mode: 'claim' })).toEqual(ACCEPTED)
    expect(await redlockServer.rooms.renew([mine])).toEqual([{ tag: 'held', fence: higher }])
    expect(await redlockServer.claim(mine, { fence: own, mode: 'claim' })).toEqual({
      tag: 'too-low',
      above: higher,
    })
    await redlockServer.rooms.evict({ key: mine.key, id: undefined, reason: 'the end of the case' })
    const next = ticket({ key: mine.key })
    expect(fenceOf(await redlockServer.rooms.acquire(next)) > higher).toBe(true)
    await redlockServer.rooms.release(releaseOf(next))
  })

  test('accepts no fence of a ticket that does not hold: a waiter, one that was released, one that has expired, a stranger', async () => {
    const key = `gone ${hasQueue}`
    const [holder, waiter, stranger] = [ticket({ key, ttlMs: 3000 }), ticket({ key }), ticket({ key })]
    const fence = fenceOf(await redlockServer.rooms.acquire(holder)) + 1_000_000_000n
    if (hasQueue) {
      await redlockServer.rooms.acquire(waiter)
      expect(await redlockServer.claim(waiter, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
    }
    expect(await redlockServer.claim(stranger, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
    await new Promise((resolve) => setTimeout(resolve, holder.ttlMs + 10))
    expect(await redlockServer.claim(holder, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
    await redlockServer.rooms.release(releaseOf(hasQueue ? waiter : holder))
    expect(await redlockServer.claim(hasQueue ? waiter : holder, { fence, mode: 'claim' })).toEqual({
      tag: 'gone',
    })
  })
})

test('a server accepts no fence that is ahead of its time by `maxTtl`, unless the one that it gave itself is', async () => {
  const mine = ticket({ key: 'far' })
  const given = fenceOf(await redlockServer.rooms.acquire(mine))
  const far = BigInt(Date.now() + 660_000) * 1000n
  expect(await redlockServer.claim(mine, { fence: far, mode: 'claim' })).toEqual({ tag: 'too-far', given })
  expect(await redlockServer.claim(mine, { fence: far, mode: 'propagate' })).toEqual({
    tag: 'too-far',
    given,
  })
  expect(await redlockServer.rooms.renew([mine])).toEqual([{ tag: 'held', fence: given }])
  const near = BigInt(Date.now() + 540_000) * 1000n
  expect(await redlockServer.claim(mine, { fence: near, mode: 'claim' })).toEqual(ACCEPTED)
  await redlockServer.rooms.release(releaseOf(mine))
  // As if its clock had been an hour ahead until now.
  const last = BigInt(Date.now() + 3_600_000) * 1000n
  await server.command('SET', 'holdfast:fence', String(last))
  const next = ticket({ key: 'far' })
  expect(fenceOf(await redlockServer.rooms.acquire(next))).toBe(last + 1n)
  expect(await redlockServer.claim(next, { fence: last + 2n, mode: 'claim' })).toEqual(ACCEPTED)
  await redlockServer.rooms.release(releaseOf(next))
  await server.command('DEL', 'holdfast:fence')
})

test('two readers are never given the same fence by one server, nor the later one a lower one', async () => {
  const [one, other] = [
    ticket({ key: 'readers', limit: UNLIMITED }),
    ticket({ key: 'readers', limit: UNLIMITED }),
  ]
  fenceOf(await redlockServer.rooms.acquire(one))
  const fence = fenceOf(await redlockServer.rooms.acquire(other)) + 500n
  expect(await redlockServer.claim(one, { fence, mode: 'claim' })).toEqual(ACCEPTED)
  expect(await redlockServer.claim(other, { fence, mode: 'claim' })).toEqual({ tag: 'too-low', above: fence })
  expect(await redlockServer.claim(other, { fence: fence - 1n, mode: 'claim' })).toEqual({
    tag: 'too-low',
    above: fence,
  })
  expect(await redlockServer.claim(other, { fence: fence + 1n, mode: 'claim' })).toEqual(ACCEPTED)
  await redlockServer.rooms.release(releaseOf(one))
  await redlockServer.rooms.release(releaseOf(other))
})

test('a claim with a minimum hold begins it, and what is only written down does not begin it again', async () => {
  const mine = ticket({ key: 'minimum', minHoldMs: 60_000 })
  const fence = fenceOf(await redlockServer.rooms.acquire(mine)) + 500n
  expect(await redlockServer.claim(mine, { fence, mode: 'claim' })).toEqual(ACCEPTED)
  expect(await redlockServer.claim(mine, { fence: fence + 1n, mode: 'propagate' })).toEqual(ACCEPTED)
  const { rooms } = await redlockServer.rooms.inspect({ prefix: 'minimum', cursor: undefined, count: 1 })
  expect(rooms[0]?.holders).toMatchObject([{ id: mine.id, fence: fence + 1n, state: 'held' }])
  await redlockServer.scripts.withdraw(mine)
  expect(
    (await redlockServer.rooms.inspect({ prefix: 'minimum', cursor: undefined, count: 1 })).rooms,
  ).toEqual([])
})

test('a server that was flushed without the knowledge of the store accepts nothing', async () => {
  const [before, after] = [ticket({ key: 'flushed' }), ticket({ key: 'flushed' })]
  await redlockServer.rooms.acquire(before)
  await server.command('FLUSHALL')
  const fence = fenceOf(await redlockServer.rooms.acquire(after))
  expect(await redlockServer.claim(after, { fence, mode: 'claim' })).toEqual({ tag: 'forgetful' })
  expect(await redlockServer.claim(before, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
})
