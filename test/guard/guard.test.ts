import { Client, Pool } from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { guard, migrateGuard } from '../../src/guard/index.ts'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import type { SqlClient } from '../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { clients } from './clients.ts'

let server: PostgresServer
let pool: Pool

beforeAll(async () => {
  server = await startPostgres()
  pool = new Pool({ connectionString: server.url })
  await migrateGuard(pool)
  await pool.query('create table account (id int primary key, balance int not null)')
})
afterAll(async () => {
  await pool.end()
  await server.close()
})
beforeEach(async () => {
  await pool.query('truncate holdfast.guards, account; insert into account values (1, 100)')
})

const balance = async () => (await pool.query('select balance from account where id = 1')).rows[0].balance
const seen = async (resource: string) =>
  (await pool.query('select fence from holdfast.guards where resource = $1', [resource])).rows[0]?.fence

describe.each(clients)('through %s', (_, open) => {
  test('the transaction’s writes count under a fence that is as high as any before, or higher', async () => {
    await using client = await open(server.url)
    for (const fence of [7n, 7n, '9', 1_790_000_000_000_000n]) {
      await client.transaction(async (tx, write) => {
        await guard(tx, { resource: 'account:1', fence })
        await write('update account set balance = balance - 10')
      })
      expect(await seen('account:1')).toBe(String(fence))
    }
    expect(await balance()).toBe(60)
  })

  test('a stale fence leaves nothing of the transaction, although the error is caught and the rest committed', async () => {
    await using client = await open(server.url)
    await client.transaction(async (tx) => guard(tx, { resource: 'account:1', fence: 7n }))
    let said: unknown
    await client
      .transaction(async (tx, write) => {
        await write('update account set balance = 0')
        await guard(tx, { resource: 'account:1', fence: 6n }).catch((error: unknown) => {
          said = error
        })
        await write('update account set balance = 1').catch(() => {})
      })
      .catch(() => {})
    expect(said).toMatchObject({ name: 'StaleFenceError', code: 'stale-fence', key: 'account:1' })
    expect(String((said as Error).cause)).toBeTruthy()
    expect(await balance()).toBe(100)
    expect(await seen('account:1')).toBe('7')
  })

  test('outside a transaction it would guard nothing, and is refused', async () => {
    await using client = await open(server.url)
    await expect(guard(client.root, { resource: 'account:1', fence: 7n })).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringMatching(/^Expected `tx` to be inside a transaction/),
    })
  })
})

test('outside a transaction it is also refused for an executor of the user that can begin one', async () => {
  const client = await pool.connect()
  const own = {
    query: async (text: string, parameters: readonly (string | null)[] = []) =>
      (await client.query(text, [...parameters])).rows,
    begin: () => client.query('begin'),
    savepoint: () => client.query('savepoint s'),
    rollback: () => client.query('rollback'),
  }
  try {
    await expect(guard(own, { resource: 'account:1', fence: 7n })).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringMatching(/^Expected `tx` to be inside a transaction/),
    })
    await own.begin()
    await guard(own, { resource: 'account:1', fence: 8n })
    await own.rollback()
  } finally {
    client.release()
  }
})

