import pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { Store, Wake } from '../../../src/contract/store.ts'
import { createLocks, type Locks, type LocksOptions } from '../../../src/index.ts'
import { type PostgresStoreOptions, postgresStore } from '../../../src/stores/postgres/index.ts'
import { awakeMs } from '../../base/measured.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { type FaultProxy, startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { fenceOf, releaseOf, ticket } from '../tickets.ts'
import { clients } from './clients.ts'

let server: PostgresServer
let proxy: FaultProxy
beforeAll(async () => {
  server = await startPostgres()
  proxy = await startProxy({ targetPort: server.port })
})
afterAll(async () => {
  await proxy?.close()
  await server?.close()
})

describe.each(Object.entries(clients))('on %s,', (_, newClient) => {
  function storeAt(url: string, options: PostgresStoreOptions = {}): Store {
    const store = postgresStore(newClient(url), options)
    onTestFinished(() => store.close())
    return store
  }

  function locksAt(url: string, options: LocksOptions = {}): Locks {
    const locks = createLocks(postgresStore(newClient(url)), options)
    onTestFinished(() => locks.close())
    return locks
  }

  const proxiedUrl = () => server.url.replace(`:${server.port}/`, `:${proxy.port}/`)

  test('the lost reply of any verb costs nothing: asked again it is one holder, under one fence', async () => {
    const store = storeAt(proxiedUrl(), { connections: 1 })
    const mine = ticket({ key: crypto.randomUUID() })
    await store.release(releaseOf(mine))
    const direct = storeAt(server.url)
    const lost = async (call: () => Promise<unknown>) => {
      const sprung = proxy.loseNextReply(mine.id)
      await expect(call()).rejects.toMatchObject({ code: 'store-unavailable' })
      await sprung
    }
    await lost(async () => store.acquire(mine))
    const [room] = (await direct.inspect({ prefix: mine.key, cursor: undefined, count: 2 })).rooms
    const fence = room?.holders[0]?.fence
    expect(room?.holders).toHaveLength(1)
    expect(fenceOf(await store.acquire(mine))).toBe(fence)
    await lost(async () => store.renew([mine]))
    expect(fenceOf((await store.renew([mine]))[0])).toBe(fence)

    const rival = ticket({ key: mine.key })
    expect(await direct.acquire(rival)).toMatchObject({ tag: 'queued' })
    await lost(async () => store.release(releaseOf(mine)))
    expect(await store.release(releaseOf(mine))).toEqual({ was: 'unknown' })
    expect(fenceOf((await direct.renew([rival]))[0])).toBeGreaterThan(fence as bigint)
    await lost(async () => store.evict({ key: mine.key, id: mine.id, reason: 'lost' }))
    expect(fenceOf((await direct.renew([rival]))[0])).toBeGreaterThan(fence as bigint)
    await direct.release(releaseOf(rival))
  })

  test('a backend that is ended in the middle of a call has done nothing, and the next call works', async () => {
    const store = storeAt(server.url)
    const mine = ticket({ key: crypto.randomUUID() })
    await store.release(releaseOf(mine))
    const blocker = new pg.Client(server.url)
    await blocker.connect()
    await blocker.query('begin; select holdfast.lock_rooms($1)'.replace('$1', `array['${mine.key}']`))
    const acquiring = expect(store.acquire(mine)).rejects.toMatchObject({ code: 'store-unavailable' })
    await until('the call is ended where it waits', async () => {
      const ended = await server.sql(
        `select pg_terminate_backend(pid) from pg_stat_activity
         where wait_event = 'advisory' and query like '%lock_acquire%'`,
      )
      return ended.length > 0
    })
    await acquiring
    await blocker.end()
    expect(await server.sql(`select 1 from holdfast.lock_holders where key = '${mine.key}'`)).toEqual([])
    fenceOf(await store.acquire(mine))
    await store.release(releaseOf(mine))
  })

  test('a lease and a place in the queue outlive a restart of the server', async () => {
    const key = crypto.randomUUID()
    const lease = await locksAt(server.url).acquire(key, { ttl: '60s' })
    const next = locksAt(server.url).acquire(key, { wait: '60s' })
    await until('it waits', async () => {
      return (await server.sql(`select 1 from holdfast.lock_waiters where key = '${key}'`)).length === 1
    })
    await server.kill()
    await server.restart()
    await until('it is renewed', () =>
      lease.extend().then(
        () => true,
        () => false,
      ),
    )
    expect(lease.state).toBe('held')
    await lease.release()
    const other = await next
    expect(other.fence).toBeGreaterThan(lease.fence)
    await other.release()
  })

  test('a holder is told by its deadline when the server hangs', async () => {
    const key = crypto.randomUUID()
    const lease = await locksAt(server.url).acquire(key, { ttl: 2500 })
    const aborted = new Promise<void>((resolve) => {
      lease.signal.addEventListener('abort', () => resolve())
    })
    await until('it hangs, and the last renewal is known', async () => {
      await lease.extend()
      const before = lease.remainingMs
      await server.pause()
      if (lease.remainingMs < before) return true
      server.resume()
      return false
    })
    // Timers fire in the order in which they are due, however late the process is.
    const wasToldInTime = new Promise((resolve) => {
      setTimeout(() => resolve(lease.signal.aborted), 2500)
    })
    try {
      await aborted
      expect(await wasToldInTime).toBe(true)
      expect(lease.signal.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
    } finally {
      server.resume()
    }
    const next = await locksAt(server.url).acquire(key, { wait: '30s' })
    expect(next.fence).toBeGreaterThan(lease.fence)
    await next.release()
  })

  test('after the connection for wakes was lost the store asks for everything again, and wakes flow again', async () => {
    const key = crypto.randomUUID()
    const [holders, waiters] = [storeAt(server.url), storeAt(proxiedUrl())]
    const [holder, next, last] = [ticket({ key }), ticket({ key }), ticket({ key })]
    const heard: Wake[] = []
    await waiters.listen?.((wake) => heard.push(wake))
    const fence = fenceOf(await holders.acquire(holder))
    for (const waiter of [next, last]) expect(await waiters.acquire(waiter)).toMatchObject({ tag: 'queued' })
    proxy.refuse()
    // No session is there to hear of the release.
    await holders.release(releaseOf(holder))
    expect(heard).toEqual([])
    proxy.normal()
    await until('everything is to be asked again', () => heard.some(({ tag }) => tag === 'all'))
    expect(fenceOf((await waiters.renew([next]))[0])).toBeGreaterThan(fence)
    await holders.release(releaseOf(next))
    await until('the last one is woken', () =>
      heard.some((wake) => wake.tag !== 'all' && wake.id === last.id),
    )
    fenceOf((await waiters.renew([last]))[0])
    await waiters.release(releaseOf(last))
  })
})

const troubles: Readonly<Record<string, { readonly begin: () => unknown; readonly end: () => void }>> = {
  'the server hangs': { begin: () => server.pause(), end: () => server.resume() },
  'the connection is half open': { begin: () => proxy.halfOpen(), end: () => proxy.normal() },
}

test.each(Object.entries(troubles))(
  'close() takes a few seconds at most while %s: the waiter is rejected, the holder is told, and the key is free in the end',
  async (_, { begin, end }) => {
    const key = crypto.randomUUID()
    const pool = new pg.Pool({ connectionString: server.url.replace(`:${server.port}/`, `:${proxy.port}/`) })
    const locks = createLocks(postgresStore(pool), { ttl: '5s' })
    const lease = await locks.acquire(key)
    const { signal } = lease
    const waiter = locks.acquire(key).catch((error: unknown) => error)
    await until('it waits', async () => {
      return (await server.sql(`select 1 from holdfast.lock_waiters where key = '${key}'`)).length === 1
    })
    await begin()
    try {
      expect(await awakeMs(() => locks.close())).toBeLessThan(7000)
      expect(await waiter).toMatchObject({ code: 'closed' })
      expect(signal.aborted).toBe(true)
      expect(() => lease.assertHeld()).toThrow()
    } finally {
      end()
    }
    const other = createLocks(postgresStore(new pg.Pool(urlOf())))
    const next = await other.acquire(key)
    expect(next.fence).toBeGreaterThan(lease.fence)
    await next.release()
    await other.close()
  },
)

test('the application may use up its own pool: leases are taken, renewed and handed over all the same', async () => {
  const pool = new pg.Pool({ connectionString: server.url, max: 1 })
  const busy = await pool.connect()
  const locks = createLocks(postgresStore(pool))
  const key = crypto.randomUUID()
  const lease = await locks.acquire(key)
  const next = locks.acquire(key)
  await lease.extend()
  await lease.release()
  await (await next).release()
  await locks.close()
  busy.release()
  await pool.end()
})

test('the store is not bound to the database’s settings for statements and isolation', async () => {
  const url = await server.createDatabase('hostile')
  await server.sql(`
    alter database hostile set statement_timeout = '1ms';
    alter database hostile set lock_timeout = '1ms';
    alter database hostile set default_transaction_isolation = 'serializable'`)
  const locks = [1, 2, 3].map(() => createLocks(postgresStore(new pg.Pool({ connectionString: url }))))
  let inside = 0
  let done = 0
  await Promise.all(
    Array.from({ length: 90 }, (_, index) =>
      locks[index % 3]?.withLock(`k${index % 2}`, async () => {
        inside += 1
        expect(inside).toBeLessThanOrEqual(2)
        await new Promise(setImmediate)
        inside -= 1
        done += 1
      }),
    ),
  )
  expect(done).toBe(90)
  for (const each of locks) await each.close()
})

test.each(['40001', '40P01'])(
  'a statement that the server undoes because of others (%s) is sent five times, and then fails',
  async (state) => {
    const url = await server.createDatabase(`undone_${state.toLowerCase()}`)
    const store = postgresStore(new pg.Pool({ connectionString: url }))
    onTestFinished(() => store.close())
    await store.release(releaseOf(ticket()))
    const database = new pg.Client(url)
    await database.connect()
    onTestFinished(() => database.end())
    // A sequence also counts tries that are undone.
    await database.query(`
      create sequence public.tries;
      create function public.undo() returns trigger language plpgsql as $$
      begin
        if nextval('public.tries') % 5 <> 0 or new.key = 'always' then raise exception 'undone' using errcode = '${state}'; end if;
        return new;
      end $$;
      create trigger undo before insert on holdfast.lock_holders for each row execute function public.undo()`)
    const tries = async () =>
      Number((await database.query('select last_value from public.tries')).rows[0].last_value)
    fenceOf(await store.acquire(ticket({ key: 'in the end' })))
    expect(await tries()).toBe(5)
    await expect(store.acquire(ticket({ key: 'always' }))).rejects.toMatchObject({
      code: 'store-unavailable',
      message: expect.stringContaining('several times in a row'),
    })
    expect(await tries()).toBe(10)
  },
)

test.each(Object.entries(clients))(
  "on %s, the application's own connections do as well, whatever their isolation",
  async (_, newClient) => {
    const name = `shared_${Math.random().toString(36).slice(2)}`
    const url = await server.createDatabase(name)
    await server.sql(`alter database ${name} set default_transaction_isolation = 'serializable'`)
    const client = newClient(url)
    const locks = createLocks(postgresStore(client, { connections: 'shared' }))
    const order: number[] = []
    const waiting = Array.from({ length: 20 }, (_, index) => locks.withLock('k', () => order.push(index)))
    await Promise.all(waiting)
    expect(order).toHaveLength(20)
    await locks.close()
    const sessions = await server.sql<{ count: string }>(
      `select count(*) from pg_stat_activity where datname = '${name}' and application_name = 'holdfast locks'`,
    )
    expect(Number(sessions[0]?.count)).toBeLessThanOrEqual(2)
    await (client as unknown as { end(): Promise<void> }).end()
  },
)

test('a room that somebody keeps locked costs no lease of another key', async () => {
  const store = postgresStore(new pg.Pool(urlOf()))
  const holders = Array.from({ length: 100 }, () => ticket({ key: crypto.randomUUID() }))
  for (const answer of await Promise.all(holders.map((each) => store.acquire(each)))) fenceOf(answer)
  const blocker = new pg.Client(urlOf())
  await blocker.connect()
  const locked = holders[33]?.key as string
  await blocker.query('select pg_advisory_lock(1212236372, hashtext($1) & 1023)', [locked])
  const lockOf = async (key: string) =>
    (await server.sql<{ lock: number }>(`select hashtext('${key}') & 1023 as lock`))[0]?.lock
  const isTaken = new Set<string>()
  for (const { key } of holders) if ((await lockOf(key)) === (await lockOf(locked))) isTaken.add(key)
  const renewed = await store.renew(holders)
  expect([...renewed].map((answer) => answer?.tag)).toEqual(
    holders.map(({ key }) => (isTaken.has(key) ? undefined : 'held')),
  )
  await blocker.end()
  for (const answer of await store.renew(holders)) fenceOf(answer)
  await store.close()
})

test('a waiter that asks again because its room is locked takes no second connection', async () => {
  const store = postgresStore(new pg.Pool(urlOf()))
  const key = crypto.randomUUID()
  const [holder, waiter, other] = [ticket({ key }), ticket({ key }), ticket()]
  for (const one of [holder, other]) fenceOf(await store.acquire(one))
  expect(await store.acquire(waiter)).toMatchObject({ tag: 'queued' })
  const blocker = new pg.Client(urlOf())
  await blocker.connect()
  await blocker.query('select pg_advisory_lock(1212236372, hashtext($1) & 1023)', [key])
  const renew = async () => store.renew([waiter])
  const waits = async () =>
    (
      await server.sql(
        `select 1 from pg_locks where locktype = 'advisory' and classid = 1212236372 and not granted`,
      )
    ).length
  const first = renew().catch(() => {})
  await until('the first question waits', async () => (await waits()) === 1)
  // A question usually takes a few milliseconds.
  await new Promise((resolve) => setTimeout(resolve, 200))
  let isAnswered = false
  const second = renew()
    .catch(() => {})
    .finally(() => {
      isAnswered = true
    })
  let most = 0
  while (!isAnswered) most = Math.max(most, await waits())
  expect(most).toBeLessThanOrEqual(1)
  await blocker.end()
  await Promise.all([first, second])
  for (const answer of await store.renew([other])) fenceOf(answer)
  await store.close()
})

test('while somebody keeps a room locked, two processes lose their leases of this room and no others', async () => {
  const rows = await server.sql<{ key: string; place: string }>(
    `select key, case when lock = 512 then 'in' when lock < 512 then 'below' else 'above' end as place
     from (select 'room' || number as key, hashtext('room' || number) & 1023 as lock from generate_series(1, 5000) as number) as rooms`,
  )
  const keysIn = (place: string, count: number) =>
    rows.flatMap((row) => (row.place === place ? [row.key] : [])).slice(0, count)
  const [first, second] = keysIn('in', 2) as [string, string]
  const others = [...keysIn('below', 50), ...keysIn('above', 50)]
  const processes = [first, second].map((inRoom, index) => {
    const locks = createLocks(postgresStore(new pg.Pool(urlOf())))
    onTestFinished(() => locks.close())
    return { locks, keys: [...others.filter((_, at) => at % 2 === index), inRoom] }
  })
  const leases = await Promise.all(
    processes.flatMap(({ locks, keys }) => keys.map((key) => locks.acquire(key, { ttl: '15s' }))),
  )
  const blocker = new pg.Client(urlOf())
  await blocker.connect()
  await blocker.query('select pg_advisory_lock(1212236372, 512)')
  await blocker.query('select pg_sleep(25)')
  await blocker.end()
  const lost = leases.filter(({ signal }) => signal.aborted)
  expect(lost.map(({ key }) => key).sort()).toEqual([first, second].sort())
  for (const { signal } of lost) {
    expect(signal.reason.cause).toMatchObject({ code: 'store-unavailable', cause: { code: '57014' } })
  }
}, 60_000)

test('a head of the queue that is gone costs its acceptance term, and not its patience or the ttl', async () => {
  const key = crypto.randomUUID()
  const [alive, dying] = [new pg.Pool(urlOf()), new pg.Pool(urlOf())].map((pool) => postgresStore(pool))
  if (alive === undefined || dying === undefined) throw new Error('Expected two stores')
  const [holder, dead, next] = [ticket({ key }), ticket({ key, acceptMs: 3000 }), ticket({ key })]
  await alive.acquire(holder)
  await dying.acquire(dead)
  await alive.acquire(next)
  await dying.close()
  await alive.release(releaseOf(holder))
  expect(await alive.renew([next])).toMatchObject([{ tag: 'queued' }])
  const startedAt = performance.now()
  await until('the next one is let in', async () => (await alive.renew([next]))[0]?.tag === 'held')
  expect(performance.now() - startedAt).toBeLessThan(30_000)
  await alive.release(releaseOf(next))
  await alive.close()
})

function urlOf(): { connectionString: string } {
  return { connectionString: server.url }
}
