import { afterAll, beforeAll, expect, test } from 'vitest'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import type { RedisServer } from '../../servers/redis-server.ts'
import { clockClient } from '../redis/clock-client.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { type Masters, startMasters } from './masters.ts'

const HOUR_MS = 3_600_000

let masters: Masters
beforeAll(async () => {
  masters = await startMasters(5)
})
afterAll(() => masters.close())

/** Two processes, and a hand on the clocks of all servers. */
function scene() {
  const clients = masters.servers.map(({ url }: RedisServer) => clockClient(url))
  const others = masters.servers.map(({ url }: RedisServer) => clockClient(url))
  const startMs = Date.now()
  return {
    one: redlockStore(clients, { maxTtl: '5m' }),
    other: redlockStore(others, { maxTtl: '5m' }),
    async setAhead(aheadMs: number, servers = 5) {
      for (const [index, client] of clients.entries()) {
        await client.setTime(startMs + (index < servers ? aheadMs : 0))
      }
    },
  }
}

test('a minority of clocks set forward by an hour costs a holder with all votes nothing, and gives the key to nobody else', async () => {
  const { one, other, setAhead } = scene()
  await setAhead(0)
  const [mine, theirs] = [ticket({ key: 'minority' }), ticket({ key: 'minority', patienceMs: 0 })]
  const fence = fenceOf(await one.acquire(mine))
  // The votes that run out early are the minority only if all servers have voted.
  await masters.untilAllHave(mine)
  await setAhead(HOUR_MS, 2)
  expect((await other.acquire(theirs)).tag).toBe('busy')
  expect(await one.renew([mine])).toEqual([{ tag: 'held', fence }])
  expect(await one.release(releaseOf(mine))).toEqual({ was: 'held' })
  const next = ticket({ key: 'minority' })
  expect(fenceOf(await other.acquire(next))).toBeGreaterThan(fence)
  await other.release(releaseOf(next))
  await Promise.all([one.close(), other.close()])
})

test('all clocks set forward by an hour end a lease early: its holder hears that, and every later fence is higher', async () => {
  const { one, other, setAhead } = scene()
  await setAhead(0)
  const mine = ticket({ key: 'all' })
  let last = fenceOf(await one.acquire(mine))
  // A server that is asked late would give its vote after its clock was set.
  await masters.untilAllHave(mine)
  await setAhead(HOUR_MS)
  const theirs = ticket({ key: 'all' })
  const fence = fenceOf(await other.acquire(theirs))
  expect(fence).toBeGreaterThan(last)
  last = fence
  expect(await one.renew([mine])).toMatchObject([{ tag: 'gone' }])
  expect(await other.release(releaseOf(theirs))).toEqual({ was: 'held' })
  // The clocks are put right again.
  await setAhead(0)
  for (const store of [one, other, one]) {
    const next = ticket({ key: 'all' })
    const higher = fenceOf(await store.acquire(next))
    expect(higher).toBeGreaterThan(last)
    last = higher
    await store.release(releaseOf(next))
  }
  await Promise.all([one.close(), other.close()])
})
