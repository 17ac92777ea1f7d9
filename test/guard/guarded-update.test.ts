import { Client, Pool } from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { guardedUpdate } from '../../src/guard/index.ts'
import type { SqlClient } from '../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { clients } from './clients.ts'

// This zone is not UTC, so a time without a zone shows whose zone it has.
process.env['TZ'] = 'America/St_Johns'

let server: PostgresServer
let pool: Pool

beforeAll(async () => {
  server = await startPostgres()
  pool = new Pool({ connectionString: server.url })
  await pool.query(`
    create table account (id int primary key, balance int not null, note text, fence bigint);
    create table calendar (
      id int primary key, fence bigint, day date, time timestamp, instant timestamptz,
      days date[], times timestamp[], instants timestamptz[], doc jsonb, dates jsonb);
    create schema "My ""bank""";
    create table "My ""bank"""."Account" (
      "bankId" text, "no" bigint, "Last Fence" bigint not null default 0,
      flag bool, at timestamptz, doc jsonb, tags text[], raw bytea, raws bytea[], amount numeric, ratio float8,
      primary key ("bankId", "no")
    )`)
})
afterAll(async () => {
  await pool.end()
  await server.close()
})
beforeEach(async () => {
  await pool.query('truncate account; insert into account values (1, 100, null, null), (2, 100, null, null)')
})

const rows = async () => (await pool.query('select id, balance, fence from account order by id')).rows
const write = (client: SqlClient, fence: bigint, balance: number, id = 1) =>
  guardedUpdate(client, { table: 'account', id: { id }, set: { balance }, fence })

describe.each(clients)('through %s', (name, open) => {
  test('a row takes writes under its fence or a later one, and refuses older ones', async () => {
    await using client = await open(server.url)
    expect(await write(client.root, 7n, 60)).toBe(true)
    expect(await write(client.root, 7n, 50)).toBe(true)
    await expect(write(client.root, 6n, 0)).rejects.toMatchObject({
      code: 'stale-fence',
      key: 'account id=1',
      cause: expect.anything(),
    })
    expect(await write(client.root, 8n, 40)).toBe(true)
    expect(await rows()).toEqual([
      { id: 1, balance: 40, fence: '8' },
      { id: 2, balance: 100, fence: null },
    ])
  })

  test('an id that several rows have is refused, and none of them is written', async () => {
    await using client = await open(server.url)
    const options = { table: 'account', id: { balance: 100 }, set: { note: 'mine' }, fence: 7n }
    await expect(guardedUpdate(client.root, options)).rejects.toThrow(
      'Expected `id` to be the columns of a unique key, got "several rows".',
    )
    expect(await rows()).toMatchObject([{ fence: null }, { fence: null }])
  })

  test('a row that does not exist is no stale fence', async () => {
    await using client = await open(server.url)
    expect(await write(client.root, 7n, 0, 3)).toBe(false)
  })

  test('a stale fence leaves nothing of its transaction, although the error is caught and the rest committed', async () => {
    await using client = await open(server.url)
    await write(client.root, 7n, 60)
    let said: unknown
    await client
      .transaction(async (tx, statement) => {
        await statement('update account set balance = 0 where id = 2')
        await write(tx, 6n, 0).catch((error: unknown) => {
          said = error
        })
      })
      .catch(() => {})
    expect(said).toMatchObject({ code: 'stale-fence' })
    expect((await rows()).map(({ balance }) => balance)).toEqual([60, 100])
  })

  test('every type of a column takes its value, under awkward names', async () => {
    await using client = await open(server.url)
    await pool.query(
      `truncate "My ""bank"""."Account"; insert into "My ""bank"""."Account" values ('b''1', 9007199254740993)`,
    )
    const at = new Date('2026-11-21T05:06:07.089Z')
    const found = await guardedUpdate(client.root, {
      table: 'My "bank".Account',
      id: { bankId: "b'1", no: 9_007_199_254_740_993n },
      set: {
        flag: false,
        at,
        doc: ['a "quoted" text', { deep: null }],
        tags: ['x, y', 'z"'],
        raw: Buffer.from([0, 255, 16]),
        raws: [Buffer.from([0, 255]), null, new Uint8Array([16])],
        amount: '0.10000000000000000001',
        ratio: Number.POSITIVE_INFINITY,
      },
      fence: 9_007_199_254_740_993n,
      fenceColumn: 'Last Fence',
    })
    expect(found).toBe(true)
    const written = await pool.query('select * from "My ""bank"""."Account"')
    expect(written.rows).toEqual([
      {
        bankId: "b'1",
        no: '9007199254740993',
        'Last Fence': '9007199254740993',
        flag: false,
        at,
        doc: ['a "quoted" text', { deep: null }],
        tags: ['x, y', 'z"'],
        raw: Buffer.from([0, 255, 16]),
        raws: [Buffer.from([0, 255]), null, Buffer.from([16])],
        amount: '0.10000000000000000001',
        ratio: Number.POSITIVE_INFINITY,
      },
    ])
  })

  test('a time without a zone is written in the zone of this client, also in an array', async () => {
    await using client = await open(server.url)
    await pool.query('truncate calendar; insert into calendar values (1)')
    const at = new Date('2026-11-21T01:06:07.089Z')
    const set = {
      day: at,
      time: at,
      instant: at,
      days: [at],
      times: [at, null],
      instants: [[at]],
      doc: [{ at }],
      dates: [at],
    }
    await guardedUpdate(client.root, { table: 'calendar', id: { id: 1 }, set, fence: 5n })
    const columns = Object.keys(set).map((column) => `${column}::text`)
    const [written] = await server.sql(`set timezone to utc; select ${columns.join(', ')} from calendar`)
    const [day, time, date] =
      name.includes('Drizzle') || name.includes('Prisma')
        ? ['2026-11-21', '2026-11-21 01:06:07.089', '2026-11-21T01:06:07.089Z']
        : ['2026-11-20', '2026-11-20 21:36:07.089', '2026-11-20T21:36:07.089-03:30']
    expect(written).toEqual({
      day,
      time,
      instant: '2026-11-21 01:06:07.089+00',
      days: `{${day}}`,
      times: `{"${time}",NULL}`,
      instants: '{{"2026-11-21 01:06:07.089+00"}}',
      doc: '[{"at": "2026-11-21T01:06:07.089Z"}]',
      dates: `["${date}"]`,
    })
  })
})

