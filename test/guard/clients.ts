import { drizzle as drizzleOverPg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzleOverPostgresJs } from 'drizzle-orm/postgres-js'
import { CamelCasePlugin, CompiledQuery, Kysely, PostgresDialect } from 'kysely'
import { Client, Pool, type PoolClient } from 'pg'
import postgres from 'postgres'
import type { SqlClient, SqlExecutor } from '../../src/stores/postgres/index.ts'

/** One kind of client, opened on a database. */
export interface OpenClient extends AsyncDisposable {
  /** A client outside of any transaction. */
  readonly root: SqlClient
  /** Runs the work in a transaction that is committed unless the work throws. */
  transaction(work: (tx: SqlClient, write: Write) => Promise<void>): Promise<void>
}

/** Sends a statement without parameters as a user of this client would. */
export type Write = (text: string) => Promise<unknown>

type Open = (url: string) => Promise<OpenClient>

const pgClient: Open = async (url) => {
  const client = new Client({ connectionString: url })
  await client.connect()
  return {
    root: client,
    transaction: (work) => byHand((text) => client.query(text), client, work),
    [Symbol.asyncDispose]: () => client.end(),
  }
}

const pgPool: Open = async (url) => {
  const pool = new Pool({ connectionString: url })
  return {
    root: pool,
    async transaction(work) {
      const client = await pool.connect()
      await byHand((text) => client.query(text), client, work).finally(() => client.release())
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}

const postgresJs: Open = async (url) => {
  const sql = postgres(url)
  return {
    root: sql,
    async transaction(work) {
      await sql.begin((tx) => work(tx, async (text) => await tx.unsafe(text)))
    },
    [Symbol.asyncDispose]: () => sql.end(),
  }
}

const kysely: Open = async (url) => {
  const db = new Kysely<unknown>({
    dialect: new PostgresDialect({ pool: new Pool({ connectionString: url }) }),
    plugins: [new CamelCasePlugin()],
  })
  return {
    root: db,
    transaction: (work) =>
      db.transaction().execute((tx) => work(tx, (text) => tx.executeQuery(CompiledQuery.raw(text)))),
    [Symbol.asyncDispose]: () => db.destroy(),
  }
}

const drizzlePg: Open = async (url) => {
  const pool = new Pool({ connectionString: url })
  const db = drizzleOverPg(pool)
  return {
    root: db,
    transaction: (work) => db.transaction((tx) => work(tx, async (text) => await tx.execute(text))),
    [Symbol.asyncDispose]: () => pool.end(),
  }
}

const drizzlePostgresJs: Open = async (url) => {
  const sql = postgres(url)
  const db = drizzleOverPostgresJs(sql)
  return {
    root: db,
    transaction: (work) => db.transaction((tx) => work(tx, async (text) => await tx.execute(text))),
    [Symbol.asyncDispose]: () => sql.end(),
  }
}

/**
 * An executor that does not say whether it is in a transaction, as an older version of pg, or an object of the user's
 * own.
 */
const ownExecutor: Open = async (url) => {
  const client = new Client({ connectionString: url })
  await client.connect()
  const executor: SqlExecutor = {
    query: async (text, parameters = []) => (await client.query(text, [...parameters])).rows,
  }
  return {
    root: executor,
    transaction: (work) => byHand((text) => client.query(text), executor, work),
    [Symbol.asyncDispose]: () => client.end(),
  }
}

/**
 * Does with a raw statement what Prisma 7 does, over a client of pg. Its generated client and its engine are too large
 * for the tests. The real one was tried by hand.
 */
const likePrisma: Open = async (url) => {
  const pool = new Pool({ connectionString: url })
  const raw = (client: Pool | PoolClient) => ({
    async $queryRawUnsafe(text: string, ...values: unknown[]): Promise<unknown> {
      try {
        return (await client.query(text, values)).rows
      } catch (error) {
        const { code: originalCode, message: originalMessage } = error as Error & { code?: string }
        const driverAdapterError = { cause: { originalCode, originalMessage } }
        throw Object.assign(new Error('Raw query failed'), { code: 'P2010', meta: { driverAdapterError } })
      }
    },
  })
  return {
    root: { ...raw(pool), $connect: () => {} },
    async transaction(work) {
      const client = await pool.connect()
      await byHand((text) => client.query(text), raw(client), work).finally(() => client.release())
    },
    [Symbol.asyncDispose]: () => pool.end(),
  }
}

/** Answers as `query` of TypeORM 1 does: an UPDATE with its rows and their number, everything else with its rows. */
const likeTypeOrm: Open = async (url) => {
  const client = new Client({ connectionString: url })
  await client.connect()
  const manager = {
    async query(text: string, values?: unknown[]): Promise<never> {
      const { command, rows, rowCount } = await client.query(text, values)
      return (command === 'UPDATE' || command === 'DELETE' ? [rows, rowCount] : rows) as never
    },
  }
  return {
    root: manager,
    transaction: (work) => byHand((text) => client.query(text), manager, work),
    [Symbol.asyncDispose]: () => client.end(),
  }
}

export const clients: readonly (readonly [string, Open])[] = [
  ['pg, a client', pgClient],
  ['pg, a pool', pgPool],
  ['postgres.js', postgresJs],
  ['Kysely', kysely],
  ['Drizzle over pg', drizzlePg],
  ['Drizzle over postgres.js', drizzlePostgresJs],
  ['the raw statements of Prisma', likePrisma],
  ['what TypeORM answers', likeTypeOrm],
  ['an executor of one’s own', ownExecutor],
]

async function byHand(
  write: Write,
  client: SqlClient,
  work: (tx: SqlClient, write: Write) => Promise<void>,
): Promise<void> {
  await write('begin')
  try {
    await work(client, write)
    await write('commit')
  } catch (error) {
    await write('rollback')
    throw error
  }
}
