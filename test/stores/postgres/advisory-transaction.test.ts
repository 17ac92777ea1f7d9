import { drizzle } from 'drizzle-orm/node-postgres'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import {
  AcquireTimeoutError,
  DeadlockError,
  InvalidArgumentError,
  isHoldfastError,
} from '../../../src/errors.ts'
import type { SqlClient } from '../../../src/postgres/executor.ts'
import { advisoryLockId } from '../../../src/stores/postgres/advisory/key.ts'
import { advisoryXact, tryAdvisoryXact } from '../../../src/stores/postgres/advisory/transaction.ts'
import { clients as guardClients } from '../../guard/clients.ts'
import { startPgBouncer } from '../../servers/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'

let server: PostgresServer
let pool: pg.Pool

beforeAll(async () => {
  server = await startPostgres()
  await server.sql('create table account (id text primary key, cents bigint not null)')
})
afterAll(() => server.close())

beforeEach(() => {
  pool = new pg.Pool({ connectionString: server.url, max: 20 })
})
afterEach(async () => {
  await pool.end()
  expect(await server.sql("select * from pg_locks where locktype = 'advisory'")).toEqual([])
})

/** A transaction on a connection of its own, which ends with `end`. */
async function begin(
  mode = '',
): Promise<{ client: pg.PoolClient; end: (how?: 'commit' | 'rollback') => Promise<void> }> {
  const client = await pool.connect()
  await client.query(`begin ${mode}`)
  return {
    client,
    async end(how = 'rollback') {
      await client.query(how)
      client.release()
    },
  }
}

const waiting = (count = 1) =>
  until(`${count} wait for an advisory lock`, async () => {
    const rows = await server.sql("select from pg_locks where locktype = 'advisory' and not granted")
    return rows.length === count
  })

/** Runs `work` in a transaction of each of the usual clients. */
const clients: Readonly<Record<string, (work: (tx: SqlClient) => Promise<unknown>) => Promise<unknown>>> = {
  pg: async (work) => {
    const { client, end } = await begin()
    return work(client).finally(() => end())
  },
  'an executor of the user’s own': async (work) => {
    const { client, end } = await begin()
    const query = async (text: string, parameters?: readonly (string | null)[]) =>
      (await client.query(text, parameters as string[])).rows
    return work({ query }).finally(() => end())
  },
  'postgres.js': async (work) => {
    const sql = postgres(server.url, { max: 1 })
    return sql.begin((tx) => work(tx)).finally(() => sql.end())
  },
  Kysely: (work) =>
    new Kysely({ dialect: new PostgresDialect({ pool }) }).transaction().execute((tx) => work(tx)),
  Drizzle: (work) => drizzle(pool).transaction((tx) => work(tx)),
  'Drizzle over postgres.js': (work) => through('Drizzle over postgres.js', work),
  'the raw statements of Prisma': (work) => through('the raw statements of Prisma', work),
}

async function through(name: string, work: (tx: SqlClient) => Promise<unknown>): Promise<unknown> {
  const [, open] = guardClients.find(([each]) => each === name) as (typeof guardClients)[number]
  await using client = await open(server.url)
  let result: unknown
  await client.transaction(async (tx) => {
    result = await work(tx)
  })
  return result
}

describe.each(Object.entries(clients))('through %s', (_name, inTransaction) => {
  test('a key is locked until the transaction ends, for others but not for itself', async () => {
    await inTransaction(async (tx) => {
      await advisoryXact(tx, 'a')
      await advisoryXact(tx, 'a')
      const other = await begin()
      expect(await tryAdvisoryXact(other.client, 'a')).toBe(false)
      expect(await tryAdvisoryXact(other.client, 'b')).toBe(true)
      await other.end()
    })
    const { client, end } = await begin()
    expect(await tryAdvisoryXact(client, 'a')).toBe(true)
    await end()
  })

  test('a wait is granted when the holder’s transaction ends', async () => {
    const holder = await begin()
    await advisoryXact(holder.client, 'a')
    const waits = inTransaction(async (tx) => {
      await advisoryXact(tx, 'a', { wait: '20s' })
      return 'granted'
    })
    await waiting()
    await holder.end('commit')
    expect(await waits).toBe('granted')
  })

  test('a time-out says so, and leaves the transaction and its settings as they were', async () => {
    const holder = await begin()
    await advisoryXact(holder.client, 'a')
    await inTransaction(async (tx) => {
      const error = await advisoryXact(tx, 'a', { wait: 30 }).catch((reason: unknown) => reason)
      expect(error).toBeInstanceOf(AcquireTimeoutError)
      expect(error).toMatchObject({ key: 'a', code: 'acquire-timeout' })
      expect((error as AcquireTimeoutError).waitedMs).toBeGreaterThanOrEqual(30)
      await advisoryXact(tx, 'b')
    })
    await holder.end()
  })
})

