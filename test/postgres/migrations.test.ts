import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connectionsOf, type PostgresConnections } from '../../src/postgres/connections.ts'
import { migrate } from '../../src/postgres/migrations.ts'
import { bundled } from '../servers/bundled.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'

let server: PostgresServer
let connections: PostgresConnections
const client = () => new pg.Client({ connectionString: server.url })

beforeAll(async () => {
  server = await startPostgres()
  connections = connectionsOf(client(), { max: 2, applicationName: 'migrations' })
})

afterAll(async () => {
  await connections?.close()
  await server?.close()
})

const FIRST = 'create table "{schema}".things (name text primary key)'
const SECOND = `alter table "{schema}".things add column size integer; insert into "{schema}".things values ('a;b', 1)`

test('makes the schema and leads every version to the next, once', async () => {
  await migrate(connections, { schema: 'stages', component: 'store', migrations: [FIRST] })
  await migrate(connections, { schema: 'stages', component: 'store', migrations: [FIRST, SECOND] })
  await migrate(connections, { schema: 'stages', component: 'store', migrations: [FIRST, SECOND] })
  await migrate(connections, { schema: 'stages', component: 'guard', migrations: [] })
  expect(await server.sql('select * from stages.things')).toEqual([{ name: 'a;b', size: 1 }])
  expect(await server.sql('select * from stages.holdfast_versions order by 1')).toEqual([
    { component: 'store', version: 2 },
  ])
})

test('takes any name of a schema that PostgreSQL takes', async () => {
  await migrate(connections, { schema: 'Order-$', component: 'jobs', migrations: [FIRST] })
  expect(await server.sql(`select to_regclass('"Order-$".things') is not null as made`)).toEqual([
    { made: true },
  ])
  for (const schema of [
    '',
    'a"b',
    'pg_mine',
    'information_schema',
    '1st',
    'a$body$b',
    'x'.repeat(64),
    undefined,
  ]) {
    const refused = migrate(connections, { schema: schema as string, component: 'jobs', migrations: [] })
    await expect(refused).rejects.toThrow(/^Expected `schema` to be a name of 1 to 63 letters/)
  }
})

test('waits for the migration of another process for longer than a statement of the store may take', async () => {
  const hurried = connectionsOf(client(), { max: 2, applicationName: 'hurried', statementLimitMs: 300 })
  const other = client()
  await other.connect()
  await other.query(`begin; select pg_advisory_xact_lock(hashtextextended('holdfast migrate slow', 0))`)
  const migrated = migrate(hurried, { schema: 'slow', component: 'store', migrations: [FIRST] })
  // Longer than a statement's limit and the allowance on top of it.
  await other.query('select pg_sleep(2)')
  await other.query('commit')
  await migrated
  await Promise.all([other.end(), hurried.close()])
  expect(await server.sql('select version from slow.holdfast_versions')).toEqual([{ version: 1 }])
})

test('refuses a schema that is newer, and changes nothing', async () => {
  await migrate(connections, { schema: 'newer', component: 'store', migrations: [FIRST, SECOND] })
  await expect(
    migrate(connections, { schema: 'newer', component: 'store', migrations: [FIRST] }),
  ).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining(
      'The tables of the store in the schema newer have version 2, and this version of Holdfast knows 1 at most',
    ),
  })
  expect(await server.sql('select version from newer.holdfast_versions')).toEqual([{ version: 2 }])
})

test('does all of it or nothing', async () => {
  const broken = { schema: 'broken', component: 'store', migrations: [FIRST, 'select 1/0'] } as const
  await expect(migrate(connections, broken)).rejects.toMatchObject({ code: 'store-refused' })
  expect(await server.sql(`select to_regnamespace('broken') as schema`)).toEqual([{ schema: null }])
})

test('only reads when there is nothing to do, and says which right is missing when there is', async () => {
  await migrate(connections, { schema: 'prepared', component: 'store', migrations: [FIRST] })
  await server.sql('create role app login; grant usage on schema prepared to app')
  const url = new URL(server.url)
  url.username = 'app'
  const own = connectionsOf(new pg.Client(url.href), { max: 1, applicationName: 'app' })
  await migrate(own, { schema: 'prepared', component: 'store', migrations: [FIRST] })
  const refused = {
    code: 'store-refused',
    message: expect.stringContaining('may not do what has to be done'),
  }
  const upgrade = migrate(own, { schema: 'prepared', component: 'store', migrations: [FIRST, SECOND] })
  await expect(upgrade).rejects.toMatchObject(refused)
  const create = migrate(own, { schema: 'absent', component: 'store', migrations: [FIRST] })
  await expect(create).rejects.toMatchObject(refused)
  await own.close()
})

test('leaves a table alone that is not ours', async () => {
  await server.sql('create schema foreigners; create table foreigners.holdfast_versions (shoe integer)')
  await expect(
    migrate(connections, { schema: 'foreigners', component: 'store', migrations: [FIRST] }),
  ).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('Choose another `schema`'),
  })
  expect(await server.sql(`select to_regclass('foreigners.things') as made`)).toEqual([{ made: null }])
})

test('lets twenty start at once, from four processes', async () => {
  const script = await bundled(new URL('migrate-process.ts', import.meta.url))
  const args = [server.url, 'crowd', JSON.stringify([FIRST, SECOND]), '5']
  const starters = Array.from({ length: 4 }, () => new Starter(spawn('node', [script, ...args])))
  expect(await Promise.all(starters.map((starter) => starter.line()))).toEqual(starters.map(() => 'ready'))
  for (const starter of starters) starter.process.stdin?.write('go\n')
  expect(await Promise.all(starters.map((starter) => starter.line()))).toEqual(
    starters.map(() => Array(5).fill('migrated').join('; ')),
  )
  expect(await server.sql('select name from crowd.things')).toEqual([{ name: 'a;b' }])
})

class Starter {
  readonly process: ChildProcess
  readonly #lines: AsyncIterator<string>

  constructor(process: ChildProcess) {
    this.process = process
    this.#lines = createInterface({ input: process.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]()
  }

  async line(): Promise<string | undefined> {
    return (await this.#lines.next()).value
  }
}
