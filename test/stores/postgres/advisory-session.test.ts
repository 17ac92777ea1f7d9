import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import {
  AcquireTimeoutError,
  InvalidArgumentError,
  isHoldfastError,
  LeaseLostError,
} from '../../../src/errors.ts'
import { advisoryLockId } from '../../../src/stores/postgres/advisory/key.ts'
import type { AdvisoryLease } from '../../../src/stores/postgres/advisory/lease.ts'
import { advisorySession, tryAdvisorySession } from '../../../src/stores/postgres/advisory/session.ts'
import { startPgBouncer } from '../../servers/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../servers/postgres-server.ts'
import { type FaultProxy, startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'

let server: PostgresServer
let pool: pg.Pool

beforeAll(async () => {
  server = await startPostgres()
  pool = new pg.Pool({ connectionString: server.url })
  // The first lease makes its table, on one more connection.
  await (await advisorySession(pool, 'first')).release()
})
afterAll(async () => {
  await pool.end()
  await server.close()
})
afterEach(nothingIsLeft)

/** Waits until neither a lock nor a connection is left. */
async function nothingIsLeft(): Promise<void> {
  await until('no advisory lock is left', async () => (await locks()).length === 0)
  await until('no connection is left', async () => {
    const rows = await server.sql("select from pg_stat_activity where application_name like 'holdfast%'")
    return rows.length === 0
  })
}

const locks = () =>
  server.sql<{ granted: boolean; pid: number; mode: string }>(
    "select granted, pid, mode from pg_locks where locktype = 'advisory'",
  )
const waiting = (count = 1) =>
  until(`${count} wait`, async () => (await locks()).filter(({ granted }) => !granted).length === count)
const aborted = (lease: AdvisoryLease) => until('the lease is told', () => lease.signal.aborted)
const terminate = () =>
  server.sql("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted")
const backendsEnded = () => server.log().split('terminating connection due to administrator command').length
const reasonOf = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )

/** A pool that lets the test reach the connection of a lease. */
function spiedPool(): { pool: pg.Pool; own(): pg.Client } {
  const made: pg.Client[] = []
  class Spied extends pg.Client {
    constructor(config?: pg.ClientConfig) {
      super(config)
      made.push(this)
    }
  }
  const spied = new pg.Pool({ connectionString: server.url, Client: Spied as unknown as new () => pg.Client })
  return { pool: spied, own: () => made.at(-1) as pg.Client }
}

const clients: Readonly<
  Record<string, () => { client: pg.Pool | pg.Client | postgres.Sql; end(): Promise<void> }>
> = {
  'a Pool of pg': () => {
    const client = new pg.Pool({ connectionString: server.url })
    return { client, end: () => client.end() }
  },
  'a Client of pg': () => ({ client: new pg.Client({ connectionString: server.url }), end: async () => {} }),
  'a sql of postgres.js': () => {
    const client = postgres(server.url)
    return { client, end: () => client.end() }
  },
}

describe.each(Object.entries(clients))('with %s', (_name, newClient) => {
  test('a key is held until it is released, and the next one gets it with a larger fence', async () => {
    const { client, end } = newClient()
    const lease = await advisorySession(client, 'a')
    expect(lease).toMatchObject({ key: 'a', shared: false, state: 'held' })
    lease.assertHeld()
    expect(await locks()).toMatchObject([{ granted: true, mode: 'ExclusiveLock' }])
    expect(await tryAdvisorySession(client, 'a')).toBeNull()
    const next = advisorySession(client, 'a')
    await waiting()
    await lease.release()
    const second = await next
    expect(second.fence).toBeGreaterThan(lease.fence)
    expect(lease.state).toBe('released')
    expect(lease.signal.aborted).toBe(false)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    await second.release()
    await end()
  })

  test('a backend that is terminated costs the lease, at once', async () => {
    const { client, end } = newClient()
    const lease = await advisorySession(client, 'a')
    await terminate()
    await aborted(lease)
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError)
    expect(lease.signal.reason).toMatchObject({ key: 'a', reason: 'store-reset' })
    expect(lease.state).toBe('lost')
    expect(() => lease.assertHeld()).toThrow(lease.signal.reason)
    await lease.release()
    await end()
  })

  test('a wait that is aborted rejects at once and leaves the queue', async () => {
    const { client, end } = newClient()
    const holder = await advisorySession(client, 'a')
    const controller = new AbortController()
    const waits = reasonOf(
      advisorySession(client, 'a', { signal: controller.signal, wait: Number.POSITIVE_INFINITY }),
    )
    await waiting()
    const endedBefore = backendsEnded()
    const reason = new Error('no longer needed')
    controller.abort(reason)
    expect(await waits).toBe(reason)
    await waiting(0)
    // The aborted wait did not stay in the queue until its slice was over.
    await until('the server has ended it', () => backendsEnded() > endedBefore)
    expect(backendsEnded()).toBe(endedBefore + 1)
    await holder.release()
    await end()
  })
})

