import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { openJobs } from '../../src/jobs/index.ts'
import { connectionsOf } from '../../src/postgres/connections.ts'
import { openPostgres, postgresStore } from '../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { enableTls } from '../servers/postgres-tls.ts'
import { until } from '../servers/until.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startPostgres()
  await enableTls(server)
})

afterAll(() => server?.close())

const clients = {
  'a pg.Pool': (url: string) => new pg.Pool({ connectionString: url, ssl: { rejectUnauthorized: false } }),
  'a postgres.js sql': (url: string) => postgres(url, { ssl: 'require' }),
}

test.each(Object.entries(clients))(
  'connections made from %s over TLS end without a sound',
  async (_, clientOf) => {
    const uncaught: unknown[] = []
    const note = (error: unknown) => uncaught.push(error)
    process.on('uncaughtExceptionMonitor', note)
    onTestFinished(() => void process.off('uncaughtExceptionMonitor', note))
    const client = clientOf(server.url)
    const connections = connectionsOf(client, { max: 2, applicationName: 'over TLS' })
    const [row] = await connections.query(
      'select version::text from pg_catalog.pg_stat_ssl where pid = pg_catalog.pg_backend_pid()',
    )
    expect(row?.['version']).toMatch(/^TLS/)
    const busy = expect(connections.query('select pg_sleep(30)')).rejects.toThrow()
    await connections.query('select 1')
    await connections.close()
    await busy
    await until('its sessions are gone', async () => {
      const rows = await server.sql(
        `select 1 from pg_stat_activity where application_name = 'over TLS' and state = 'idle'`,
      )
      return rows.length === 0
    })
    expect(uncaught).toEqual([])
    await client.end()
  },
)

test.each(Object.entries(clients))(
  'connections made from %s over TLS are never used after a reset a moment ago',
  async (_, clientOf) => {
    const ways = new Set<Socket>()
    const relay = createServer((way) => {
      const upstream = connect(server.port, '127.0.0.1')
      ways.add(way)
      for (const socket of [way, upstream]) socket.on('error', () => {})
      way.on('close', () => upstream.destroy())
      way.pipe(upstream).pipe(way)
    })
    relay.listen(0, '127.0.0.1')
    await once(relay, 'listening')
    const { port } = relay.address() as AddressInfo
    const client = clientOf(server.url.replace(`:${server.port}/`, `:${port}/`))
    const connections = connectionsOf(client, { max: 1, applicationName: 'reset over TLS' })
    for (let turn = 0; turn < 3; turn += 1) {
      await connections.query('select 1')
      const sleeping = expect(connections.query('select pg_sleep(29)')).rejects.toThrow()
      const next = connections.query('select 1::text as one')
      await until('it is asked', async () => {
        const rows = await server.sql(
          `select 1 from pg_stat_activity where application_name = 'reset over TLS' and query = 'select pg_sleep(29)' and state = 'active'`,
        )
        return rows.length > turn
      })
      for (const way of ways) way.resetAndDestroy()
      ways.clear()
      await sleeping
      expect(await next).toEqual([{ one: '1' }])
    }
    await connections.close()
    await client.end()
    relay.close()
  },
)

test.each([
  ['is not there', '/nowhere/at-all.pem', /^Expected `sslrootcert`, .* can read, got ENOENT\.$/],
  ['is a folder', tmpdir(), /^Expected `sslrootcert`, .* can read, got EISDIR\.$/],
  ['holds something else', fileURLToPath(import.meta.url), /^Expected `sslrootcert`, .* PEM files/],
])('a certificate or key of a URL that %s is an invalid argument', async (_, path, message) => {
  for (const parameter of ['sslrootcert', 'sslcert', 'sslkey']) {
    const url = `${server.url}?${parameter}=${encodeURIComponent(path)}`
    for (const open of [openPostgres, openJobs]) {
      const refused = expect(open(url)).rejects
      await refused.toMatchObject({ code: 'invalid-argument', message: expect.stringMatching(message) })
    }
  }
})

test.each(['sslrootcert', 'sslcert', 'sslkey'])(
  'a pool whose %s cannot be read is refused by the store, which does not ask again',
  async (parameter) => {
    const store = postgresStore(new pg.Pool({ connectionString: `${server.url}?${parameter}=/nowhere.pem` }))
    await expect(store.release({ key: 'k', id: '?', cancel: false })).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(
        /^A certificate or key that the PostgreSQL client names cannot be read\./,
      ),
    })
    await store.close()
  },
)

test('a client certificate that is none is refused by the store, which does not ask again', async () => {
  const ssl = { rejectUnauthorized: false, cert: 'none', key: 'none' }
  for (const client of [new pg.Pool({ connectionString: server.url, ssl }), postgres(server.url, { ssl })]) {
    const store = postgresStore(client)
    await expect(store.release({ key: 'k', id: '?', cancel: false })).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/^PostgreSQL and the client do not agree on TLS\./),
    })
    await store.close()
  }
})
