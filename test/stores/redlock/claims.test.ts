import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { UNLIMITED } from '../../../src/contract/store.ts'
import { ioredisLink } from '../../../src/stores/redis/server/ioredis.ts'
import { RedlockNode } from '../../../src/stores/redlock/node.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { age } from './masters.ts'

/** The server's answer: it accepts the fence, and tells its time. */
const ACCEPTED = { tag: 'accepted', serverUs: expect.closeTo(Date.now() * 1000, -8) }

let server: RedisServer
let node: RedlockNode
beforeAll(async () => {
  server = await startRedis()
  await age(server)
  node = new RedlockNode(ioredisLink(new Redis(server.url, { lazyConnect: true })), {
    index: 0,
    prefix: 'holdfast:',
    maxTtlMs: 600_000,
    watch: { canSpare: () => true, onBack: () => {}, onIdentity: () => undefined, onRefusal: () => {} },
  })
})
afterAll(async () => {
  await node.close()
  await server.close()
})

describe.each([
  ['alone', false],
  ['before a queue', true],
])('one server, asked for a fence by a holder that is %s', (_, hasQueue) => {
  test('accepts the fence it gave itself and every higher one, and no lower one', async () => {
    const mine = ticket({ key: `own ${hasQueue}` })
    const own = fenceOf(await node.rooms.acquire(mine))
    if (hasQueue) await node.rooms.acquire(ticket({ key: mine.key }))
    expect(await node.claim(mine, { fence: own - 1n, mode: 'claim' })).toEqual({ tag: 'too-low', above: own })
    expect(await node.claim(mine, { fence: own, mode: 'claim' })).toEqual(ACCEPTED)
    const higher = own + 1_000_000n
    expect(await node.claim(mine, { fence: higher, mode: 'claim' })).toEqual(ACCEPTED)
    expect(await node.rooms.renew([mine])).toEqual([{ tag: 'held', fence: higher }])
    expect(await node.claim(mine, { fence: own, mode: 'claim' })).toEqual({ tag: 'too-low', above: higher })
    await node.rooms.evict({ key: mine.key, id: undefined, reason: 'the end of the case' })
    const next = ticket({ key: mine.key })
    expect(fenceOf(await node.rooms.acquire(next)) > higher).toBe(true)
    await node.rooms.release(releaseOf(next))
  })

  test('accepts no fence of a ticket that does not hold: a waiter, one that was released, one that has expired, a stranger', async () => {
    const key = `gone ${hasQueue}`
    const [holder, waiter, stranger] = [ticket({ key, ttlMs: 100 }), ticket({ key }), ticket({ key })]
    const fence = fenceOf(await node.rooms.acquire(holder)) + 1_000_000_000n
    if (hasQueue) {
      await node.rooms.acquire(waiter)
      expect(await node.claim(waiter, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
    }
    expect(await node.claim(stranger, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
    await new Promise((resolve) => setTimeout(resolve, 101))
    expect(await node.claim(holder, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
    await node.rooms.release(releaseOf(hasQueue ? waiter : holder))
    expect(await node.claim(hasQueue ? waiter : holder, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
  })
})

test('two readers are never given the same fence by one server, nor the later one a lower one', async () => {
  const [one, other] = [
    ticket({ key: 'readers', limit: UNLIMITED }),
    ticket({ key: 'readers', limit: UNLIMITED }),
  ]
  fenceOf(await node.rooms.acquire(one))
  const fence = fenceOf(await node.rooms.acquire(other)) + 500n
  expect(await node.claim(one, { fence, mode: 'claim' })).toEqual(ACCEPTED)
  expect(await node.claim(other, { fence, mode: 'claim' })).toEqual({ tag: 'too-low', above: fence })
  expect(await node.claim(other, { fence: fence - 1n, mode: 'claim' })).toEqual({
    tag: 'too-low',
    above: fence,
  })
  expect(await node.claim(other, { fence: fence + 1n, mode: 'claim' })).toEqual(ACCEPTED)
  await node.rooms.release(releaseOf(one))
  await node.rooms.release(releaseOf(other))
})

test('a claim with a minimum hold begins it, and what is only written down does not begin it again', async () => {
  const mine = ticket({ key: 'minimum', minHoldMs: 60_000 })
  const fence = fenceOf(await node.rooms.acquire(mine)) + 500n
  expect(await node.claim(mine, { fence, mode: 'claim' })).toEqual(ACCEPTED)
  expect(await node.claim(mine, { fence: fence + 1n, mode: 'propagate' })).toEqual(ACCEPTED)
  const { rooms } = await node.rooms.inspect({ prefix: 'minimum', cursor: undefined, count: 1 })
  expect(rooms[0]?.holders).toMatchObject([{ id: mine.id, fence: fence + 1n, state: 'held' }])
  await node.scripts.withdraw(mine)
  expect((await node.rooms.inspect({ prefix: 'minimum', cursor: undefined, count: 1 })).rooms).toEqual([])
})

test('a server that was flushed without the knowledge of the store accepts nothing', async () => {
  const [before, after] = [ticket({ key: 'flushed' }), ticket({ key: 'flushed' })]
  await node.rooms.acquire(before)
  await server.command('FLUSHALL')
  const fence = fenceOf(await node.rooms.acquire(after))
  expect(await node.claim(after, { fence, mode: 'claim' })).toEqual({ tag: 'forgetful' })
  expect(await node.claim(before, { fence, mode: 'claim' })).toEqual({ tag: 'gone' })
})
