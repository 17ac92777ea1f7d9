import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { type Store, type Ticket, UNLIMITED } from '../../../src/contract/store.ts'
import { migrate, type PostgresStoreOptions, postgresStore } from '../../../src/stores/postgres/index.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'

let server: PostgresServer
beforeAll(async () => {
  server = await startPostgres()
  await migrate(new pg.Client(server.url))
})
afterAll(() => server?.close())

function newStore(options: PostgresStoreOptions = {}, url: string = server.url): Store {
  const store = postgresStore(new pg.Pool({ connectionString: url }), options)
  onTestFinished(() => store.close())
  return store
}

async function count(table: string, condition: string): Promise<number> {
  const [row] = await server.sql<{ count: string }>(
    `select count(*) from holdfast.lock_${table} where ${condition}`,
  )
  return Number(row?.count)
}

const crowd = (key: string, draft: object) => Array.from({ length: 650 }, () => ticket({ key, ...draft }))

test('a crowd of readers is let in by 200 a call, and all of them although no ticket asks any more', async () => {
  const store = newStore()
  const writer = ticket({ key: 'read by many' })
  const readers = crowd(writer.key, { limit: UNLIMITED })
  fenceOf(await store.acquire(writer))
  await Promise.all(readers.map((reader) => store.acquire(reader)))
  // This statement stands for another process. The answer says that more is to be admitted, and the store does not see
  // that answer.
  const [row] = await server.sql<{ answer: string }>(
    `select holdfast.lock_release(array['${writer.key}'], array['${writer.id}'], array[false], '', true) as answer`,
  )
  expect(await count('holders', `key = '${writer.key}'`)).toBe(200)
  expect(row?.answer).toBe('h\n+"read by many"')
  await store.release(releaseOf({ ...writer, id: 'a stranger' }))
  await until('all are in', async () => (await count('holders', `key = '${writer.key}'`)) === readers.length)
})

test('a crowd of waiters that are gone is dropped by 200 a call, and the waiters behind them get in', async () => {
  const store = newStore()
  const [holder, last] = [ticket({ key: 'left by many' }), ticket({ key: 'left by many' })]
  fenceOf(await store.acquire(holder))
  const dead = crowd(holder.key, {})
  await Promise.all(dead.map((each) => store.acquire(each)))
  await store.acquire(last)
  await server.sql(
    `update holdfast.lock_waiters set remembered_until = 0 where key = '${holder.key}' and id <> '${last.id}'`,
  )
  let isWoken = false
  await store.listen?.((wake) => {
    isWoken ||= wake.tag !== 'all' && wake.id === last.id
  })
  await store.release(releaseOf(holder))
  await until('the last one is woken', async () => isWoken)
  fenceOf((await store.renew([last]))[0])
})

test('the sweep drops waiters that are gone behind one that goes on waiting, and comes to the rooms after them', async () => {
  await server.sql(`
    insert into holdfast.lock_holders
      select 'room ' || n, 'holder', 1, 1, 0, 1, 0, 'h', 1e15, 0, '', '{}' from generate_series(1, 650) as n
      union all select 'zoo', 'dead', 1, 1, 0, 1, 0, 'h', 1, 0, '', '{}';
    insert into holdfast.lock_waiters
      select 'room ' || n, place, 'waiter ' || place, 1, 1, 1000, 0, 0, 0, case place when 1 then 1e15 else 1 end, case place when 1 then 1e15 else 1 end, '', false, '{}', ''
      from generate_series(1, 650) as n, generate_series(1, 2) as place`)
  const store = newStore()
  const toSweep = async () => {
    // One in 1024 keys shares its lock with that room.
    const [free] = await server.sql<{ key: string }>(`
      select key from (select gen_random_uuid()::text as key from generate_series(1, 10)) as keys
      where (hashtext(key) & 1023) <> (hashtext('room 1') & 1023) limit 1`)
    fenceOf(await store.acquire(ticket({ key: String(free?.key), ttlMs: 100 })))
    return (await count('waiters', 'remembered_until = 1')) + (await count('holders', 'expires_at = 1'))
  }
  // Another call is at one of the rooms, and the sweep comes back for it.
  const other = new pg.Client(server.url)
  await other.connect()
  await other.query(`select pg_advisory_lock(1212236372, hashtext('room 1') & 1023)`)
  await until('most of it is swept', async () => (await toSweep()) < 50)
  expect(await count('waiters', `remembered_until = 1 and key = 'room 1'`)).toBe(1)
  await other.end()
  await until('it is swept', async () => (await toSweep()) === 0)
  expect(await count('waiters', `key like 'room %'`)).toBe(650)
})