describe('two holders at once', () => {
  const begun = async () => {
    const client = new Client({ connectionString: server.url })
    await client.connect()
    await client.query('begin')
    return client
  }
  const untilBlocked = (client: Client) =>
    until('the server makes it wait for the row', async () => {
      const pid = (client as unknown as { processID: number }).processID
      return (await pool.query('select cardinality(pg_blocking_pids($1)) > 0 as blocked', [pid])).rows[0]
        .blocked
    })

  // The resource has a row already, or these are its very first two guards.
  test.each([5n, undefined])('the later one waits until the earlier has ended, after %s', async (before) => {
    if (before !== undefined) await inTransaction((tx) => guard(tx, { resource: 'r', fence: before }))
    const [old, next] = [await begun(), await begun()]
    try {
      await guard(old, { resource: 'r', fence: 6n })
      const waiting = guard(next, { resource: 'r', fence: 7n })
      await untilBlocked(next)
      await old.query('update account set balance = 60')
      await old.query('commit')
      await waiting
      expect((await next.query('select balance from account')).rows).toEqual([{ balance: 60 }])
      await next.query('commit')
      expect(await seen('r')).toBe('7')
    } finally {
      await Promise.all([old.end(), next.end()])
    }
  })

  test.each([5n, undefined])(
    'the earlier one is refused once the later has committed, after %s',
    async (before) => {
      if (before !== undefined) await inTransaction((tx) => guard(tx, { resource: 'r', fence: before }))
      const [old, next] = [await begun(), await begun()]
      try {
        await guard(next, { resource: 'r', fence: 7n })
        const late = guard(old, { resource: 'r', fence: 6n })
        const refused = expect(late).rejects.toMatchObject({ code: 'stale-fence' })
        await untilBlocked(old)
        await next.query('commit')
        await refused
      } finally {
        await Promise.all([old.end(), next.end()])
      }
    },
  )

  test('a fence that was rolled back was never seen', async () => {
    const next = await begun()
    await guard(next, { resource: 'r', fence: 7n })
    await next.query('rollback')
    await next.end()
    await inTransaction((tx) => guard(tx, { resource: 'r', fence: 6n }))
    expect(await seen('r')).toBe('6')
  })

  test('a savepoint takes the refusal back, which is why the guard belongs in front of it', async () => {
    await inTransaction((tx) => guard(tx, { resource: 'r', fence: 7n }))
    await inTransaction(async (tx) => {
      await tx.query('savepoint s')
      await expect(guard(tx, { resource: 'r', fence: 6n })).rejects.toMatchObject({ code: 'stale-fence' })
      await tx.query('rollback to s')
      await tx.query('update account set balance = 1')
    })
    expect(await balance()).toBe(1)
  })

  test('a guard in a savepoint that is rolled back was never there, and the transaction goes on', async () => {
    await inTransaction((tx) => guard(tx, { resource: 'r', fence: 7n }))
    await inTransaction(async (tx) => {
      await tx.query('savepoint s')
      await guard(tx, { resource: 'r', fence: 9n })
      await tx.query('update account set balance = 2')
      await tx.query('rollback to s')
      await guard(tx, { resource: 'r', fence: 8n })
      await tx.query('update account set balance = 3')
    })
    expect([await balance(), await seen('r')]).toEqual([3, '8'])
  })

  test('a guard in a savepoint that is released holds for the whole transaction', async () => {
    await inTransaction(async (tx) => {
      await tx.query('savepoint s')
      await guard(tx, { resource: 'r', fence: 9n })
      await tx.query('release s')
      await tx.query('update account set balance = 4')
    })
    await expect(inTransaction((tx) => guard(tx, { resource: 'r', fence: 8n }))).rejects.toMatchObject({
      code: 'stale-fence',
    })
    expect([await balance(), await seen('r')]).toEqual([4, '9'])
  })

  test('other resources do not wait', async () => {
    const old = await begun()
    await guard(old, { resource: 'r', fence: 7n })
    await inTransaction((tx) => guard(tx, { resource: 'other', fence: 1n }))
    await old.end()
  })

  test.each(['repeatable read', 'serializable'])(
    'at %s a later holder does not go on with a snapshot from before',
    async (level) => {
      await inTransaction((tx) => guard(tx, { resource: 'r', fence: 5n }))
      const earlier = await begun()
      const later = await begun()
      try {
        for (const tx of [earlier, later]) await tx.query(`set transaction isolation level ${level}`)
        // Not the first transaction of this holder.
        await guard(earlier, { resource: 'r', fence: 5n })
        await earlier.query('update account set balance = 0')
        const waiting = guard(later, { resource: 'r', fence: 6n })
        const outcome = waiting.then(
          () => 'guarded',
          (error) => error.code,
        )
        await until('it waits', async () => {
          const { rows } = await pool.query(`select 1 from pg_stat_activity where wait_event_type = 'Lock'`)
          return rows.length > 0
        })
        await earlier.query('commit')
        expect(await outcome).toBe('40001')
      } finally {
        await earlier.end()
        await later.end()
      }
    },
  )

  test.each(['repeatable read', 'serializable'])(
    'at %s the loser is told to try again, and then that it is late',
    async (level) => {
      await inTransaction((tx) => guard(tx, { resource: 'r', fence: 5n }))
      const old = await begun()
      try {
        await old.query(`set transaction isolation level ${level}`)
        await old.query('select 1 from account')
        await inTransaction((tx) => guard(tx, { resource: 'r', fence: 7n }))
        await expect(guard(old, { resource: 'r', fence: 5n })).rejects.toMatchObject({ code: '40001' })
        await old.query('rollback')
        await old.query(`begin isolation level ${level}`)
        await expect(guard(old, { resource: 'r', fence: 5n })).rejects.toMatchObject({ code: 'stale-fence' })
      } finally {
        await old.end()
      }
    },
  )
})

