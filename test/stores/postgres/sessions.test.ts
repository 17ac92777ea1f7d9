import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { UNLIMITED } from '../../../src/contract/store.ts'
import { migrate, postgresStore } from '../../../src/stores/postgres/index.ts'
import { startPgBouncer } from '../../servers/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { poolAt, storeAt, urlAs } from './store-at.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
})
afterAll(() => server?.close())

async function clientAt(url: string): Promise<pg.Client> {
  const client = new pg.Client(url)
  await client.connect()
  onTestFinished(() => client.end())
  return client
}

test('a process that freezes between a call and its commit, behind a pooler, does not keep the room', async () => {
  const url = await server.createDatabase('serializable')
  await server.sql(`alter database serializable set default_transaction_isolation = 'serializable'`)
  const direct = storeAt(url)
  const [frozen, next] = [ticket({ key: 'frozen' }), ticket({ key: 'frozen' })]
  await direct.release(releaseOf(next))
  await using pooler = await startPgBouncer(server)
  await using proxy = await startProxy({ targetPort: pooler.port })
  const freezing = storeAt(pooler.urlOf(url).replace(`:${pooler.port}/`, `:${proxy.port}/`), {
    connections: 1,
  })
  await freezing.release(releaseOf(frozen))
  proxy.silenceAt(/\bcommit\b/i)
  const lost = expect(freezing.acquire(frozen)).rejects.toMatchObject({ code: 'store-unavailable' })
  await until('its call is done and not committed', async () => {
    const rows = await server.sql(
      `select 1 from pg_stat_activity where state = 'idle in transaction' and query like '%lock_acquire%'`,
    )
    return rows.length > 0
  })
  proxy.halfOpen()
  let fence: bigint | undefined
  await until('the room is free', async () => {
    const answer = await Promise.resolve(direct.acquire(next)).catch(() => undefined)
    if (answer !== undefined) fence = fenceOf(answer)
    return fence !== undefined
  })
  await lost
  await direct.release(releaseOf(next))
})

test('behind a pooler, too, the store is not bound to the database’s lock_timeout', async () => {
  const url = await server.createDatabase('impatient')
  await server.sql(`alter database impatient set lock_timeout = '1ms'`)
  const blocker = await clientAt(url)
  await using pooler = await startPgBouncer(server)
  const store = storeAt(pooler.urlOf(url))
  const mine = ticket()
  await store.release(releaseOf(mine))
  await blocker.query(`begin; select holdfast.lock_rooms(array['${mine.key}'])`)
  const acquiring = Promise.resolve(store.acquire(mine))
  const failed = acquiring.then(
    () => false,
    () => true,
  )
  await until('it waits for the room', async () => {
    const rows = await server.sql(
      `select 1 from pg_stat_activity where datname = 'impatient' and wait_event = 'advisory'`,
    )
    return rows.length > 0 || (await Promise.race([failed, false]))
  })
  await server.sql(`select pg_sleep(0.2)`)
  await blocker.query('commit')
  fenceOf(await acquiring)
})

test.each(['0', '1h', '10s', '2s'])(
  'on a session whose statements may take %s, a call waits for a room for 5 s at most',
  async (limit) => {
    await migrate(poolAt(server.url))
    const client = await clientAt(server.url)
    await client.query(`set statement_timeout = '${limit}'; begin; select holdfast.lock_rooms('{a}')`)
    expect((await client.query('show lock_timeout')).rows).toEqual([{ lock_timeout: '5s' }])
    await client.query('rollback')
  },
)

