import { drizzle as drizzleOverPg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzleOverPostgresJs } from 'drizzle-orm/postgres-js'
import { Pool } from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { executorOf, type SqlClient } from '../../src/postgres/executor.ts'
import { isOverdue, storeErrorOf } from '../../src/postgres/failures.ts'
import { freePort } from '../servers/free-port.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'

let server: PostgresServer

beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server.close())

interface Opened {
  readonly client: SqlClient
  close(): Promise<void>
}

const opens: readonly (readonly [string, (url: string) => Opened])[] = [
  [
    'pg',
    (url) => {
      const pool = new Pool({ connectionString: url })
      return { client: pool, close: () => pool.end() }
    },
  ],
  [
    'Drizzle over pg',
    (url) => {
      const pool = new Pool({ connectionString: url })
      return { client: drizzleOverPg(pool), close: () => pool.end() }
    },
  ],
  [
    'Drizzle over postgres.js',
    (url) => {
      const sql = postgres(url)
      return { client: drizzleOverPostgresJs(sql), close: () => sql.end() }
    },
  ],
]

async function failed({ client, close }: Opened): Promise<unknown> {
  try {
    await executorOf(client).query('select missing, $1::text', ['a certificate'])
  } catch (error) {
    return storeErrorOf(error, { doing: 'testing' })
  } finally {
    await close()
  }
  throw new Error('Expected a failure, got none')
}

test('a session that the server ends after its transaction_timeout is a trouble that passes, and no refusal', () => {
  const ended = Object.assign(new Error('terminating connection due to transaction timeout'), {
    code: '25P04',
  })
  const { code, message, cause } = storeErrorOf(ended, { doing: 'testing' })
  expect([code, message]).toEqual([
    'store-unavailable',
    'PostgreSQL ended the session after its `transaction_timeout`. Let the role have a longer one. Holdfast was testing.',
  ])
  expect(isOverdue(cause)).toBe(true)
})

test.each(opens)('the cause has the words of the server and no parameter, through %s', async (_, open) => {
  expect(await failed(open(server.url))).toMatchObject({
    code: 'store-refused',
    cause: { code: '42703', message: 'column "missing" does not exist' },
  })
})

test.each(opens)('without an answer the cause has no parameter either, through %s', async (_, open) => {
  const error = await failed(open(`postgres://nobody@127.0.0.1:${await freePort()}/none`))
  expect(error).toMatchObject({
    code: 'store-unavailable',
    message: expect.stringContaining('Nothing listens'),
    cause: { message: expect.not.stringMatching(/certificate|select/) },
  })
})

test('of an error of Prisma, too', () => {
  const driverAdapterError = { cause: { originalCode: '42501', originalMessage: 'permission denied' } }
  const error = Object.assign(new Error('Raw query failed'), { code: 'P2010', meta: { driverAdapterError } })
  expect(storeErrorOf(error, { doing: 'testing' })).toMatchObject({
    code: 'store-refused',
    cause: { code: '42501', message: 'permission denied' },
  })
})