test('shared ones stand together, and an exclusive one waits for all of them', async () => {
  const one = await advisorySession(pool, 'a', { shared: true })
  const two = await tryAdvisorySession(pool, 'a', { shared: true })
  expect(two?.shared).toBe(true)
  expect(two?.fence).toBeGreaterThan(one.fence)
  expect(await tryAdvisorySession(pool, 'a')).toBeNull()
  const writer = advisorySession(pool, 'a')
  await waiting()
  await one.release()
  await two?.release()
  await (await writer).release()
})

test('a wait that is over says so, and has left the queue', async () => {
  const holder = await advisorySession(pool, 'a')
  const error = await reasonOf(advisorySession(pool, 'a', { wait: 30 }))
  expect(error).toBeInstanceOf(AcquireTimeoutError)
  expect((error as AcquireTimeoutError).waitedMs).toBeGreaterThanOrEqual(30)
  expect(await reasonOf(advisorySession(pool, 'a', { wait: 0 }))).toBeInstanceOf(AcquireTimeoutError)
  expect(await locks()).toHaveLength(1)
  await holder.release()
})

test('time-outs around the moment of the grant leave nothing behind', async () => {
  for (let round = 0; round < 15; round += 1) {
    const holder = await advisorySession(pool, 'a')
    let isOver = false
    const waits = advisorySession(pool, 'a', { wait: 5 + round * 3 }).then(
      (lease) => lease.release(),
      (error: unknown) => expect(error).toBeInstanceOf(AcquireTimeoutError),
    )
    const over = waits.finally(() => {
      isOver = true
    })
    await until('it waits or has given up', async () => isOver || (await locks()).length === 2, {
      everyMs: 1,
    })
    await holder.release()
    await over
    const next = await tryAdvisorySession(pool, 'a')
    expect(next).not.toBeNull()
    await next?.release()
  }
})

test('the lock of a lease is that of the bare statements', async () => {
  const lease = await advisorySession(pool, 'a')
  const [row] = await server.sql<{ free: boolean }>(
    `select pg_try_advisory_lock(${advisoryLockId('a')}) as free`,
  )
  expect(row?.free).toBe(false)
  await lease.release()
})

test('no connection of the pool ever has the lock, also when the application has taken all of them', async () => {
  const small = new pg.Pool({ connectionString: server.url, max: 1 })
  const taken = await small.connect()
  const lease = await advisorySession(small, 'a')
  const pids = async () => (await locks()).map(({ pid }) => pid)
  const { rows } = await taken.query<{ pid: number }>('select pg_backend_pid() as pid')
  expect(await pids()).toHaveLength(1)
  expect(await pids()).not.toContain(rows[0]?.pid)
  expect(small.totalCount).toBe(1)
  await lease.release()
  expect([small.totalCount, small.idleCount, small.waitingCount]).toEqual([1, 0, 0])
  taken.release()
  await small.end()
})

test('an index can be built concurrently by a holder while others wait', async () => {
  await server.sql('create table indexed (a int)')
  const holder = await advisorySession(pool, 'a')
  const waits = [1, 2, 3].map(() => advisorySession(pool, 'a', { wait: '50s' }))
  await waiting(3)
  // If the waiters used a bare pg_advisory_lock(), it would keep the snapshot of its statement. The index would wait
  // for it until the time is over.
  const builder = new pg.Client({ connectionString: server.url, statement_timeout: 45_000 })
  await builder.connect()
  await builder.query('create index concurrently on indexed (a)')
  await builder.end()
  // A waiter that is between two slices of its wait is not in the queue for a moment.
  await waiting(3)
  await holder.release()
  // The order is not known: a long wait loses its place in the queue now and then.
  await Promise.all(waits.map(async (wait) => (await wait).release()))
})

