import { afterAll, beforeAll, onTestFinished, test, vi } from 'vitest'
import type { RenewAnswer, Store } from '../../../src/contract/store.ts'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { RedisStore } from '../../../src/stores/redis/redis-store.ts'
import { linksOf } from '../../../src/stores/redis/server/links-of.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { boundStore } from '../bound-store.ts'
import { followsTheLaw } from '../law-comparison.ts'
import { newClient } from './clients.ts'
import { clockClient } from './clock-client.ts'
import { soundRooms } from './sound-rooms.ts'

/** How long a new group takes more waiters. */
const JOINING_MS = 20

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

test('the redis store follows the law step by step, with time under control', async () => {
  const client = clockClient(server.url)
  // The furthest that the test's clock has been. Redis expires its keys by a clock of its own, which is not set back
  // with it.
  let now = 0
  const store = soundRooms(redisStore(client), server.url, () => now)
  const setTime = (ms: number): Promise<void> => {
    now = Math.max(now, ms)
    return client.setTime(ms)
  }
  await followsTheLaw({ store, setTime, setsBack: true, grants: true, histories: 300 }, { timesEach: 20 })
  await store.close()
}, 600_000)

// A history has few waiters for one key, so here a single waiter is a group.
test('waiters that are remembered as groups follow the law step by step, with time under control', async () => {
  const client = clockClient(server.url)
  let now = 0
  const link = linksOf(client)()
  const groups = new RedisStore(link, { prefix: 'holdfast:', replicas: 0, leastGroup: 1 })
  // The waiters are renewed one after the other, as the law takes them.
  const renewInOrder: Store['renew'] = async (tickets) => {
    const answers: RenewAnswer[] = []
    for (const each of tickets) answers.push(...(await groups.renew([each])))
    return answers
  }
  const inOrder = { ...boundStore(groups), renew: renewInOrder }
  const store = soundRooms(inOrder, server.url, () => now)
  // The store lets a waiter join the group that it began a moment ago, which a timer ends. By the clock of this test that moment may be
  // seconds, and then the server would hear of waiters that it has forgotten. So each step of that clock ends the moment.
  // The store also asks about a whole group only for as long as the server remembers it.
  const own = performance.now.bind(performance)
  let ahead = 0
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => own() + ahead)
  onTestFinished(() => clock.mockRestore())
  const setTimer = globalThis.setTimeout
  const endings = new Set<() => void>()
  const timers = vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms?: number) => {
    if (ms !== JOINING_MS) return setTimer(run, ms)
    const end = () => {
      if (endings.delete(end)) run()
    }
    endings.add(end)
    return setTimer(end, ms)
  }) as typeof setTimeout)
  onTestFinished(() => timers.mockRestore())
  const setTime = (ms: number): Promise<void> => {
    if (now > 0) ahead += Math.max(0, ms - now)
    now = Math.max(now, ms)
    for (const end of endings) end()
    return client.setTime(ms)
  }
  await followsTheLaw({ store, setTime, setsBack: true, grants: true, histories: 300 }, { timesEach: 20 })
  await store.close()
}, 600_000)

test('the redis store follows the law step by step on the clock of the server', async () => {
  const store = soundRooms(redisStore(newClient(server.url)), server.url, Date.now)
  await followsTheLaw({ store, grants: true, histories: 150 })
  await store.close()
}, 600_000)
