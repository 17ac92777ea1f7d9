import { afterAll, beforeAll, expect, test } from 'vitest'
import { migrate, postgresStore } from '../../../src/stores/postgres/index.ts'
import { lawComparison } from '../../../src/testing/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { clients } from './clients.ts'
import { controlClock } from './controlled-clock.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server?.close())

const newClient = clients['the package pg'] as NonNullable<(typeof clients)[string]>

test('the postgres store follows the law step by step, with time under control', async () => {
  const url = await server.createDatabase('controlled')
  await migrate(newClient(url))
  const clock = await controlClock(url)
  const store = postgresStore(newClient(url))
  const { answers } = await lawComparison({ store, setTime: clock.setTime, setsBack: true, histories: 150 })
  expect(Object.keys(answers).sort()).toEqual(EVERY_ANSWER)
  expect(Math.min(...Object.values(answers))).toBeGreaterThan(10)
  await store.close()
  await clock.close()
}, 60_000)

test('the postgres store follows the law step by step on the clock of the server', async () => {
  const store = postgresStore(newClient(server.url))
  const { answers } = await lawComparison({ store, histories: 60 })
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