describe('a fence', () => {
  test('rises over all holders of a key, also when the clock was set back', async () => {
    const lease = await advisorySession(pool, 'a')
    await lease.release()
    const ahead = lease.fence + 10n ** 15n
    await server.sql(`update holdfast.advisory_fence set fence = ${ahead}`)
    const next = await advisorySession(pool, 'a')
    expect(next.fence).toBe(ahead + 1n)
    await next.release()
    await server.sql('truncate holdfast.advisory_fence')
  })

  test('has its table made by the process that comes first, in the schema that is named', async () => {
    const keys = Array.from({ length: 8 }, (_, index) => `key ${index}`)
    const leases = await Promise.all(keys.map((key) => advisorySession(pool, key, { schema: 'my-locks' })))
    expect(new Set(leases.map(({ fence }) => fence)).size).toBe(keys.length)
    expect(await server.sql('select count(*)::int as rows from "my-locks".advisory_fence')).toEqual([
      { rows: 1 },
    ])
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('may take longer than the rest of the wait for the lock', async () => {
    const holder = await advisorySession(pool, 'a')
    const other = await pool.connect()
    await other.query('begin; lock table holdfast.advisory_fence in exclusive mode')
    const endsAt = performance.now() + 6000
    const next = advisorySession(pool, 'a', { wait: 6000 })
    const outcome = reasonOf(next)
    await waiting()
    // The statement for the fence has a limit of five seconds.
    await until('less than that is left of the wait', () => performance.now() > endsAt - 2500)
    await holder.release()
    const waits = `select from pg_stat_activity where wait_event = 'relation'`
    const patient = until(
      'it waits for the fence after the end of the wait',
      async () => performance.now() > endsAt && (await server.sql(waits)).length > 0,
    )
    await Promise.race([outcome, patient])
    await other.query('commit')
    other.release()
    expect(await outcome).toBeUndefined()
    await (await next).release()
    await patient
  })

  test('is given out under serializable as the default isolation, too', async () => {
    await server.sql("alter database holdfast set default_transaction_isolation = 'serializable'")
    try {
      const leases = await Promise.all(['a', 'b', 'c', 'd'].map((key) => advisorySession(pool, key)))
      await Promise.all(leases.map((lease) => lease.release()))
    } finally {
      await server.sql('alter database holdfast reset default_transaction_isolation')
    }
  })
})

describe('is refused with one sentence', () => {
  test.each(['transaction', 'session'] as const)('behind PgBouncer in %s mode', async (mode) => {
    const bouncer = await startPgBouncer(server, { mode })
    const [pgPool, sql] = [new pg.Pool({ connectionString: bouncer.url }), postgres(bouncer.url)]
    for (const client of [pgPool, sql]) {
      const error = await reasonOf(advisorySession(client, 'a'))
      expect(isHoldfastError(error, 'store-refused')).toBe(true)
      expect((error as Error).message).toMatch(/^A pooler stands between/)
    }
    expect(await locks()).toEqual([])
    await Promise.all([pgPool.end(), sql.end(), bouncer.close()])
  })

  test('behind PgBouncer, without unlocking what others have locked on the same connection', async () => {
    await using bouncer = await startPgBouncer(server, { poolSize: 1 })
    const [other, pgPool] = [new pg.Client(bouncer.url), new pg.Pool({ connectionString: bouncer.url })]
    await other.connect()
    await other.query('select pg_advisory_lock(1)')
    expect(isHoldfastError(await reasonOf(advisorySession(pgPool, 'a')), 'store-refused')).toBe(true)
    expect(await locks()).toHaveLength(1)
    await other.end()
    await pgPool.end()
  })

  test('with a connection out of a pool, or a transaction', async () => {
    const sql = postgres(server.url)
    const [lent, reserved] = [await pool.connect(), await sql.reserve()]
    const transaction = await sql.begin(async (tx) => ({ tx }))
    for (const client of [lent, reserved, transaction.tx]) {
      const error = await reasonOf(advisorySession(client as unknown as pg.Pool, 'a'))
      expect(error).toBeInstanceOf(InvalidArgumentError)
      expect((error as Error).message).toMatch(
        /^Expected `client` to be a `Pool` or .* got a connection of one/,
      )
    }
    lent.release()
    reserved.release()
    await sql.end()
  })

  test('on a standby', async () => {
    const standby = await startPostgres({ standbyOf: server })
    const standbyPool = new pg.Pool({ connectionString: standby.url })
    const error = await reasonOf(advisorySession(standbyPool, 'a'))
    expect(isHoldfastError(error, 'store-unavailable')).toBe(true)
    expect((error as Error).message).toContain('read-only')
    await standbyPool.end()
    await standby.close()
  })

  test('without the right to make the table, and is not once another role has made it', async () => {
    await server.sql('create role guest login')
    const guests = new pg.Pool({ connectionString: server.url.replace('holdfast@', 'guest@') })
    expect(
      isHoldfastError(await reasonOf(advisorySession(guests, 'a', { schema: 'theirs' })), 'store-refused'),
    ).toBe(true)
    await (await advisorySession(pool, 'a', { schema: 'theirs' })).release()
    await server.sql(
      'grant usage on schema theirs to guest; grant select, insert, update on theirs.advisory_fence to guest',
    )
    await (await advisorySession(guests, 'a', { schema: 'theirs' })).release()
    await guests.end()
  })

  test.each([
    [() => advisorySession(pool, ''), 'Expected `key` to be a string'],
    [() => advisorySession(pool, 'a', { ttl: 1 }), 'Expected `ttl` to be a duration from 50 ms'],
    [() => advisorySession(pool, 'a', { wait: 'soon' }), 'Expected `wait` to be a duration'],
    [
      () => advisorySession(pool, 'a', { signal: 1 as never }),
      'Expected `signal` to be an AbortSignal, got 1.',
    ],
    [() => advisorySession(pool, 'a', { schema: 'pg_mine' }), 'Expected `schema` to be a name'],
    [() => tryAdvisorySession(pool, 'a', { wait: 1 } as never), 'Expected the options to be among `shared`'],
    [() => advisorySession({} as never, 'a'), 'Expected `client` to be a `Pool` or `Client` of'],
    [() => advisorySession(null as never, 'a'), 'Expected `client` to be a `Pool` or `Client` of'],
  ])('with bad input %#', async (call, sentence) => {
    const error = await reasonOf(call())
    expect(error).toBeInstanceOf(InvalidArgumentError)
    expect((error as Error).message).toContain(sentence)
  })

  test('with a signal that has aborted before', async () => {
    const reason = new Error('over')
    expect(await reasonOf(advisorySession(pool, 'a', { signal: AbortSignal.abort(reason) }))).toBe(reason)
  })
})

describe('when the connection is in trouble', () => {
  let proxy: FaultProxy
  let proxied: pg.Pool

  beforeEach(async () => {
    proxy = await startProxy({ targetPort: server.port })
    proxied = new pg.Pool({ connectionString: server.url.replace(String(server.port), String(proxy.port)) })
  })
  afterEach(async () => {
    await proxied.end()
    await proxy.close()
  })

  test('a silent network costs the lease at its ttl, by the timer and by the clocks', async () => {
    const lease = await advisorySession(proxied, 'a', { ttl: '3s' })
    proxy.halfOpen()
    await aborted(lease)
    expect(lease.signal.reason).toMatchObject({ reason: 'expired' })
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    await lease.release()
  })

  test('a process that was stopped for longer than the ttl is told by assertHeld() before any timer', async () => {
    const lease = await advisorySession(proxied, 'a', { ttl: 1500 })
    const until = performance.now() + 1600
    while (performance.now() < until);
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    expect(lease.signal.aborted).toBe(true)
    await lease.release()
  })

  test('a silence that is shorter than the ttl costs nothing', async () => {
    const lease = await advisorySession(proxied, 'a', { ttl: '12s' })
    proxy.holdReplies()
    await until('a probe is on its way', async () => {
      const rows = await server.sql(
        "select from pg_stat_activity where application_name like 'holdfast%' and query like '%pg_locks%' and state = 'idle'",
      )
      return rows.length === 1
    })
    proxy.normal()
    const startedAt = performance.now()
    // This takes longer than the ttl, so the lease lives by probes that were answered.
    await until('its ttl has passed', () => performance.now() - startedAt > 12_500)
    lease.assertHeld()
    await lease.release()
  })

  test('an unlock whose answer is lost frees the key, and release() resolves', async () => {
    const lease = await advisorySession(proxied, 'a')
    const lost = proxy.loseNextReply('pg_advisory_unlock_all')
    await Promise.all([lease.release(), lost])
    expect(lease.state).toBe('released')
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: 'released' }))
    await (await advisorySession(proxied, 'a')).release()
  })

  test('an unlock that is not answered at all is not waited for', async () => {
    const lease = await advisorySession(proxied, 'a')
    proxy.halfOpen()
    await lease.release()
    expect(lease.state).toBe('released')
  })

  test('a lock whose answer is lost is not left behind', async () => {
    const lost = proxy.loseNextReply('pg_try_advisory_lock')
    const error = await reasonOf(advisorySession(proxied, 'a'))
    await lost
    expect(isHoldfastError(error, 'store-unavailable')).toBe(true)
    await nothingIsLeft()
  })

  test('a wait that is aborted rejects at once, also when nothing is heard of the server', async () => {
    const holder = await advisorySession(pool, 'a')
    const controller = new AbortController()
    const waits = reasonOf(advisorySession(proxied, 'a', { signal: controller.signal }))
    await waiting()
    proxy.halfOpen()
    controller.abort(new Error('enough'))
    expect(await waits).toBe(controller.signal.reason)
    proxy.cut()
    await holder.release()
  })

  test('whose session was reset underneath, the lease is lost with the next probe', async () => {
    // A pooler does the same if it reports the server's own process id.
    const spied = spiedPool()
    const lease = await advisorySession(spied.pool, 'a', { ttl: '15s' })
    await spied.own().query('discard all')
    await aborted(lease)
    expect(lease.signal.reason).toMatchObject({ reason: 'store-reset' })
    await lease.release()
  })
})