test('shared ones stand together, and keep an exclusive one out', async () => {
  const [one, two, writer] = await Promise.all([begin(), begin(), begin()])
  await advisoryXact(one.client, 'a', { shared: true })
  expect(await tryAdvisoryXact(two.client, 'a', { shared: true })).toBe(true)
  expect(await tryAdvisoryXact(writer.client, 'a')).toBe(false)
  await one.end()
  const waits = advisoryXact(writer.client, 'a')
  await waiting()
  // A new shared lock waits behind the writer.
  const late = await begin()
  expect(await tryAdvisoryXact(late.client, 'a', { shared: true })).toBe(false)
  await two.end()
  await waits
  await Promise.all([late.end(), writer.end()])
})

test('waiters are granted in their order', async () => {
  const holder = await begin()
  await advisoryXact(holder.client, 'a')
  const order: number[] = []
  const waits: Promise<void>[] = []
  for (let index = 0; index < 5; index += 1) {
    const { client, end } = await begin()
    waits.push(
      advisoryXact(client, 'a', { wait: Number.POSITIVE_INFINITY }).then(() => {
        order.push(index)
        return end()
      }),
    )
    await waiting(index + 1)
  }
  await holder.end()
  await Promise.all(waits)
  expect(order).toEqual([0, 1, 2, 3, 4])
})

test('a savepoint that is rolled back unlocks every key that was locked after it', async () => {
  const { client, end } = await begin()
  await client.query('savepoint s')
  await advisoryXact(client, 'a')
  await client.query('rollback to s')
  const other = await begin()
  expect(await tryAdvisoryXact(other.client, 'a')).toBe(true)
  await other.end()
  await end()
})

test('a bounded wait goes by `wait` and not by lock_timeout, and puts lock_timeout back', async () => {
  const holder = await begin()
  await advisoryXact(holder.client, 'a')
  const { client, end } = await begin()
  await client.query("set local lock_timeout = '20ms'")
  const waits = advisoryXact(client, 'a', { wait: '20s' })
  await waiting()
  // The wait is far longer than the application's own lock_timeout, by the server's clock.
  await until('it has waited for a while', async () => {
    const rows = await server.sql(
      `select from pg_stat_activity where wait_event = 'advisory' and clock_timestamp() - query_start > '200ms'`,
    )
    return rows.length === 1
  })
  await holder.end()
  await waits
  expect((await client.query('show lock_timeout')).rows).toEqual([{ lock_timeout: '20ms' }])
  await end()
})

test('behind PgBouncer in transaction mode a key is locked, and outside of a transaction it is refused', async () => {
  const bouncer = await startPgBouncer(server)
  const behind = new pg.Pool({ connectionString: bouncer.url })
  const sql = postgres(bouncer.url, { prepare: false })
  const holder = await behind.connect()
  await holder.query('begin')
  await advisoryXact(holder, 'a')
  await expect(sql.begin((tx) => advisoryXact(tx, 'a', { wait: 30 }))).rejects.toBeInstanceOf(
    AcquireTimeoutError,
  )
  for (const client of [behind, sql]) {
    await expect(advisoryXact(client, 'b')).rejects.toThrow('Expected `tx` to be inside a transaction')
  }
  await holder.query('commit')
  await sql.begin((tx) => advisoryXact(tx, 'a'))
  holder.release()
  await Promise.all([behind.end(), sql.end()])
  await bouncer.close()
})

