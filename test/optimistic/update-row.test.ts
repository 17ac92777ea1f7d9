import { Pool, type PoolClient } from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { updateRow } from '../../src/optimistic/index.ts'
import type { PgQueryable, SqlClient, SqlExecutor } from '../../src/stores/postgres/index.ts'
import { clients } from '../guard/clients.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'

// This zone is not UTC, so a time without a zone shows whose zone it has.
process.env['TZ'] = 'America/St_Johns'

interface Account {
  readonly id: number
  readonly balance: number
  readonly version: number
}

let server: PostgresServer
let pool: Pool

beforeAll(async () => {
  server = await startPostgres()
  pool = new Pool({ connectionString: server.url, max: 20 })
  await pool.query(`
    create table account (id int primary key, balance int not null, version int not null default 1);
    create table everything (
      id uuid primary key default gen_random_uuid(), version bigint not null default 9007199254740993,
      big bigint, flag bool, at timestamptz, times timestamptz[], local timestamp, day date, doc jsonb, tags text[], raw bytea,
      amount numeric, span interval, place point, note text)`)
})
afterAll(async () => {
  await pool.end()
  await server.close()
})
beforeEach(async () => {
  await pool.query('truncate account, everything; insert into account values (1, 100), (2, 100)')
})

const stored = async () => (await pool.query('select * from account order by id')).rows
const withdraw = (client: SqlClient, amount: number, id = 1) =>
  updateRow<Account>(client, {
    table: 'account',
    id: { id },
    change: ({ balance }) => (balance < amount ? null : { balance: balance - amount }),
    attempts: Number.POSITIVE_INFINITY,
    wait: '60s',
  })

describe.each(clients)('through %s', (_, open) => {
  test('a row is read, changed and written, and its version counts', async () => {
    await using client = await open(server.url)
    expect(await withdraw(client.root, 30)).toEqual({ id: 1, balance: 70, version: 2 })
    expect(await stored()).toEqual([
      { id: 1, balance: 70, version: 2 },
      { id: 2, balance: 100, version: 1 },
    ])
  })

  test('many updates at once lose nothing', async () => {
    const one = async () => {
      await using client = await open(server.url)
      return await withdraw(client.root, 10)
    }
    const withdrawals = await Promise.all(Array.from({ length: 12 }, one))
    expect(withdrawals.filter((row) => row === null)).toHaveLength(2)
    expect((await stored())[0]).toEqual({ id: 1, balance: 0, version: 11 })
  })

  test('a missing row is null, and so is one that is left alone', async () => {
    await using client = await open(server.url)
    expect(await withdraw(client.root, 10, 3)).toBeNull()
    expect(await withdraw(client.root, 1000)).toBeNull()
    expect((await stored())[0]).toEqual({ id: 1, balance: 100, version: 1 })
  })

  test('a whole row may be returned, and only the fields that differ are written', async () => {
    await using client = await open(server.url)
    await pool.query(`
      insert into everything (big, flag, at, local, day, doc, tags, raw, amount, span, place, note) values
        (9007199254740993, true, '2026-11-21 05:06:07.089+00', '2026-07-01 01:02:03.456', '2026-11-21',
         '{"a": [1, "x"]}', '{"a,b", c}', '\\x00ff', 0.10000000000000000001, '1 day 02:03', '(1,2)', 'old')`)
    const before = (await pool.query('select * from everything')).rows[0]
    await updateRow<{ note: string; doc: { a: unknown[] } }>(client.root, {
      table: 'everything',
      id: { id: before.id },
      change(row) {
        row.doc.a.push('y')
        return { ...row, note: 'new' }
      },
    })
    const after = (await pool.query('select * from everything')).rows[0]
    expect(after).toEqual({ ...before, note: 'new', doc: { a: [1, 'x', 'y'] }, version: '9007199254740994' })
  })
})

test('a time without a zone comes back as it was written', async () => {
  const { rows } = await pool.query(
    "insert into everything (local) values ('2026-07-01 01:02:03.456') returning id, local",
  )
  const change = (row: { local: Date }) => ({ local: new Date(row.local.getTime() + 1000) })
  await updateRow(pool, { table: 'everything', id: { id: rows[0].id }, change })
  expect((await pool.query('select local::text from everything')).rows).toEqual([
    { local: '2026-07-01 01:02:04.456' },
  ])
})

/** Lets another writer write right after the row was read, the first `times` times. */
function interrupted(times: number, text: string): SqlExecutor & { statements: string[] } {
  let left = times
  const statements: string[] = []
  return {
    statements,
    async query(statement, parameters = []) {
      statements.push(statement.trimStart().slice(0, 6))
      const { rows } = await pool.query(statement, [...parameters])
      if (statement.startsWith('select') && left > 0) {
        left -= 1
        await pool.query(text)
      }
      return rows
    },
  }
}

