import { afterAll, beforeAll, test } from 'vitest'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, ticket } from '../tickets.ts'
import { newClient } from './clients.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

test.each([
  ['alone', 0],
  ['before a queue', 1],
] as const)('the process that renewed a holder last, %s, is told of its eviction', async (what, waiters) => {
  const [first, second] = [redisStore(newClient(server.url)), redisStore(newClient(server.url))]
  const heard = new Set<string>()
  await second.listen?.((wake) => wake.tag !== 'all' && heard.add(wake.id))
  const mine = ticket({ key: what })
  fenceOf(await first.acquire(mine))
  for (let waiting = 0; waiting < waiters; waiting += 1) await first.acquire(ticket({ key: what }))
  fenceOf((await second.renew([mine]))[0])
  await first.evict({ key: what, id: mine.id, reason: 'stuck' })
  await until('it is told', () => heard.has(mine.id))
  await Promise.all([first.close(), second.close()])
})
