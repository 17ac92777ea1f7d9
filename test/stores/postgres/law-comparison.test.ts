import { afterAll, beforeAll, test } from 'vitest'
import { connectionsOf } from '../../../src/postgres/connections.ts'
import { migrate, postgresStore } from '../../../src/stores/postgres/index.ts'
import { PostgresStore } from '../../../src/stores/postgres/postgres-store.ts'
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
  // The law answers about the tickets of a list one after the other. Waiters in a group are asked about at once, which differs if they
  // come late. groups-histories compares groups with waiters that are alone.
  const store = new PostgresStore({
    connections: connectionsOf(newClient(url), { max: 2, applicationName: 'holdfast locks' }),
    schema: 'holdfast',
    mostCalls: 2,
    isLogged: true,
    readOnly: false,
    prepare: async () => {},
    leastGroup: Number.POSITIVE_INFINITY,
  })
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