test('transactions of one holder write one row anew, in the same page', async () => {
  const page = async () =>
    (await pool.query(`select split_part(ctid::text, ',', 1) as page from holdfast.guards`)).rows
  await inTransaction((tx) => guard(tx, { resource: 'r', fence: 5n }))
  const before = await page()
  for (let turn = 0; turn < 500; turn += 1)
    await inTransaction((tx) => guard(tx, { resource: 'r', fence: 5n }))
  expect(await page()).toEqual(before)
})

describe('a lease', () => {
  test('names the resource by its key, as JSON, too', async () => {
    await using locks = createLocks(memoryStore())
    await using lease = await locks.acquire('account:1')
    await inTransaction((tx) => guard(tx, { fence: lease }))
    await inTransaction((tx) => guard(tx, { fence: JSON.parse(JSON.stringify(lease)) }))
    expect(await seen('account:1')).toBe(String(lease.fence))
  })

  test('that shares its key with others does not name the resource', async () => {
    await using locks = createLocks(memoryStore())
    await using permit = await locks.semaphore('pool', 3).acquire()
    await expect(inTransaction((tx) => guard(tx, { fence: permit }))).rejects.toThrow(
      /^Expected `resource` to be given with a lease that shares its key/,
    )
    await inTransaction((tx) => guard(tx, { fence: permit, resource: 'slot:1' }))
    expect(await seen('slot:1')).toBe(String(permit.fence))
  })
})

describe('bad input', () => {
  const wrong: [string, object, string][] = [
    [
      'a number',
      { resource: 'r', fence: 5 },
      '`fence` to be a lease, or its fence as bigint or decimal text from 1 to 9223372036854775807, got 5 (a number cannot',
    ],
    ['nothing', { resource: 'r', fence: 0n }, '`fence` to be'],
    ['less than nothing', { resource: 'r', fence: -1n }, '`fence` to be'],
    ['more than a bigint column has', { resource: 'r', fence: 2n ** 63n }, '`fence` to be'],
    ['a text that is no number', { resource: 'r', fence: '7; drop table account' }, '`fence` to be'],
    ['no fence', { resource: 'r' }, '`fence` to be'],
    ['no resource', { fence: 5n }, '`resource` to be the name of what is guarded'],
    ['an empty resource', { resource: '', fence: 5n }, '`resource` to be a text'],
    ['a resource with NUL', { resource: 'a\0', fence: 5n }, '`resource` to be a text'],
    [
      'a resource that fits in no index',
      { resource: 'é'.repeat(1001), fence: 5n },
      '`resource` to be a text of 1 to 2000 bytes',
    ],
    [
      'a misspelt option',
      { resuorce: 'r', fence: 5n },
      'the options to be among `fence`, `resource`, `schema`, got `resuorce`',
    ],
    [
      'a schema that is no name',
      { resource: 'r', fence: 5n, schema: '' },
      '`schema` to be a name of 1 to 63',
    ],
  ]
  test.each(wrong)('%s is refused before anything is asked', async (_, options, message) => {
    const untouched: SqlClient = { query: () => Promise.reject(new Error('asked')) }
    await expect(guard(untouched, options as never)).rejects.toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining(`Expected ${message}`),
    })
  })

  test('a client that is none is refused', async () => {
    await expect(guard({} as never, { resource: 'r', fence: 5n })).rejects.toThrow(
      /^Expected `tx` to be a client of pg, postgres, Kysely, Drizzle or Prisma, or an object/,
    )
  })

  test('the longest resource has its row', async () => {
    const resource = Array.from({ length: 500 }, (_, at) => String.fromCodePoint(0x1f300 + at)).join('')
    await inTransaction((tx) => guard(tx, { resource, fence: 5n }))
    expect(await seen(resource)).toBe('5')
  })
})