describe('outside of a transaction', () => {
  const sentence = /Expected `tx` to be inside a transaction/

  const outside: Readonly<Record<string, (work: (tx: SqlClient) => Promise<unknown>) => Promise<unknown>>> = {
    'a pool': (work) => work(pool),
    'a client of the pool': async (work) => {
      const client = await pool.connect()
      return work(client).finally(() => client.release())
    },
    'an executor': (work) => {
      const query = async (text: string, parameters?: readonly (string | null)[]) =>
        (await pool.query(text, parameters as string[])).rows
      return work({ query })
    },
    'postgres.js': async (work) => {
      const sql = postgres(server.url, { max: 1 })
      return work(sql).finally(() => sql.end())
    },
    'a transaction of postgres.js that has ended': async (work) => {
      const sql = postgres(server.url, { max: 1 })
      const ended = await sql.begin((tx) => Promise.resolve({ tx }))
      return work(ended.tx).finally(() => sql.end())
    },
    Kysely: (work) => work(new Kysely({ dialect: new PostgresDialect({ pool }) })),
    Drizzle: (work) => work(drizzle(pool)),
  }

  test.each(Object.entries(outside))('%s is refused', async (_name, using) => {
    await using(async (tx) => {
      await expect(advisoryXact(tx, 'a')).rejects.toThrow(sentence)
      await expect(advisoryXact(tx, 'a')).rejects.toBeInstanceOf(InvalidArgumentError)
      await expect(tryAdvisoryXact(tx, 'a', { shared: true })).rejects.toThrow(sentence)
      const holder = await begin()
      await advisoryXact(holder.client, 'a')
      // Each call rejects at once, because it would wait for nothing.
      await expect(advisoryXact(tx, 'a', { wait: Number.POSITIVE_INFINITY })).rejects.toThrow(sentence)
      await expect(tryAdvisoryXact(tx, 'a')).rejects.toThrow(sentence)
      await holder.end()
    })
  })
})

test('two transactions that wait for one another: one gets a DeadlockError, the other one the key', async () => {
  const [one, two] = await Promise.all([begin(), begin()])
  await advisoryXact(one.client, 'a')
  await advisoryXact(two.client, 'b')
  const outcomes = await Promise.all(
    [
      { ...one, key: 'b' },
      { ...two, key: 'a' },
    ].map(async ({ client, end, key }) => {
      const outcome = await advisoryXact(client, key, { wait: '20s' }).catch((reason: unknown) => reason)
      await end()
      return outcome
    }),
  )
  const errors = outcomes.filter((outcome) => outcome !== undefined)
  expect(errors).toHaveLength(1)
  expect(errors[0]).toBeInstanceOf(DeadlockError)
  expect((errors[0] as DeadlockError).cause).toMatchObject({ code: '40P01' })
})

test('a transaction that has failed before is named as such', async () => {
  const { client, end } = await begin()
  await client.query('select 1/0').catch(() => undefined)
  const error = await advisoryXact(client, 'a').catch((reason: unknown) => reason)
  expect(isHoldfastError(error, 'store-refused')).toBe(true)
  expect((error as Error).message).toContain('failed before')
  await end()
})

test('a cancelled wait is `store-unavailable`, and the transaction has to be rolled back', async () => {
  const holder = await begin()
  await advisoryXact(holder.client, 'a')
  const { client, end } = await begin()
  await client.query("set local statement_timeout = '30ms'")
  const error = await advisoryXact(client, 'a', { wait: '20s' }).catch((reason: unknown) => reason)
  expect(isHoldfastError(error, 'store-unavailable')).toBe(true)
  expect((error as Error).message).toContain('statement_timeout')
  await end()
  await holder.end()
})

test('the connection of a holder that is terminated frees the key; a waiter whose connection ends is told', async () => {
  const [holder, waiter] = await Promise.all([pool.connect(), pool.connect()])
  for (const client of [holder, waiter]) {
    client.on('error', () => {})
    await client.query('begin')
  }
  await advisoryXact(holder, 'a')
  const waits = advisoryXact(waiter, 'a').catch((reason: unknown) => reason)
  await waiting()
  await server.sql(
    "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and not granted",
  )
  expect(isHoldfastError(await waits, 'store-unavailable')).toBe(true)
  const { client, end } = await begin()
  const next = advisoryXact(client, 'a')
  await waiting()
  await server.sql("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted")
  await next
  await end()
  for (const each of [holder, waiter]) each.release(true)
})

