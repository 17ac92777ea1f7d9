import pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createLocks } from '../../../src/index.ts'
import { advisorySession, migrate, openPostgres, postgresStore } from '../../../src/stores/postgres/index.ts'
import { startPgBouncer } from '../../servers/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { ticket } from '../tickets.ts'
import { clients } from './clients.ts'
import { poolAt, storeAt, urlAs } from './store-at.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres({ access: ['host all secret 127.0.0.1/32 scram-sha-256'] })
})
afterAll(() => server?.close())

describe.each(Object.entries(clients))('behind a pooler that shares connections, on %s,', (_, newClient) => {
  test('everything works, and no listener is left on a shared connection', async () => {
    const name = `pooled_${Math.random().toString(36).slice(2)}`
    const url = await server.createDatabase(name)
    await server.sql(`alter database ${name} set default_transaction_isolation = 'repeatable read'`)
    await using pooler = await startPgBouncer(server, { poolSize: 2 })
    const [one, other] = [1, 2].map(() => createLocks(postgresStore(newClient(pooler.urlOf(url)))))
    const served: number[] = []
    const lease = await one?.acquire('k')
    const waiting = Array.from({ length: 20 }, async (_, index) => {
      await (index % 2 === 0 ? one : other)?.withLock('k', () => {
        served.push(index)
      })
    })
    const client = new pg.Client(url)
    await client.connect()
    const waiters = async () => (await client.query('select 1 from holdfast.lock_waiters')).rows.length
    await until('they wait', async () => (await waiters()) === 20)
    await lease?.release()
    await Promise.all(waiting)
    expect(served).toHaveLength(20)
    await client.end()
    await one?.close()
    await other?.close()
    expect(await server.sql(`select 1 from pg_stat_activity where query ilike 'listen%'`)).toEqual([])
    expect(await server.sql(`select 1 from pg_locks where locktype = 'advisory'`)).toEqual([])
  })
})

test('twenty stores that meet an empty database at once, with either client, make its tables once', async () => {
  const url = await server.createDatabase('met_by_twenty')
  const stores = Array.from({ length: 20 }, (_, index) => {
    const newClient = Object.values(clients)[index % 2] as (typeof clients)[string]
    const store = postgresStore(newClient(url))
    onTestFinished(() => store.close())
    return store
  })
  const answers = await Promise.all(stores.map((store) => store.acquire(ticket({ key: 'first' }))))
  expect(answers.map(({ tag }) => tag).sort()).toEqual(['held', ...Array(19).fill('queued')])
  const database = new pg.Client(url)
  await database.connect()
  onTestFinished(() => database.end())
  const { rows } = await database.query('select * from holdfast.holdfast_versions')
  expect(rows).toEqual([{ component: 'store', version: 1 }])
})

