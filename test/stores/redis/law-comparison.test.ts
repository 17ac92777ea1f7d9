import { afterAll, beforeAll, expect, test } from 'vitest'
import { redisStore } from '../../../src/stores/redis/index.ts'
import { lawComparison } from '../../../src/testing/index.ts'
import { type RedisServer, startRedis } from '../../servers/redis-server.ts'
import { newClient } from './clients.ts'
import { clockClient } from './clock-client.ts'
import { soundRooms } from './sound-rooms.ts'

let server: RedisServer
beforeAll(async () => {
  server = await startRedis()
})
afterAll(() => server.close())

test('the redis store follows the law step by step, with time under control', async () => {
  const client = clockClient(server.url)
  // The furthest that the clock has been: Redis expires its keys by another one, which is not set back with it.
  let now = 0
  const store = soundRooms(redisStore(client), server.url, () => now)
  const setTime = (ms: number): Promise<void> => {
    now = Math.max(now, ms)
    return client.setTime(ms)
  }
  const { answers } = await lawComparison({ store, setTime, setsBack: true, histories: 300 })
  expect(Object.keys(answers).sort()).toEqual(EVERY_ANSWER)
  expect(Math.min(...Object.values(answers))).toBeGreaterThan(20)
  await store.close()
}, 60_000)

test('the redis store follows the law step by step on the clock of the server', async () => {
  const store = soundRooms(redisStore(newClient(server.url)), server.url, Date.now)
  const { answers } = await lawComparison({ store, histories: 150 })
  expect(Object.keys(answers).sort()).toEqual(EVERY_ANSWER)
  await store.close()
}, 60_000)

const EVERY_ANSWER = [
  'acquire busy',
  'acquire evicted',
  'acquire gone',
  'acquire held',
  'acquire queued',
  'evict removed',
  'release held',
  'release queued',
  'release unknown',
  'renew evicted',
  'renew gone',
  'renew held',
  'renew queued',
]