describe('a mistake that a person has to mend', () => {
  test('a table that does not exist', async () => {
    await expect(
      inTransaction((tx) => guard(tx, { resource: 'r', fence: 5n, schema: 'nowhere' })),
    ).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('call migrateGuard() once'),
    })
  })

  test('a role without the rights, and then with those that the documentation names', async () => {
    await pool.query('create role app login')
    const url = new URL(server.url)
    url.username = 'app'
    const app = new Client({ connectionString: url.href })
    await app.connect()
    try {
      await app.query('begin')
      await expect(guard(app, { resource: 'r', fence: 5n })).rejects.toMatchObject({
        code: 'store-refused',
        message: expect.stringContaining('USAGE on the schema'),
      })
      await app.query('rollback')
      await pool.query(
        'grant usage on schema holdfast to app; grant select, insert, update on holdfast.guards to app',
      )
      await app.query('begin')
      for (const fence of [5n, 6n]) await guard(app, { resource: 'r', fence })
      await app.query('commit')
    } finally {
      await app.end()
    }
  })

  test('a role that may not execute the function', async () => {
    await pool.query(`
      create role restricted login;
      grant usage on schema holdfast to restricted;
      grant select, insert, update on holdfast.guards to restricted;
      revoke execute on function holdfast.guard(text, bigint) from public`)
    const url = new URL(server.url)
    url.username = 'restricted'
    const restricted = new Client({ connectionString: url.href })
    await restricted.connect()
    try {
      await restricted.query('begin')
      await expect(guard(restricted, { resource: 'r', fence: 5n })).rejects.toMatchObject({
        code: 'store-refused',
        message: expect.stringContaining('EXECUTE on its function guard(text, bigint)'),
      })
    } finally {
      await restricted.end()
      await pool.query('grant execute on function holdfast.guard(text, bigint) to public')
    }
  })

  test('a transaction that may only read', async () => {
    const client = await pool.connect()
    await client.query('begin read only')
    await expect(guard(client, { resource: 'r', fence: 5n })).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('read-only'),
    })
    await client.query('rollback')
    client.release()
  })

  test('other errors of the database come through as they are', async () => {
    const client = await pool.connect()
    await client.query('begin')
    await client.query('select 1/0').catch(() => {})
    await expect(guard(client, { resource: 'r', fence: 5n })).rejects.toMatchObject({ code: '25P02' })
    await client.query('rollback')
    client.release()
  })
})

async function inTransaction(work: (tx: Client) => Promise<void>): Promise<void> {
  const client = await pool.connect()
  try {
    await client.query('begin')
    await work(client as unknown as Client)
    await client.query('commit')
  } catch (error) {
    await client.query('rollback')
    throw error
  } finally {
    client.release()
  }
}
