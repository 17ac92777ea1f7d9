import { readFileSync } from 'node:fs'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { connectionsOf } from '../../src/postgres/connections.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startPostgres()
  // Written by the server itself, which takes no key that somebody else may read.
  const copy = (from: string, to: string) => {
    const content = readFileSync(new URL(`../servers/etcd-certificates/${from}`, import.meta.url), 'base64')
    return server.sql(`copy (select 1) to program 'umask 077; echo ${content} | base64 -d > ${to}'`)
  }
  await copy('member.pem', 'server.crt')
  await copy('member.key', 'server.key')
  await server.sql(`alter system set ssl = 'on'`)
  await server.restart()
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
