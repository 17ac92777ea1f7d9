import { afterAll, beforeAll, test } from 'vitest'
import { RedisStore } from '../../../src/stores/redis/redis-store.ts'
import { linksOf } from '../../../src/stores/redis/server/links-of.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { PROCESSES, sameFateInGroups } from '../group-histories.ts'
import { clockClient } from './clock-client.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

test.each([
  ['that hear messages', true],
  ['that hear none', false],
])(
  'waiters of processes %s have the same fate in groups and alone',
  async (_, listen) => {
    const client = clockClient(server.url)
    const storeOf = (prefix: string, leastGroup: number) =>
      new RedisStore(linksOf(client)(), { prefix: `${prefix}:${listen}:`, replicas: 0, leastGroup })
    const pairs = Array.from({ length: PROCESSES }, () => ({
      groups: storeOf('groups', 2),
      alone: storeOf('alone', Number.POSITIVE_INFINITY),
    }))
    if (listen)
      for (const { groups, alone } of pairs)
        await Promise.all([groups, alone].map((each) => each.listen(() => {})))
    let now = 1_700_000_000_000
    const pass = (ms: number): Promise<void> => {
      now += ms
      return client.setTime(now)
    }
    await sameFateInGroups({ pairs, pass, moves: true, histories: 60 })
    for (const { groups, alone } of pairs) await Promise.all([groups.close(), alone.close()])
  },
  600_000,
)
