import { Pool } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startPgBouncer } from '../servers/pgbouncer.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { CLIENT_KINDS, closeSharedServer, JobsScene, openScene, sharedServer } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test.each(CLIENT_KINDS)(
  'with %s, workers whose backends are terminated and whose server restarts go on, and no job is lost or stuck',
  async (kind) => {
    await using server = await startPostgres()
    await using scene = new JobsScene(server)
    const jobs = scene.open({}, { kind })
    await jobs.migrate()
    const done = new Set<number>()
    const errors: unknown[] = []
    jobs.work(
      { a: ({ payload }) => void done.add(payload as number) },
      { ttl: '3s', onError: (error) => errors.push(error), onFailure: () => {} },
    )
    const enqueue = (from: number) =>
      until('they are enqueued', () =>
        jobs
          .enqueueAll(
            Array.from({ length: 50 }, (_, n) => ({ name: 'a', payload: from + n, key: String(from + n) })),
          )
          .then(
            () => true,
            () => false,
          ),
      )
    await enqueue(0)
    for (const round of [1, 2, 3]) {
      await server.sql(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'holdfast jobs%'`,
      )
      await enqueue(round * 50)
    }
    await until('all are done', () => done.size === 200)
    await server.restart()
    await enqueue(200)
    await until('those of after the restart are done, too', () => done.size === 250)
    for (const error of errors) expect(error).toMatchObject({ code: 'store-unavailable' })
    await until('nothing is left', async () =>
      (await jobs.count()).every(({ state }) => state === 'completed'),
    )
  },
)

test('a database whose defaults are serializable and one millisecond a statement changes nothing', async () => {
  const { server } = await openScene()
  const url = await server.createDatabase('odd_defaults')
  await server.sql(`
    alter database odd_defaults set default_transaction_isolation = 'serializable';
    alter database odd_defaults set statement_timeout = '1ms';
    alter database odd_defaults set lock_timeout = '1ms'`)
  await using scene = await openScene()
  const jobs = scene.open({}, { url })
  await jobs.migrate()
  const errors: unknown[] = []
  let done = 0
  for (let n = 0; n < 4; n += 1) {
    scene.open({}, { url }).work(
      {
        a: () => {
          done += 1
        },
      },
      { onError: (error) => errors.push(error) },
    )
  }
  await jobs.enqueueAll(Array.from({ length: 300 }, (_, n) => ({ name: 'a', group: `g${n % 20}` })))
  await until('all are done', () => done === 300)
  expect(errors).toEqual([])
})

test('a transaction of the caller may be serializable, and its conflicts are the caller’s as they are', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  const ids = await jobs.enqueueAll([{ name: 'a' }, { name: 'a' }])
  const claimed = await jobs.claim('a', { limit: 2 })
  const client = await scene.connect()
  await client.query('begin isolation level serializable')
  await claimed[0]?.complete({ transaction: client })
  await jobs.enqueue('b', 1, { transaction: client })
  await client.query('commit')
  await client.query('begin isolation level serializable')
  await client.query('select 1 from pg_class')
  // Another session changes the row after the snapshot.
  await scene.sql(`update $schema.jobs set priority = 7 where id = ${ids[1]}`)
  await expect(claimed[1]?.complete({ transaction: client })).rejects.toMatchObject({ code: '40001' })
  await client.query('rollback')
  await claimed[1]?.complete()
  expect(await jobs.count()).toMatchObject([
    { name: 'a', state: 'completed', count: 2 },
    { name: 'b', state: 'ready', count: 1 },
  ])
})

test.each(CLIENT_KINDS)(
  'with %s, behind PgBouncer in transaction mode jobs are found by polling',
  async (kind) => {
    await using scene = await openScene()
    await scene.open().migrate()
    await using bouncer = await startPgBouncer(scene.server)
    const jobs = scene.open({}, { kind, url: bouncer.url })
    await jobs.migrate()
    const done: unknown[] = []
    const errors: unknown[] = []
    const options = { pollInterval: 100, ttl: '6s', onError: (error: unknown) => errors.push(error) }
    jobs.work({ a: ({ payload }) => done.push(payload) }, options)
    for (const payload of [1, 2, 3]) {
      await jobs.enqueue('a', payload)
      await until('it is done', () => done.length === payload)
    }
    // Several statements of one transaction, on whatever backend.
    const pool = new Pool({ connectionString: bouncer.url })
    const client = await pool.connect()
    await client.query('begin')
    await jobs.enqueue('a', 4, { transaction: client })
    await client.query('commit')
    client.release()
    await pool.end()
    await until('that of the transaction is done', () => done.length === 4)
    expect(errors).toEqual([])
  },
)

test.each(CLIENT_KINDS)(
  'with %s, a worker hears of jobs again after the connection on which it listens was lost, without polling',
  async (kind) => {
    await using scene = await openScene()
    const jobs = scene.open({}, { kind })
    await jobs.migrate()
    const done: unknown[] = []
    jobs.work({ [scene.schema]: ({ payload }) => done.push(payload) }, { pollInterval: '10m' })
    const listener = async () => {
      const rows = await scene.sql(
        `select pid from pg_stat_activity where query ilike 'listen%' and application_name like 'holdfast jobs%'`,
      )
      return rows.length === 1 && Number(rows[0]?.['pid'])
    }
    const former = await until('it listens', listener)
    await jobs.enqueue(scene.schema, 'heard of')
    await until('it is done', () => done.length === 1)
    await scene.sql(`select pg_terminate_backend(${former})`)
    await scene.open().enqueue(scene.schema, 'perhaps missed')
    await until('that is done, too', () => done.length === 2)
    await until('it listens again', async () => (await listener()) !== former && (await listener()))
    await scene.open().enqueue(scene.schema, 'heard of again')
    await until('and that', () => done.length === 3)
    expect(done).toEqual(['heard of', 'perhaps missed', 'heard of again'])
  },
)

test('jobs are enqueued, claimed and settled many in a statement', async () => {
  await using server = await startPostgres({ settings: { track_functions: 'pl' } })
  await using scene = new JobsScene(server)
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll(Array.from({ length: 1000 }, () => ({ name: 'a', maxAttempts: 1 })))
  let done = 0
  const worker = jobs.work(
    {
      a: () => {
        done += 1
        if (done % 2 === 0) throw new Error('half of them fail')
      },
    },
    { concurrency: 100, onFailure: () => {} },
  )
  await until('all are done', () => done === 1000)
  await worker.stop()
  // The counters arrive at the latest when a session ends.
  await jobs.close()
  const calls = await until('they are counted', async () => {
    const rows = await server.sql<{ name: string; calls: number }>(
      `select funcname as name, calls::int from pg_stat_user_functions where funcname ~ '^jobs_(enqueue|claim|settle)$'`,
    )
    const counted = new Map(rows.map(({ name, calls }) => [name, calls]))
    // A function is listed, with no calls yet, before the session that called it has ended.
    return counted.size === 3 && [...counted.values()].every((count) => count > 0) && counted
  })
  expect(calls.get('jobs_enqueue')).toBe(1)
  for (const verb of ['jobs_claim', 'jobs_settle']) {
    expect(calls.get(verb), verb).toBeGreaterThan(0)
    expect(calls.get(verb), verb).toBeLessThan(100)
  }
})

test('while the application has all connections of its pool, jobs are claimed, renewed and completed', async () => {
  await using scene = await openScene()
  const pool = new Pool({ connectionString: scene.server.url, max: 2 })
  const { createJobs } = await import('../../src/jobs/index.ts')
  const jobs = createJobs(pool, { schema: scene.schema })
  await jobs.migrate()
  const clients = [await pool.connect(), await pool.connect()]
  let signalled = false
  await jobs.enqueue('slow')
  const worker = jobs.work(
    {
      slow: async ({ id, signal }) => {
        await scene.sql(`create table $schema.before as select due_at from $schema.jobs where id = ${id}`)
        await until('it was renewed twice', async () => {
          const [row] = await scene.sql(
            `select j.due_at > before.due_at + interval '7200 ms' as renewed from $schema.jobs j, $schema.before where j.id = ${id}`,
          )
          return row?.['renewed'] === true
        })
        signalled = signal.aborted
      },
    },
    { ttl: 12_000 },
  )
  await until('it is completed', async () => (await jobs.count())[0]?.state === 'completed')
  expect(signalled).toBe(false)
  await worker.stop()
  await jobs.close()
  for (const client of clients) client.release()
  await pool.end()
})

test('claims stay cheap beside 100,000 jobs that are over and 100,000 that are delayed', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await scene.sql(`
    insert into $schema.ended_jobs (id, name, state, priority, payload, attempt, failures, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, ended_at)
    select -n, 'a', 'completed', 0, '1', 1, 0, 10, 1000, 1000, now(), now() from generate_series(1, 100000) n;
    insert into $schema.jobs (id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, due_at)
    select nextval('$schema.job_ids'), 'a', 'delayed', 9, '1', 10, 1000, 1000, now(), now() + n * interval '1 minute' from generate_series(1, 100000) n`)
  await jobs.enqueueAll(Array.from({ length: 200 }, () => ({ name: 'a' })))
  const client = await scene.connect()
  // The database measures the time of a claim, because other processes share this machine.
  await client.query('begin')
  for (let warm = 0; warm < 2; warm += 1) {
    await client.query(`select ${scene.schema}.jobs_claim('{a}', 10, 90, 'w', 30000, null, null)`)
  }
  const plan = await client.query(
    `explain (analyze, buffers, format json) select ${scene.schema}.jobs_claim('{a}', 10, 90, 'w', 30000, null, null)`,
  )
  await client.query('rollback')
  const [{ Plan: node }] = (plan.rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })[
    'QUERY PLAN'
  ]
  const pages = (node['Shared Hit Blocks'] ?? 0) + (node['Shared Read Blocks'] ?? 0)
  expect(pages).toBeGreaterThan(10)
  expect(pages).toBeLessThan(1000)
})

test('idle workers ask once in a poll interval, also beside jobs that are due in an hour and groups that are busy', async () => {
  await using server = await startPostgres({ settings: { track_functions: 'pl' } })
  await using scene = new JobsScene(server)
  const jobs = scene.open()
  await jobs.migrate()
  await jobs.enqueueAll([
    { name: 'a', delay: '1h' },
    { name: 'a', group: 'g' },
    { name: 'a', group: 'g' },
    { name: 'a', group: 'g' },
  ])
  const [running] = await jobs.claim('a', { ttl: '1h' })
  const done: unknown[] = []
  for (let n = 0; n < 4; n += 1) jobs.work({ a: ({ id }) => done.push(id) }, { pollInterval: 400 })
  const calls = async (): Promise<number> => {
    const [row] = await server.sql<{ calls: number }>(
      `select coalesce(sum(calls), 0)::int as calls from pg_stat_user_functions where funcname = 'jobs_claim'`,
    )
    return row?.calls ?? 0
  }
  await until('the first round is over and counted', async () => (await calls()) >= 8)
  const before = await calls()
  const startedAt = performance.now()
  const after = await until('they have asked again', async () => {
    const now = await calls()
    return now >= before + 16 && now
  })
  // Four workers wait at least 0.9 of the interval each. The counters arrive late, but there are never 100 in a second.
  expect(((after - before) / (performance.now() - startedAt)) * 1000).toBeLessThan(50)
  expect(done).toEqual([])
  await running?.complete()
  await until('the group goes on', () => done.length === 2)
})

test('jobs that the database refuses to end hold up none that end beside them', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await scene.sql(`create function $schema.refuse() returns trigger language plpgsql as $function$
    begin raise exception 'not this one' using errcode = '23514'; end $function$;
    create trigger refuse before insert on $schema.ended_jobs for each row when (new.payload::text = '"bad"')
    execute function $schema.refuse()`)
  const all = Array.from({ length: 40 }, (_, n) => ({ name: 'a', payload: n % 20 === 7 ? 'bad' : 'good' }))
  const ids = await jobs.enqueueAll(all)
  const claimed = await jobs.claim('a', { limit: 40, ttl: '1h' })
  const ends = await Promise.allSettled(claimed.map((job) => job.complete()))
  expect(ends.filter(({ status }) => status === 'rejected')).toMatchObject(
    [1, 2].map(() => ({ reason: { code: 'store-refused' } })),
  )
  const states = await Promise.all(ids.map(async (id) => (await jobs.find(id ?? ''))?.state))
  expect(states).toEqual(all.map(({ payload }) => (payload === 'bad' ? 'running' : 'completed')))
})

test('a database that refuses to end any job is not asked about each of them', async () => {
  await using scene = await openScene()
  const jobs = scene.open()
  await jobs.migrate()
  await scene.sql(`create sequence $schema.refusals; create function $schema.refuse() returns trigger language plpgsql as $function$
    begin perform nextval('$schema.refusals'); raise exception 'none' using errcode = '23514'; end $function$;
    create trigger refuse before insert on $schema.ended_jobs for each row execute function $schema.refuse()`)
  await jobs.enqueueAll(Array.from({ length: 200 }, () => ({ name: 'a' })))
  const claimed = await jobs.claim('a', { limit: 200, ttl: '1h' })
  const ends = await Promise.allSettled(claimed.map((job) => job.complete()))
  expect(ends.every(({ status }) => status === 'rejected')).toBe(true)
  const [asked] = await scene.sql('select last_value from $schema.refusals')
  expect(Number(asked?.['last_value'])).toBeLessThan(30)
})