test('a role that may create functions in a schema of the search path cannot run them with our rights', async () => {
  const url = await server.createDatabase('shared_by_many')
  await migrate(poolAt(url))
  const owner = await clientAt(url)
  await owner.query(`
    create role intruder login;
    grant create on schema public to intruder;
    create table public.runs (role text);
    grant insert on public.runs to public`)
  const intruder = await clientAt(urlAs('intruder', url))
  // This function matches more closely than PostgreSQL's array_length(anyarray, integer).
  await intruder.query(`
    create function public.array_length(text[], integer) returns integer language plpgsql as $$
    begin insert into public.runs values (current_user); return cardinality($1); end $$`)
  const store = storeAt(url)
  fenceOf(await store.acquire(ticket()))
  // This function comes before PostgreSQL's own, on a connection of an application that wants it so.
  await intruder.query(`
    create function public.hashtext(text) returns integer language plpgsql as $$
    begin insert into public.runs values (current_user); return 0; end $$`)
  await owner.query(`update holdfast.lock_holders set expires_at = 0`)
  const careless = await clientAt(url)
  await careless.query(`set search_path = public, pg_catalog`)
  // While the store sweeps, this sweep does nothing.
  await until('the key is swept', async () => {
    await careless.query(`select holdfast.lock_sweep(9)`)
    return (await owner.query('select key from holdfast.lock_holders')).rows.length === 0
  })
  expect((await owner.query('select role from public.runs')).rows).toEqual([])
})

test("the loss of one of the application's connections in a call does not end the process", async () => {
  const url = await server.createDatabase('lossy')
  await server.sql(`alter database lossy set default_transaction_isolation = 'serializable'`)
  const pool = poolAt(url)
  pool.on('error', () => {})
  const store = postgresStore(pool, { connections: 'shared' })
  const mine = ticket()
  await store.release(releaseOf(mine))
  const blocker = await clientAt(url)
  await blocker.query(
    `begin isolation level read committed; select holdfast.lock_rooms(array['${mine.key}'])`,
  )
  const lost = expect(store.acquire(mine)).rejects.toMatchObject({ code: 'store-unavailable' })
  await until('the call is ended where it waits', async () => {
    const ended = await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'lossy' and wait_event = 'advisory'`,
    )
    return ended.length > 0
  })
  await lost
  await blocker.query('commit')
  fenceOf(await store.acquire(mine))
  await store.close()
  await pool.end()
})

test('a standby that lags does not say that a key is taken', async () => {
  const holder = ticket({ key: 'on the primary' })
  fenceOf(await storeAt(server.url).acquire(holder))
  await using standby = await startPostgres({ standbyOf: server })
  await until('the standby knows', async () => {
    return (await standby.sql(`select 1 from holdfast.lock_holders where id = '${holder.id}'`)).length === 1
  })
  await expect(
    storeAt(standby.url).acquire(ticket({ ...holder, id: 'other', patienceMs: 0 })),
  ).rejects.toMatchObject({ code: 'store-unavailable', message: expect.stringContaining('is read-only') })
})

test('the documented grants are enough where functions are not for everybody, and limits of a role are not ours', async () => {
  const url = await server.createDatabase('strict')
  const owner = await clientAt(url)
  await owner.query('alter default privileges revoke execute on functions from public')
  await migrate(poolAt(url))
  await owner.query(`
    create role plain login;
    alter role plain set extra_float_digits = 0;
    alter role plain set idle_session_timeout = '100ms';
    grant usage on schema holdfast to plain;
    grant select on holdfast.holdfast_versions to plain;
    grant select, insert, update, delete on all tables in schema holdfast to plain;
    grant execute on all functions in schema holdfast to plain`)
  const store = storeAt(urlAs('plain', url), { migrate: false })
  const reader = ticket({ limit: UNLIMITED })
  fenceOf(await store.acquire(reader))
  const session = async () =>
    await server.sql(`select pid from pg_stat_activity where usename = 'plain' order by pid`)
  const before = await session()
  await server.sql('select pg_sleep(0.5)')
  expect(await session()).toEqual(before)
  const { rooms } = await store.inspect({ prefix: '', cursor: undefined, count: 1 })
  expect(rooms[0]?.holders[0]?.limit).toBe(UNLIMITED)
})