test('an update that comes too late reads again', async () => {
  const client = interrupted(
    2,
    'update account set balance = balance - 1, version = version + 1 where id = 1',
  )
  expect(await withdraw(client, 10)).toEqual({ id: 1, balance: 88, version: 4 })
  expect(client.statements).toEqual(['select', 'update', 'select', 'update', 'select', 'update'])
})

test('a row that was deleted in between is not there', async () => {
  const client = interrupted(1, 'delete from account where id = 1')
  expect(await withdraw(client, 10)).toBeNull()
})

test('a row that was deleted and inserted again with the same version is updated', async () => {
  let isFirst = true
  const client: SqlExecutor = {
    async query(statement, parameters = []) {
      const isReplaced = isFirst && statement.startsWith('update')
      if (isReplaced) await pool.query('delete from account where id = 1')
      const { rows } = await pool.query(statement, [...parameters])
      if (isReplaced) await pool.query('insert into account values (1, 50)')
      isFirst &&= !isReplaced
      return rows
    },
  }
  expect(await withdraw(client, 10)).toEqual({ id: 1, balance: 40, version: 2 })
})

test('an update that always comes too late says how often', async () => {
  const client = interrupted(100, 'update account set version = version + 1 where id = 1')
  const change = ({ balance }: Account) => ({ balance: balance - 1 })
  await expect(
    updateRow(client, { table: 'account', id: { id: 1 }, change, attempts: 3 }),
  ).rejects.toMatchObject({ code: 'conflict', message: expect.stringContaining('3 times') })
  expect(client.statements).toHaveLength(6)
})

test('a row that a policy or trigger holds back is told after two attempts, and no conflict', async () => {
  await pool.query(`
    create table frozen (id int primary key, balance int, version int);
    insert into frozen values (1, 5, 1);
    create function keep() returns trigger language plpgsql as 'begin return null; end';
    create trigger keep before update on frozen for each row execute function keep()`)
  let calls = 0
  const change = () => {
    calls += 1
    return { balance: 1 }
  }
  await expect(updateRow(pool, { table: 'frozen', id: { id: 1 }, change })).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('A policy or a trigger keeps it from being updated'),
  })
  expect(calls).toBe(2)
})

test('a database whose default is serializable only has more conflicts', async () => {
  const url = await server.createDatabase('strict')
  const strict = new Pool({
    connectionString: url,
    max: 4,
    options: '-c default_transaction_isolation=serializable',
  })
  await strict.query(
    'create table account (id int primary key, balance int, version int default 1); insert into account values (1, 100)',
  )
  const left = await Promise.all(Array.from({ length: 8 }, () => withdraw(strict, 10)))
  expect(left).not.toContain(null)
  expect((await strict.query('select balance, version from account')).rows).toEqual([
    { balance: 20, version: 9 },
  ])
  await strict.end()
})

test.each([
  ['a client that knows it', (client: PoolClient) => client],
  [
    'an executor',
    (client: PoolClient) => ({ query: (text, values) => client.query(text, values) }) as PgQueryable,
  ],
])(
  'inside a transaction of the caller’s, the error that has ended the transaction is told, through %s',
  async (_, through) => {
    const client = await pool.connect()
    await client.query('begin isolation level repeatable read')
    await client.query('select 1 from account')
    await pool.query('update account set version = version + 1')
    await expect(withdraw(through(client), 10)).rejects.toMatchObject({ code: '40001' })
    await client.query('rollback')
    client.release()
  },
)

test('a column may have the name of a method that every object has', async () => {
  await pool.query(
    'create table odd (id int primary key, version int, "toString" int); insert into odd values (1, 1, 1)',
  )
  const change = () => ({ toString: 2 as never })
  expect(await updateRow(pool, { table: 'odd', id: { id: 1 }, change })).toEqual({
    id: 1,
    version: 2,
    toString: 2,
  })
})

test('a row with a time that never ends is updated through postgres.js, too', async () => {
  const { rows } = await pool.query("insert into everything (at) values ('infinity') returning id")
  const sql = postgres(server.url)
  await updateRow(sql, { table: 'everything', id: { id: rows[0].id }, change: () => ({ note: 'new' }) })
  await sql.end()
  expect((await pool.query('select at::text, note from everything')).rows).toEqual([
    { at: 'infinity', note: 'new' },
  ])
})

