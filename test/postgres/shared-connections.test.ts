import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import type { PostgresConnections, PostgresPool } from '../../src/postgres/connections.ts'
import { sharedConnectionsOf } from '../../src/postgres/shared-connections.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { startProxy } from '../servers/tcp-proxy.ts'
import { until } from '../servers/until.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server?.close())

function sharing(client: PostgresPool): PostgresConnections {
  const connections = sharedConnectionsOf(client, { max: 1, applicationName: 'holdfast test' })
  onTestFinished(() => connections.close())
  return connections
}

const clients: Readonly<Record<string, (url: string) => PostgresPool & { end(): Promise<unknown> }>> = {
  'a pg.Pool': (url) => {
    const pool = new pg.Pool({ connectionString: url })
    return pool.on('error', () => {})
  },
  'a postgres.js sql': (url) => postgres(url),
}

test.each(Object.entries(clients))(
  'a transaction on a connection of %s ends if nothing follows for some seconds',
  async (_, clientOf) => {
    const client = clientOf(server.url)
    const connections = sharing(client)
    let goOn = (): void => {}
    const frozen = new Promise<void>((resolve) => (goOn = resolve))
    const asked = connections.transaction(async (transaction) => {
      await transaction.query('select pg_advisory_xact_lock(1)')
      await frozen
    })
    const ended = expect(asked).rejects.toThrow()
    const isLocked = async () => {
      const rows = await server.sql(`select from pg_locks where locktype = 'advisory' and objid = 1`)
      return rows.length > 0
    }
    await until('it has the lock', isLocked)
    await until('the server has ended it', async () => !(await isLocked()))
    goOn()
    await ended
    await client.end()
  },
)

test.each(Object.entries(clients))(
  'on %s, no call works after close(), and a look for a pooler leaves no connection open',
  async (_, clientOf) => {
    const client = clientOf(server.url)
    const connections = sharing(client)
    expect(await connections.query('select 1::text as one')).toEqual([{ one: '1' }])
    expect(await connections.isPooled()).toBe(false)
    await until('it is closed', async () => {
      const rows = await server.sql(`select from pg_stat_activity where application_name = 'holdfast test'`)
      return rows.length === 0
    })
    await connections.close()
    const closed = { code: 'store-refused', message: expect.stringContaining('was closed') }
    await expect(connections.query('select 1')).rejects.toMatchObject(closed)
    await expect(connections.transaction(async () => {})).rejects.toMatchObject(closed)
    await client.end()
  },
)

test('a connection of a pg.Pool whose `begin` is answered late does not return to the pool', async () => {
  await using proxy = await startProxy({ targetPort: server.port })
  const url = server.url.replace(`:${server.port}/`, `:${proxy.port}/`)
  const pool = new pg.Pool({ connectionString: url, max: 1, query_timeout: 500 })
  pool.on('error', () => {})
  // A busy machine may be slower than the limit.
  await until('a connection is open', () =>
    pool.query('select 1').then(
      () => true,
      () => false,
    ),
  )
  proxy.holdReplies()
  await expect(sharing(pool).transaction(async () => {})).rejects.toThrow('timeout')
  proxy.normal()
  await until('it is asked', () =>
    pool.query('create table if not exists public.kept (text text)').then(
      () => true,
      () => false,
    ),
  )
  expect(await server.sql(`select to_regclass('public.kept')::text as made`)).toEqual([{ made: 'kept' }])
  await pool.end()
})

test('a call that waits for a connection of a pg.Pool when the store closes does nothing', async () => {
  const pool = new pg.Pool({ connectionString: server.url, max: 1 })
  const connections = sharing(pool)
  await server.sql('create table public.done (text text)')
  const taken = await pool.connect()
  const calls = [
    connections.query(`insert into public.done values ('query')`),
    connections.transaction((transaction) => transaction.query(`insert into public.done values ('work')`)),
  ]
  const refused = Promise.all(
    calls.map((call) => expect(call).rejects.toMatchObject({ code: 'store-refused' })),
  )
  await connections.close()
  taken.release()
  await refused
  expect(await server.sql('select * from public.done')).toEqual([])
  await pool.end()
})

test('a transaction on a postgres.js sql whose backend is terminated rejects, and ends nothing else', async () => {
  const uncaught: unknown[] = []
  const onUncaught = (error: unknown) => void uncaught.push(error)
  for (const event of ['uncaughtException', 'unhandledRejection']) process.on(event, onUncaught)
  onTestFinished(() => {
    for (const event of ['uncaughtException', 'unhandledRejection']) process.off(event, onUncaught)
  })
  const sql = postgres(server.url, { max: 1 })
  const connections = sharing(sql)
  const asked = connections.transaction((transaction) => transaction.query('select pg_sleep(30) as doomed'))
  const ended = expect(asked).rejects.toThrow()
  await until('it is terminated', async () => {
    const rows = await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where state = 'active' and query like '%as doomed' and pid <> pg_backend_pid()`,
    )
    return rows.length > 0
  })
  await ended
  await new Promise((resolve) => setTimeout(resolve, 500))
  expect(uncaught).toEqual([])
  expect(await connections.query('select 1::text as one')).toEqual([{ one: '1' }])
  await sql.end()
})