describe('a surrounding that cannot work is one clear sentence:', () => {
  test('a read-only standby', async () => {
    await using standby = await startPostgres({ standbyOf: server })
    await expect(openPostgres(standby.url)).rejects.toMatchObject({
      code: 'store-unavailable',
      message: expect.stringContaining('is read-only. Connect to the primary'),
    })
  })

  test('a wrong password, and one that is missing', async () => {
    await server.sql(`create role secret login password 'open sesame'`)
    const refused = {
      code: 'store-refused',
      message: expect.stringMatching(/did not accept the user name and password/),
    }
    for (const newClient of Object.values(clients)) {
      for (const user of ['secret:guess', 'secret']) {
        const store = postgresStore(newClient(urlAs(user, server.url)))
        await expect(store.acquire(ticket())).rejects.toMatchObject(refused)
        await expect(store.acquire(ticket())).rejects.not.toMatchObject({
          message: expect.stringContaining('guess'),
        })
        await store.close()
      }
    }
  })

  test('a role that may not create the schema', async () => {
    await server.sql('create role nobody login')
    await expect(openPostgres(urlAs('nobody', server.url))).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(/role may not do what has to be done.*preparing the schema holdfast/),
    })
    expect(await server.sql(`select to_regnamespace('holdfast') as made`)).toEqual([{ made: null }])
  })

  test('a schema that does not exist yet, for a role that must not make it', async () => {
    await expect(openPostgres(server.url, { schema: 'later', migrate: false })).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(
        /^The tables of the store in the schema later have version 0, .* needs 1\. Run migrate\(\)/,
      ),
    })
    expect(await server.sql(`select to_regnamespace('later') as made`)).toEqual([{ made: null }])
  })

  test('a schema that is newer than the library', async () => {
    await migrate(poolAt(server.url), { schema: 'newer' })
    await server.sql('update newer.holdfast_versions set version = 999')
    for (const options of [{}, { migrate: false }]) {
      await expect(openPostgres(server.url, { schema: 'newer', ...options })).rejects.toMatchObject({
        code: 'store-refused',
        message: expect.stringMatching(/version 999, .* knows 1 at most\. Update Holdfast/),
      })
    }
  })

  test('a table of that name that is not ours', async () => {
    await server.sql('create schema taken; create table taken.lock_holders (shoe text)')
    await expect(openPostgres(server.url, { schema: 'taken' })).rejects.toMatchObject({
      code: 'store-refused',
      message: expect.stringContaining('Choose another `schema`'),
    })
    expect(await server.sql(`select to_regclass('taken.lock_waiters') as made`)).toEqual([{ made: null }])
  })

  test('a key that does not fit into an index, or has a zero byte, without harm to those beside it', async () => {
    const store = storeAt(server.url)
    const random = Array.from({ length: 1024 }, () =>
      String.fromCodePoint(0x10000 + Math.floor(Math.random() * 60_000)),
    )
    for (const key of [random.join(''), 'a\0b']) {
      await expect(store.acquire(ticket({ key }))).rejects.toMatchObject({ code: 'store-refused' })
    }
    const answers = await Promise.allSettled([
      store.acquire(ticket({ key: 'fine' })),
      store.acquire(ticket({ key: 'a\0b' })),
    ])
    expect(answers.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
  })

  test('a key with a zero byte, without harm to the order of the requests beside it', async () => {
    const store = storeAt(server.url)
    const pairs = Array.from({ length: 100 }, (_, n) => [1, 2].map(() => ticket({ key: `pair ${n}` })))
    const [refused, ...answers] = await Promise.allSettled(
      [ticket({ key: 'a\0b' }), ...pairs.flat()].map((each) => store.acquire(each)),
    )
    expect(refused?.status).toBe('rejected')
    const tags = answers.map((answer) => answer.status === 'fulfilled' && answer.value.tag)
    expect(tags).toEqual(pairs.flatMap(() => ['held', 'queued']))
  })

  test.each([
    [
      'another client',
      () => postgresStore({} as never),
      /^Expected `client` to be a `Pool` or `Client` of the package pg/,
    ],
    [
      'a pool of pg.native',
      () => postgresStore(new NativePool() as never),
      /^Expected `client` to be a `Pool` .* got one of pg\.native: it cannot wait/,
    ],
    [
      'a client of pg.native',
      () => postgresStore(new NativeClient() as never),
      /^Expected `client` to be a `Pool` .* got one of pg\.native: it cannot wait/,
    ],
    ['an unknown option', () => postgresStore(poolAt('postgres://x'), { ttl: 1 } as never), /got `ttl`\.$/],
    [
      'a schema that is no name',
      () => postgresStore(poolAt('postgres://x'), { schema: 'a b' }),
      /^Expected `schema` to be a name/,
    ],
    [
      'no connections',
      () => postgresStore(poolAt('postgres://x'), { connections: 0 }),
      /^Expected `connections` to be a whole number from 1 to 20 or 'shared', got 0\.$/,
    ],
    [
      'a durability',
      () => postgresStore(poolAt('postgres://x'), { durability: 'none' as never }),
      /^Expected `durability` to be 'logged' or 'asynchronous', got "none"\.$/,
    ],
  ])('%s', (_, call, message) => {
    expect(call).toThrow(message)
  })
})

/** A client as pg.native makes it. The real one needs a compiler. */
class NativeClient {
  connectionParameters = {}
  native = {}
  connect(): void {}
  query(): void {}
  setTypeParser(): void {}
  end(): void {}
}
class NativePool extends pg.Pool {
  readonly Client = NativeClient
}

test('a role without rights is told which page lists those that it needs', async () => {
  const url = await server.createDatabase('barred')
  await migrate(poolAt(url))
  await server.sql('create role barred login')
  const pool = poolAt(urlAs('barred', url))
  await expect(storeAt(urlAs('barred', url), { migrate: false }).acquire(ticket())).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('Grant it what docs/postgres.md lists'),
  })
  await expect(advisorySession(pool, 'key')).rejects.toMatchObject({
    code: 'store-refused',
    message: expect.stringContaining('Grant it what docs/advisory.md lists'),
  })
  await pool.end()
})
