import { Pool } from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { guard, guardedUpdate, migrateGuard } from '../../src/guard/index.ts'
import { updateRow } from '../../src/optimistic/index.ts'
import { advisoryXact, postgresStore, tryAdvisoryXact } from '../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'

let server: PostgresServer
let pool: Pool

beforeAll(async () => {
  server = await startPostgres()
  pool = new Pool({ connectionString: server.url })
  await migrateGuard(pool)
  await pool.query('create table account (id int primary key, balance int, fence bigint, version int)')
})
afterAll(async () => {
  await pool.end()
  await server.close()
})
beforeEach(async () => {
  await pool.query('truncate account; insert into account values (1, 100, 7, 1)')
})

const stored = async () => (await pool.query('select * from account')).rows
const opened = (transform: postgres.Options<never>['transform']) => {
  const sql = postgres(server.url, transform === undefined ? {} : { transform })
  return { sql, [Symbol.asyncDispose]: () => sql.end() }
}
const late = { table: 'account', id: { id: 1 }, set: { balance: 0 }, fence: 6n }

describe('through postgres.js with names in Pascal case', () => {
  test('a guard takes a transaction, and nothing else', async () => {
    await using client = opened(postgres.pascal)
    await expect(guard(client.sql, { resource: 'r', fence: 5n })).rejects.toThrow(
      'to be inside a transaction',
    )
    await client.sql.begin((tx) => guard(tx, { resource: 'r', fence: 5n }))
  })

  test('a row refuses an older fence', async () => {
    await using client = opened(postgres.pascal)
    expect(await guardedUpdate(client.sql, { ...late, set: { balance: 90 }, fence: 8n })).toBe(true)
    await expect(guardedUpdate(client.sql, late)).rejects.toMatchObject({ code: 'stale-fence' })
  })

  test('a row is updated, by the names of the database', async () => {
    await using client = opened(postgres.pascal)
    const change = ({ Balance }: { Balance: number }) => ({ balance: Balance - 10 })
    const row = await updateRow<object>(client.sql, {
      table: 'account',
      id: { id: 1 },
      change: change as never,
    })
    expect(row).toEqual({ Id: 1, Balance: 90, Fence: '7', Version: 2 })
    expect(await stored()).toEqual([{ id: 1, balance: 90, fence: '7', version: 2 }])
  })

  test('an advisory lock takes a transaction, and nothing else', async () => {
    await using client = opened(postgres.pascal)
    await expect(tryAdvisoryXact(client.sql, 'r')).rejects.toThrow('to be inside a transaction')
    await client.sql.begin(async (tx) => {
      expect(await tryAdvisoryXact(tx, 'r')).toBe(true)
      await using other = opened(postgres.pascal)
      await expect(
        other.sql.begin((second) => advisoryXact(second, 'r', { wait: 50 })),
      ).rejects.toMatchObject({
        code: 'acquire-timeout',
      })
    })
  })
})

describe('through a client that gives columns other names', () => {
  const transform = { column: { from: (name: string) => `c_${name}` } }
  const message = (name: string) =>
    `Expected \`client\` to be one that leaves the name of the column \`${name}\` as it is, got "c_`

  test('nothing is taken for a success', async () => {
    await using client = opened(transform)
    const { sql } = client
    await expect(guard(sql, { resource: 'r', fence: 5n })).rejects.toThrow(message('transaction'))
    await expect(sql.begin((tx) => guard(tx, { resource: 'r', fence: 5n }))).rejects.toThrow(
      message('transaction'),
    )
    await expect(guardedUpdate(sql, late)).rejects.toThrow(message('seen'))
    await expect(guardedUpdate(sql, { ...late, fence: 8n })).rejects.toThrow(message('updated'))
    const change = () => ({ balance: 0 })
    await expect(updateRow(sql, { table: 'account', id: { id: 1 }, change })).rejects.toThrow(
      message('holdfastversion'),
    )
    await expect(sql.begin((tx) => tryAdvisoryXact(tx, 'r'))).rejects.toThrow(message('granted'))
  })
})

test.each([
  ['names', postgres.camel],
  ['values', { value: { from: (value: unknown) => value } }],
  ['rows', { row: { from: (row: unknown) => row } }],
])('a store does not share the connections of a client that changes %s', async (_, transform) => {
  await using client = opened(transform as never)
  expect(() => postgresStore(client.sql, { connections: 'shared' })).toThrow(
    'Expected `client` to be a `sql` without `transform`, to share its connections, got',
  )
})

test('a client that is too old to share its connections is told so', () => {
  const old = { options: {}, unsafe() {}, begin() {} }
  expect(() => postgresStore(old as never, { connections: 'shared' })).toThrow('postgres 3.4 or newer')
})