test('null is written over a time that never ends, through postgres.js, too', async () => {
  const { rows } = await pool.query(
    "insert into everything (at, times) values ('infinity', '{-infinity}') returning id",
  )
  const sql = postgres(server.url)
  const change = () => ({ at: null, times: [null] })
  await updateRow(sql, { table: 'everything', id: { id: rows[0].id }, change })
  await sql.end()
  expect((await pool.query('select at, times from everything')).rows).toEqual([{ at: null, times: [null] }])
})

describe('in the whole row', () => {
  test('a time that never ends may be left alone, through postgres.js', async () => {
    const { rows } = await pool.query(
      "insert into everything (at, times) values ('infinity', '{-infinity}') returning id",
    )
    const sql = postgres(server.url)
    const change = (row: object) => ({ ...row, note: 'new' })
    await updateRow(sql, { table: 'everything', id: { id: rows[0].id }, change })
    await sql.end()
    expect((await pool.query('select at::text, times::text, note from everything')).rows).toEqual([
      { at: 'infinity', times: '{-infinity}', note: 'new' },
    ])
  })

  interface Parsed {
    readonly doc: Map<string, unknown>
    readonly tags: Set<string>
    readonly raw: Float32Array
  }
  /** A client whose type parsers give values that cannot be written. */
  const parsing: SqlExecutor = {
    async query(statement, parameters = []) {
      const { rows } = await pool.query(statement, [...parameters])
      return rows.map((row) => ({
        ...row,
        doc: new Map(Object.entries(row.doc)),
        tags: new Set(row.tags),
        raw: new Float32Array(row.raw),
      }))
    },
  }
  const values = { doc: { a: 1 }, tags: ['b'], raw: Buffer.from([1]) }
  const update = async (change: (row: Parsed) => object) => {
    const { rows } = await pool.query(
      'insert into everything (doc, tags, raw) values ($1, $2, $3) returning id',
      Object.values(values),
    )
    return await updateRow<Parsed>(parsing, { table: 'everything', id: { id: rows[0].id }, change })
  }
  const written = async () => (await pool.query('select doc, tags, raw, note from everything')).rows

  test('a value that cannot be written may be left alone', async () => {
    await update((row) => ({ ...row, note: 'new' }))
    expect(await written()).toEqual([{ ...values, note: 'new' }])
  })

  test.each<[string, string, (row: Parsed) => void]>([
    ['a changed Map', 'doc', ({ doc }) => doc.set('a', 2)],
    ['a changed Set', 'tags', ({ tags }) => tags.add('c')],
    ['a changed typed array', 'raw', ({ raw }) => raw.fill(2)],
    ['another Map', 'doc', (row) => Object.assign(row, { doc: new Map(row.doc) })],
  ])('%s is refused', async (_, column, change) => {
    const all = (row: Parsed) => {
      change(row)
      return row
    }
    await expect(update(all)).rejects.toThrow(`Expected \`change().${column}\` to be a value`)
    expect(await written()).toEqual([{ ...values, note: null }])
  })
})

const change = () => ({ balance: 1 })
const base = { table: 'account', id: { id: 1 }, change }
const wrong: [string, object, string][] = [
  ['no change', { ...base, change: undefined }, '`change` to be a function'],
  [
    'a new id',
    { ...base, change: () => ({ id: 7 }) },
    '`change()` to be columns other than those of the id, got "id"',
  ],
  ['a change that is no object', { ...base, change: () => 5 }, '`change()` to be an object'],
  ['a change that is a Map', { ...base, change: () => new Map() }, '`change()` to be an object'],
  ['a change that is a Date', { ...base, change: () => new Date() }, '`change()` to be an object'],
  [
    'a change to a Promise',
    { ...base, change: () => ({ balance: Promise.resolve(1) }) },
    '`change().balance` to be',
  ],
  ['no attempt', { ...base, attempts: 0 }, '`attempts` to be'],
  [
    'an id of several rows',
    { ...base, id: { version: 1 } },
    '`id` to be the columns of a unique key, got "2 rows"',
  ],
  ['a misspelt option', { ...base, ids: {} }, 'the options to be among'],
]
test.each(wrong)('%s is refused', async (_, update, message) => {
  await expect(updateRow(pool, update as never)).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining(`Expected ${message}`),
  })
  expect((await stored())[0]).toEqual({ id: 1, balance: 100, version: 1 })
})

test('a version of null would conflict for ever, and is refused', async () => {
  await pool.query(
    'create table unversioned (id int primary key, version int); insert into unversioned values (1, null)',
  )
  await expect(
    updateRow(pool, { table: 'unversioned', id: { id: 1 }, change: () => ({ id: 1 }) }),
  ).rejects.toThrow('Expected `version` to be a column that is never null, got "null in `version`".')
})