test('more than a hundred acquires of one tick keep their order, also when a later call could be faster', async () => {
  const store = newStore({ connections: 2 })
  await Promise.all([1, 2].map((each) => store.acquire(ticket({ key: `warm ${each}` }))))
  const holder = ticket({ key: 'in order' })
  fenceOf(await store.acquire(holder))
  const waiting = Array.from({ length: 250 }, () => ticket({ key: holder.key }))
  // The pool takes the connection that was used last.
  const [backend] = await server.sql<{ pid: number }>(
    `select pid from pg_stat_activity where query like '%lock_acquire%' and pid <> pg_backend_pid()
     order by state_change desc limit 1`,
  )
  const pid = backend?.pid as number
  process.kill(pid, 'SIGSTOP')
  let answers: Promise<unknown>
  try {
    answers = Promise.all(waiting.map((each) => store.acquire(each)))
    await server.sql('select pg_sleep(0.3)')
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  await answers
  const rows = await server.sql<{ id: string }>(
    `select id from holdfast.lock_waiters where key = '${holder.key}' order by place`,
  )
  expect(rows.map(({ id }) => id)).toEqual(waiting.map(({ id }) => id))
})

test('a key is released although the queue of notifications is full', async () => {
  const url = await server.createDatabase('congested')
  const superuser = new pg.Client(url)
  await superuser.connect()
  onTestFinished(() => superuser.end())
  const [holding, waiting] = [newStore({}, url), newStore({}, url)]
  const [holder, next] = [ticket(), ticket()]
  fenceOf(await holding.acquire(holder))
  expect(await waiting.acquire(next)).toMatchObject({ tag: 'queued' })
  // A full queue has eight gigabytes. The replaced functions behave as a full one does.
  await superuser.query(`
    set allow_system_table_mods = on;
    alter function pg_catalog.pg_notification_queue_usage() rename to true_usage;
    alter function pg_catalog.pg_notify(text, text) rename to true_notify;
    create function pg_catalog.pg_notification_queue_usage() returns double precision
      language sql as 'select 1.0::double precision';
    create function pg_catalog.pg_notify(text, text) returns void language plpgsql as $$
    begin raise exception 'too many notifications in the NOTIFY queue' using errcode = '54000'; end $$`)
  expect(await holding.release(releaseOf(holder))).toEqual({ was: 'held' })
  fenceOf((await waiting.renew([next]))[0])
})

test('waiters of one process are remembered together, and each that is gone or has its turn hears that', async () => {
  const store = newStore()
  const holder = ticket({ key: 'together' })
  fenceOf(await store.acquire(holder))
  const waiting = Array.from({ length: 50 }, () => ticket({ key: holder.key }))
  await Promise.all(waiting.map((each) => store.acquire(each)))
  const [head, evicted, cancelled] = [waiting[0], waiting[7], waiting[30]] as [Ticket, Ticket, Ticket]
  await store.evict({ key: evicted.key, id: evicted.id, reason: 'tested' })
  await store.release({ ...releaseOf(cancelled), cancel: true })
  await server.sql(
    `update holdfast.lock_waiters set heard_at = heard_at - 1000, remembered_until = remembered_until - 1000 where key = 'together'`,
  )
  const before = await remembered(holder.key)
  const answers = await store.renew(waiting)
  for (const [index, answer] of answers.entries()) {
    if (waiting[index] === evicted) expect(answer).toMatchObject({ tag: 'gone', reason: 'tested' })
    else if (waiting[index] === cancelled) expect(answer).toMatchObject({ tag: 'gone', evicted: false })
    else expect(answer.tag).toBe('queued')
  }
  expect(
    (await remembered(holder.key)).filter((until, index) => until < Number(before[index]) + 1000),
  ).toEqual([])
  await server.sql(`update holdfast.lock_holders set expires_at = 1 where key = 'together'`)
  const next = await store.renew(waiting)
  expect(next.flatMap(({ tag }, index) => (tag === 'held' ? [waiting[index]] : []))).toEqual([head])
})

/** Until when each waiter of a key is remembered, in order. */
async function remembered(key: string): Promise<number[]> {
  const rows = await server.sql<{ until: number }>(
    `select remembered_until as until from holdfast.lock_queue('${key}') order by place`,
  )
  return rows.map(({ until }) => until)
}