test('the server asks whether the machine is still there, and gives up after the lease has', async () => {
  const spied = spiedPool()
  const lease = await advisorySession(spied.pool, 'a', { ttl: '20s' })
  const { rows } = await spied
    .own()
    .query(
      "select name, setting from pg_settings where name like 'tcp\\_%' or name = 'idle_session_timeout' order by name",
    )
  expect(Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))).toEqual({
    idle_session_timeout: '0',
    tcp_keepalives_count: '3',
    tcp_keepalives_idle: '20',
    tcp_keepalives_interval: '4',
    tcp_user_timeout: '30000',
  })
  await lease.release()
})

test('the longest ttl is one that the server can count to', async () => {
  const lease = await advisorySession(pool, 'a', { ttl: '24d' })
  expect(lease.state).toBe('held')
  await lease.release()
})

describe('with a server of its own', () => {
  let other: PostgresServer
  let otherPool: pg.Pool

  beforeEach(async () => {
    other = await startPostgres()
    otherPool = new pg.Pool({ connectionString: other.url })
  })
  afterEach(async () => {
    await otherPool.end()
    await other.close()
  })

  test('a restart costs the lease and the wait, and the next fence is larger', async () => {
    const lease = await advisorySession(otherPool, 'a')
    const waits = reasonOf(advisorySession(otherPool, 'a'))
    await until('it waits', async () => {
      return (
        (await other.sql("select from pg_locks where locktype = 'advisory' and not granted")).length === 1
      )
    })
    await other.restart()
    await aborted(lease)
    expect(isHoldfastError(await waits, 'store-unavailable')).toBe(true)
    const next = await advisorySession(otherPool, 'a')
    expect(next.fence).toBeGreaterThan(lease.fence)
    await next.release()
  })

  test('a server that hangs costs the lease at its ttl, and the key is free when it goes on', async () => {
    const lease = await advisorySession(otherPool, 'a', { ttl: '4s' })
    await other.pause()
    await aborted(lease)
    expect(lease.signal.reason).toMatchObject({ reason: 'expired' })
    await lease.release()
    other.resume()
    await (await advisorySession(otherPool, 'a')).release()
  })
})

test.each(['SIGKILL', undefined] as const)('a process that ends (%s) frees its key', async (signal) => {
  const file = fileURLToPath(new URL('processes/advisory-hold.mjs', import.meta.url))
  const mode = signal === undefined ? 'leave' : 'stay'
  const child = spawn(process.execPath, ['--import', 'tsx', file, server.url, mode], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => {
    child.kill('SIGKILL')
  })
  const ended = once(child, 'exit')
  await once(child.stdout, 'data')
  if (signal !== undefined) {
    expect(await tryAdvisorySession(pool, 'a')).toBeNull()
    child.kill(signal)
  }
  // Without a signal the process ends by itself: a lease does not keep it alive.
  await ended
  await (await advisorySession(pool, 'a')).release()
})
