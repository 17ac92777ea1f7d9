import { Client, Pool } from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { guard, migrateGuard } from '../../src/guard/index.ts'
import { startPgBouncer } from '../servers/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server.close())

async function guarded(client: Client, schema: string): Promise<void> {
  await client.query('begin')
  await guard(client, { resource: 'r', fence: 5n, schema })
  await client.query('commit')
}

test('twenty processes may migrate at once, with either client, and again later', async () => {
  const url = await server.createDatabase('crowd')
  const pool = new Pool({ connectionString: url })
  const sql = postgres(url)
  const clients = Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? pool : sql))
  await Promise.all(clients.map((client) => migrateGuard(client)))
  const client = new Client({ connectionString: url })
  await client.connect()
  await guarded(client, 'holdfast')
  await migrateGuard(client)
  expect((await client.query('select resource, fence from holdfast.guards')).rows).toEqual([
    { resource: 'r', fence: '5' },
  ])
  await Promise.all([client.end(), pool.end(), sql.end()])
})

test('a schema of one’s own, whose name has to be quoted', async () => {
  const client = new Client({ connectionString: server.url })
  await client.connect()
  await migrateGuard(client, { schema: 'My-Guards' })
  await guarded(client, 'My-Guards')
  await expect(migrateGuard(client, { scheme: 'x' } as never)).rejects.toThrow(
    'Expected the options to be among `schema`',
  )
  await expect(migrateGuard(client, { schema: 'a"b' })).rejects.toThrow('Expected `schema` to be a name')
  await client.end()
})

test('tables that are newer than the library are left alone', async () => {
  const client = new Client({ connectionString: server.url })
  await client.connect()
  await migrateGuard(client, { schema: 'newer' })
  await client.query('update newer.holdfast_versions set version = 99')
  await expect(migrateGuard(client, { schema: 'newer' })).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('version 99'),
  })
  await client.end()
})

test('a role that may not make the schema is told so, and nothing is half done', async () => {
  await server.sql('create role nobody login')
  const url = new URL(server.url)
  url.username = 'nobody'
  const pool = new Pool({ connectionString: url.href })
  await expect(migrateGuard(pool, { schema: 'mine' })).rejects.toMatchObject({ code: 'store-refused' })
  expect(await server.sql("select 1 from pg_namespace where nspname = 'mine'")).toEqual([])
  await pool.end()
})

test('behind PgBouncer in transaction mode, both migrating and guarding work', async () => {
  await using bouncer = await startPgBouncer(server, { poolSize: 2 })
  const pool = new Pool({ connectionString: bouncer.url, max: 8 })
  await migrateGuard(pool, { schema: 'pooled' })
  await server.sql('create table counted (n int); insert into counted values (0)')
  const one = async () => {
    const client = await pool.connect()
    try {
      await client.query('begin')
      await guard(client, { resource: 'counted', fence: 5n, schema: 'pooled' })
      const { rows } = await client.query('select n from counted')
      await client.query('update counted set n = $1', [rows[0].n + 1])
      await client.query('commit')
    } finally {
      client.release()
    }
  }
  await Promise.all(Array.from({ length: 16 }, one))
  // The sixteen transactions came one after the other, because each waited for the row of the guard. So none is lost.
  expect(await server.sql('select n from counted')).toEqual([{ n: 16 }])
  await expect(guard(pool, { resource: 'counted', fence: 5n, schema: 'pooled' })).rejects.toMatchObject({
    code: 'invalid-argument',
  })
  await pool.end()
})

test.each([
  ['pg', (url: string) => new Pool({ connectionString: url })],
  ['postgres.js', (url: string) => postgres(url)],
])('a server that says nothing is given up on, and a later call succeeds, with %s', async (_, clientOf) => {
  await using own = await startPostgres()
  const client = clientOf(own.url)
  await own.pause()
  await expect(migrateGuard(client)).rejects.toMatchObject({ code: 'store-unavailable' })
  own.resume()
  await migrateGuard(client)
  await client.end()
})