test('several calls at once on one transaction each lock their own key', async () => {
  const holder = await begin()
  for (const key of ['a', 'b', 'c']) await advisoryXact(holder.client, key)
  const sql = postgres(server.url, { max: 1 })
  const keys = ['a', 'free', 'b', 'c']
  const locked = sql.begin(async (tx) => {
    // The calls run as a pipeline, so that their statements mix.
    await Promise.all(keys.map((key) => advisoryXact(tx, key, { wait: '20s' })))
    const rows = await tx`
      select ((classid::bigint << 32) | objid::bigint)::text as id from pg_locks
      where locktype = 'advisory' and pid = pg_backend_pid()`
    return rows.map(({ id }) => String(id)).sort()
  })
  await waiting()
  await holder.end()
  expect(await locked).toEqual(keys.map((key) => String(advisoryLockId(key))).sort())
  await sql.end()
})

test.each(['read committed', 'serializable'])(
  'transfers under %s as the database’s default move every cent once',
  async (isolation) => {
    const rounds = 30
    await server.sql(
      `truncate account; insert into account values ('from', 1000), ('to', 0);
       alter database holdfast set default_transaction_isolation = '${isolation}'`,
    )
    let conflicts = 0
    const transfer = async (): Promise<void> => {
      const { client, end } = await begin()
      try {
        await advisoryXact(client, 'account:from')
        const { rows } = await client.query("select cents from account where id = 'from'")
        await client.query("update account set cents = $1 where id = 'from'", [Number(rows[0].cents) - 1])
        await client.query("update account set cents = cents + 1 where id = 'to'")
        await end('commit')
      } catch (error) {
        await end()
        if ((error as { code?: string }).code !== '40001') throw error
        conflicts += 1
        await transfer()
      }
    }
    try {
      await Promise.all(Array.from({ length: rounds }, transfer))
      expect(await server.sql('select id, cents::int from account order by id')).toEqual([
        { id: 'from', cents: 1000 - rounds },
        { id: 'to', cents: rounds },
      ])
      // This checks the documentation's words about isolation: the lock alone is enough in READ COMMITTED only.
      expect(conflicts > 0).toBe(isolation === 'serializable')
    } finally {
      await server.sql('alter database holdfast reset default_transaction_isolation')
    }
  },
)

describe('the number of a key', () => {
  test('never changes, and is what PostgreSQL computes from the same text', async () => {
    expect(advisoryLockId('account:42')).toBe(4097093253131737194n)
    for (const key of ['account:42', 'Zürich', '🔒', ' ']) {
      const [row] = await server.sql<{ id: string }>(
        `select ('x' || left(encode(sha256(convert_to('${key}', 'UTF8')), 'hex'), 16))::bit(64)::bigint::text as id`,
      )
      expect(row?.id).toBe(String(advisoryLockId(key)))
    }
  })

  test('is that of the lock that is taken', async () => {
    const { client, end } = await begin()
    await advisoryXact(client, 'a')
    const rows = await server.sql(
      "select ((classid::bigint << 32) | objid::bigint)::text as id, objsubid from pg_locks where locktype = 'advisory'",
    )
    expect(rows).toEqual([{ id: String(advisoryLockId('a')), objsubid: 1 }])
    await end()
  })
})

test.each([
  [() => advisoryXact(pool, ''), 'Expected `key` to be a string with at least one character, got "".'],
  [() => advisoryXact(pool, 'a', { wait: -1 }), 'Expected `wait` to be a duration from 0 ms'],
  [() => advisoryXact(pool, 'a', { shared: 1 as never }), 'Expected `shared` to be true or false, got 1.'],
  [
    () => advisoryXact(pool, 'a', { signal: 1 } as never),
    'Expected the options to be among `shared`, `wait`',
  ],
  [
    () => tryAdvisoryXact(pool, 'a', { wait: 1 } as never),
    'Expected the options to be among `shared`, got `wait`.',
  ],
  [() => advisoryXact(null as never, 'a'), 'Expected `tx` to be a client of'],
])('bad input %#: one sentence', async (call, sentence) => {
  await expect(call()).rejects.toThrow(sentence)
  await expect(call()).rejects.toBeInstanceOf(InvalidArgumentError)
})
