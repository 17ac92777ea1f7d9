import { afterAll, beforeAll, test } from 'vitest'
import { migrate, postgresStore } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { followsTheLaw } from '../law-comparison.ts'
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
  await followsTheLaw(
    { store, setTime: clock.setTime, setsBack: true, grants: true, histories: 200 },
    { timesEach: 10 },
  )
  await store.close()
  await clock.close()
}, 600_000)

test('the postgres store follows the law step by step on the clock of the server', async () => {
  const store = postgresStore(newClient(server.url))
  await followsTheLaw({ store, grants: true, histories: 60 })
  await store.close()
}, 600_000)