test('a holder that waited for the row while a later one wrote is refused', async () => {
  const next = new Client({ connectionString: server.url })
  await next.connect()
  try {
    await next.query('begin')
    await write(next, 7n, 60)
    const refused = expect(write(pool, 6n, 0)).rejects.toMatchObject({ code: 'stale-fence' })
    await until('the server makes it wait for the row', async () => {
      const waiting = await server.sql("select 1 from pg_stat_activity where wait_event_type = 'Lock'")
      return waiting.length > 0
    })
    await next.query('commit')
    await refused
    expect((await rows())[0]).toEqual({ id: 1, balance: 60, fence: '7' })
  } finally {
    await next.end()
  }
})

test('null empties a column, and undefined leaves it alone', async () => {
  await pool.query("update account set note = 'x' where id = 1")
  const set = { balance: 1, note: undefined as string | undefined | null }
  await guardedUpdate(pool, { table: 'account', id: { id: 1 }, set, fence: 5n })
  expect((await pool.query('select note from account where id = 1')).rows).toEqual([{ note: 'x' }])
  await guardedUpdate(pool, { table: 'account', id: { id: 1 }, set: { ...set, note: null }, fence: 5n })
  expect((await pool.query('select note from account where id = 1')).rows).toEqual([{ note: null }])
})

test('an object in a document is written as its toJSON says, also where it stands twice', async () => {
  await pool.query('truncate calendar; insert into calendar values (1)')
  const price = { amount: 1, toJSON: () => ({ euros: '1.00' }) }
  const doc = { price, prices: [price, price] }
  await guardedUpdate(pool, { table: 'calendar', id: { id: 1 }, set: { doc }, fence: 5n })
  const euros = { euros: '1.00' }
  expect((await pool.query('select doc from calendar')).rows).toEqual([
    { doc: { price: euros, prices: [euros, euros] } },
  ])
})

test('without columns it only claims the row for this fence, before anything is read', async () => {
  expect(await guardedUpdate(pool, { table: 'account', id: { id: 1 }, set: {}, fence: 5n })).toBe(true)
  expect((await rows())[0]).toEqual({ id: 1, balance: 100, fence: '5' })
})

test('a row that a policy or trigger holds back is not updated, and not stale', async () => {
  await pool.query(`
    create table frozen (id int primary key, fence bigint);
    insert into frozen values (1, 5);
    create function keep() returns trigger language plpgsql as 'begin return null; end';
    create trigger keep before update on frozen for each row execute function keep()`)
  expect(await guardedUpdate(pool, { table: 'frozen', id: { id: 1 }, set: {}, fence: 7n })).toBe(false)
})

test('errors of the database come through as they are', async () => {
  await expect(
    guardedUpdate(pool, { table: 'account', id: { id: 1 }, set: { blance: 1 }, fence: 5n }),
  ).rejects.toMatchObject({ code: '42703' })
  await expect(
    guardedUpdate(pool, { table: 'account', id: { id: 1 }, set: { balance: 'much' }, fence: 5n }),
  ).rejects.toMatchObject({ code: '22P02' })
})

class Author {
  readonly name: unknown

  constructor(name: unknown) {
    this.name = name
  }
}

const cyclic: { inner: unknown[] } = { inner: [] }
cyclic.inner.push(cyclic)

const base = { table: 'account', id: { id: 1 }, set: { balance: 1 }, fence: 5n }
const wrong: [string, object, string][] = [
  [
    'a table with too many dots',
    { ...base, table: 'a.b.c' },
    "`table` to be the name of a table, as 'table' or 'schema.table'",
  ],
  ['a table with NUL', { ...base, table: 'a\0' }, '`table` to be a name'],
  ['no table', { ...base, table: undefined }, '`table` to be'],
  ['an id without columns', { ...base, id: {} }, '`id` to be an object with at least one column'],
  ['an id that is a number', { ...base, id: 1 }, '`id` to be an object'],
  ['an id of null', { ...base, id: { id: null } }, '`id.id` to be a value'],
  ['an id that lacks a part', { ...base, id: { id: 1, no: undefined } }, '`id.no` to be a value'],
  ['an id of undefined', { ...base, id: { id: undefined } }, '`id.id` to be a value'],
  ['an array for columns', { ...base, set: [1] }, '`set` to be an object with a value for each column'],
  ['a function for a value', { ...base, set: { balance: () => 1 } }, '`set.balance` to be a value'],
  ['a date that is none', { ...base, set: { balance: new Date('x') } }, '`set.balance` to be a valid date'],
  [
    'a date that is none, in an array',
    { ...base, set: { note: [new Date('x')] } },
    '`set.note` to be a valid',
  ],
  [
    'a Promise',
    { ...base, set: { note: Promise.resolve() } },
    '`set.note` to be a value rather than a Promise',
  ],
  [
    'a Promise in a document',
    { ...base, set: { note: { by: [Promise.resolve()] } } },
    '`set.note` to be a value',
  ],
  [
    'an object whose toJSON gives a Promise',
    { ...base, set: { note: { toJSON: async () => 1 } } },
    '`set.note` to be a value rather',
  ],
  ['a Map', { ...base, set: { note: new Map() } }, '`set.note` to be a value'],
  ['a Set', { ...base, set: { note: new Set() } }, '`set.note` to be a value'],
  ['an ArrayBuffer', { ...base, set: { note: new ArrayBuffer(1) } }, '`set.note` to be a value'],
  ['a SharedArrayBuffer', { ...base, set: { note: new SharedArrayBuffer(1) } }, '`set.note` to be a value'],
  [
    'a Promise in an instance of a class',
    { ...base, set: { note: new Author(Promise.resolve('Ada')) } },
    '`set.note` to be a value rather than a Promise',
  ],
  ['an array of floats', { ...base, set: { note: new Float32Array(1) } }, '`set.note` to be a value'],
  [
    'a document that contains itself',
    { ...base, set: { note: cyclic } },
    '`set.note` to be a value that does',
  ],
  ['a Promise of columns', { ...base, set: Promise.resolve({}) }, '`set` to be an object with a value'],
  ['a Map of columns', { ...base, set: new Map() }, '`set` to be an object with a value'],
  ['a Date for columns', { ...base, set: new Date() }, '`set` to be an object with a value'],
  [
    'a new id',
    { ...base, set: { id: 2 } },
    '`set` to be columns other than those of the id and the fence, got "id"',
  ],
  ['a fence by hand', { ...base, set: { fence: 2 } }, '`set` to be columns other than'],
  ['a fence that is none', { ...base, fence: 1.5 }, '`fence` to be'],
  ['a misspelt option', { ...base, where: {} }, 'the options to be among'],
]
test.each(wrong)('%s is refused before anything is asked', async (_, options, message) => {
  const untouched: SqlClient = { query: () => Promise.reject(new Error('asked')) }
  await expect(guardedUpdate(untouched, options as never)).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining(`Expected ${message}`),
  })
})

// The last one is like an answer of Sequelize.
test.each([
  ['nothing', undefined],
  ['rows as arrays', { rows: [[1]] }],
  ['a number', 1],
  ['an array of rows, and more', [[], { rowCount: 0 }]],
])('a client that answers with %s is refused, because its write may have been', async (_, answer) => {
  const client = { query: async () => answer as never }
  await expect(write(client, 5n, 60)).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining('Expected `client` to be one that answers with an array of rows, each'),
  })
})

test('a row among many is found by the index of its id', async () => {
  await pool.query(`
    create table many (a int, b text, fence bigint, primary key (a, b));
    insert into many select n, n from generate_series(1, 5000) n;
    analyze many`)
  const client = await pool.connect()
  const scans = async () => {
    await client.query('select pg_stat_force_next_flush()')
    return (await client.query("select seq_scan, idx_scan from pg_stat_user_tables where relname = 'many'"))
      .rows[0]
  }
  const before = await scans()
  await guardedUpdate(client, { table: 'many', id: { a: 7, b: '7' }, set: {}, fence: 5n })
  // Once to count, and once to update.
  expect(await scans()).toEqual({ ...before, idx_scan: String(Number(before.idx_scan) + 2) })
  client.release()
})
