import { run as runGraphile } from 'graphile-worker'
import pg from 'pg'
import PgBoss from 'pg-boss'
import { createJobs } from '../../src/jobs/index.ts'
import type { Surroundings } from '../adapter.ts'
import { type Candidate, percentile, type Scenario } from '../scenario.ts'

const WORKERS = 8
const BATCH = 100

/** 8 workers empty a table of jobs that do nothing, up to 100 a claim: jobs per second, until the last one is settled. */
export const jobsThroughput: Scenario = {
  name: 'postgres-jobs',
  title: 'PostgreSQL, jobs that do nothing, 8 workers, 100 a claim',
  metrics: [{ name: 'jobs', unit: '/s', better: 'higher' }],
  target: '≥ 0.7x',
  candidates: [
    throughput('SKIP LOCKED + delete', drainBare, 120_000),
    throughput('holdfast', (surroundings, count) => drainHoldfast(surroundings, count, '1h'), 120_000),
    throughput(
      'holdfast, keepCompleted: 0',
      (surroundings, count) => drainHoldfast(surroundings, count, 0),
      40_000,
    ),
    throughput('graphile-worker', drainGraphile, 40_000),
    throughput('pg-boss', drainPgBoss, 40_000),
  ],
}

/** One job at a time, from the call of enqueue to the start of its handler, with an idle worker: p50 in ms. */
export const jobsLatency: Scenario = {
  name: 'postgres-jobs-start',
  title: 'PostgreSQL, from enqueue to start, one idle worker',
  metrics: [{ name: 'p50', unit: 'ms', better: 'lower' }],
  target: '≤ 1.2x',
  candidates: [
    latency('SKIP LOCKED + NOTIFY', openBareQueue, 1000),
    latency('holdfast', openHoldfastQueue, 1000),
    latency('graphile-worker', openGraphileQueue, 1000),
    // Its workers poll twice a second at most.
    latency('pg-boss', openPgBossQueue, 60),
  ],
}

type Drain = (surroundings: Surroundings, count: number) => Promise<number>

function throughput(name: string, drain: Drain, jobs: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const count = quick ? jobs / 4 : jobs
      const tookMs = await drain(surroundings, count)
      return [(count / tookMs) * 1000]
    },
  }
}

const CLAIM = `
update bare_jobs set state = 'running' where id in (
  select id from bare_jobs where state = 'ready' and name = 'a' and run_at <= now()
  order by priority desc, run_at, id limit $1 for update skip locked
) returning id, payload`

async function openBare(surroundings: Surroundings): Promise<pg.Pool> {
  const pool = new pg.Pool({ connectionString: surroundings.postgresUrl, max: WORKERS })
  await pool.query(`
    drop table if exists bare_jobs;
    create table bare_jobs (
      id bigserial primary key, name text not null, payload json not null, state text not null default 'ready',
      priority integer not null default 0, run_at timestamptz not null default now()
    );
    create index on bare_jobs (name, priority desc, run_at, id) where state = 'ready'`)
  return pool
}

async function drainBare(surroundings: Surroundings, count: number): Promise<number> {
  const pool = await openBare(surroundings)
  await pool.query(
    `insert into bare_jobs (name, payload) select 'a', '{"n":1}' from generate_series(1, $1)`,
    [count],
  )
  await pool.query('vacuum analyze bare_jobs')
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: WORKERS }, async () => {
      const client = await pool.connect()
      for (;;) {
        const { rows } = await client.query({ name: 'claim', text: CLAIM, values: [BATCH] })
        if (rows.length === 0) break
        const ids = (rows as { id: string }[]).map(({ id }) => id)
        await client.query({ name: 'done', text: 'delete from bare_jobs where id = any ($1)', values: [ids] })
      }
      client.release()
    }),
  )
  const tookMs = performance.now() - startedAt
  await pool.end()
  return tookMs
}

async function drainHoldfast(
  { postgresUrl }: Surroundings,
  count: number,
  keepCompleted: number | string,
): Promise<number> {
  const pool = new pg.Pool({ connectionString: postgresUrl })
  await pool.query('drop schema if exists holdfast_bench cascade')
  const jobs = createJobs(pool, { schema: 'holdfast_bench', maxConnections: WORKERS, keepCompleted })
  await jobs.migrate()
  for (let from = 0; from < count; from += 1000) {
    await jobs.enqueueAll(
      Array.from({ length: Math.min(1000, count - from) }, () => ({ name: 'a', payload: { n: 1 } })),
    )
  }
  await pool.query('vacuum analyze holdfast_bench.jobs')
  let started = 0
  const startedAt = performance.now()
  const handlers = {
    a: () => {
      started += 1
    },
  }
  const workers = Array.from({ length: WORKERS }, () => jobs.work(handlers, { concurrency: BATCH }))
  while (started < count || workers.some(({ running }) => running > 0)) await moment()
  const tookMs = performance.now() - startedAt
  await jobs.close()
  await pool.end()
  return tookMs
}

async function drainGraphile({ postgresUrl }: Surroundings, count: number): Promise<number> {
  const pgPool = new pg.Pool({ connectionString: postgresUrl, max: 24 })
  await pgPool.query('drop schema if exists graphile_worker cascade')
  let done = 0
  const start = (concurrentJobs: number) =>
    runGraphile({
      pgPool,
      noHandleSignals: true,
      taskList: {
        a: async () => {
          done += 1
        },
      },
      preset: {
        worker: {
          concurrentJobs,
          localQueue: { size: BATCH },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    })
  await (await start(1)).stop()
  await pgPool.query(`select graphile_worker.add_job('a', '{"n":1}') from generate_series(1, $1)`, [count])
  await pgPool.query('vacuum analyze graphile_worker._private_jobs')
  const startedAt = performance.now()
  const runners = await Promise.all(Array.from({ length: WORKERS }, () => start(BATCH)))
  while (done < count) await moment()
  for (;;) {
    const { rows } = await pgPool.query('select 1 from graphile_worker._private_jobs limit 1')
    if (rows.length === 0) break
  }
  const tookMs = performance.now() - startedAt
  await Promise.all(runners.map((runner) => runner.stop()))
  await pgPool.end()
  return tookMs
}

/** By fetch and complete, because its own workers wait half a second between two batches. */
async function drainPgBoss({ postgresUrl = '' }: Surroundings, count: number): Promise<number> {
  const boss = await openPgBoss(postgresUrl)
  for (let from = 0; from < count; from += 1000) {
    await boss.insert(
      Array.from({ length: Math.min(1000, count - from) }, () => ({ name: 'a', data: { n: 1 } })),
    )
  }
  const startedAt = performance.now()
  await Promise.all(
    Array.from({ length: WORKERS }, async () => {
      for (;;) {
        const jobs = await boss.fetch('a', { batchSize: BATCH })
        if (jobs === null || jobs.length === 0) return
        await boss.complete(
          'a',
          jobs.map(({ id }) => id),
        )
      }
    }),
  )
  const tookMs = performance.now() - startedAt
  await boss.stop({ graceful: false, wait: true })
  return tookMs
}

async function openPgBoss(connectionString: string): Promise<PgBoss> {
  const pool = new pg.Pool({ connectionString })
  await pool.query('drop schema if exists pgboss cascade')
  await pool.end()
  const boss = new PgBoss({ connectionString, max: WORKERS, supervise: false, schedule: false })
  await boss.start()
  await boss.createQueue('a')
  return boss
}

/** One job at a time: resolves when its handler has started. `settled` resolves when it is completed as well. */
interface Queue {
  enqueue(): Promise<unknown>
  settled(): Promise<void>
  close(): Promise<void>
}

type OpenQueue = (surroundings: Surroundings, onStart: () => void) => Promise<Queue>

function latency(name: string, open: OpenQueue, jobs: number): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const count = Math.ceil(quick ? jobs / 10 : jobs)
      let onStart = (): void => {}
      const queue = await open(surroundings, () => onStart())
      const times: number[] = []
      for (let turn = -Math.ceil(count / 5); turn < count; turn += 1) {
        const start = new Promise<void>((resolve) => {
          onStart = resolve
        })
        const from = performance.now()
        const enqueued = queue.enqueue()
        await start
        if (turn >= 0) times.push(performance.now() - from)
        await enqueued
        await queue.settled()
      }
      await queue.close()
      return [percentile(times, 0.5)]
    },
  }
}

async function openBareQueue(surroundings: Surroundings, onStart: () => void): Promise<Queue> {
  const pool = await openBare(surroundings)
  const listener = new pg.Client({ connectionString: surroundings.postgresUrl })
  await listener.connect()
  await listener.query('listen bare_jobs')
  let settled = Promise.resolve()
  listener.on('notification', () => {
    settled = (async () => {
      const { rows } = await pool.query({ name: 'claim', text: CLAIM, values: [10] })
      if (rows.length === 0) return
      onStart()
      const ids = (rows as { id: string }[]).map(({ id }) => id)
      await pool.query({ name: 'done', text: 'delete from bare_jobs where id = any ($1)', values: [ids] })
    })()
  })
  const text = `with added as (insert into bare_jobs (name, payload) values ('a', $1) returning id) select pg_notify('bare_jobs', id::text) from added`
  return {
    enqueue: () => pool.query({ name: 'enqueue', text, values: ['{"n":1}'] }),
    settled: () => settled,
    async close() {
      await listener.end()
      await pool.end()
    },
  }
}

async function openHoldfastQueue({ postgresUrl }: Surroundings, onStart: () => void): Promise<Queue> {
  const pool = new pg.Pool({ connectionString: postgresUrl })
  await pool.query('drop schema if exists holdfast_bench cascade')
  const jobs = createJobs(pool, { schema: 'holdfast_bench' })
  await jobs.migrate()
  const worker = jobs.work({ a: onStart })
  return {
    enqueue: () => jobs.enqueue('a', { n: 1 }),
    async settled() {
      while (worker.running > 0) await moment()
    },
    async close() {
      await jobs.close()
      await pool.end()
    },
  }
}

async function openGraphileQueue({ postgresUrl }: Surroundings, onStart: () => void): Promise<Queue> {
  const pgPool = new pg.Pool({ connectionString: postgresUrl })
  await pgPool.query('drop schema if exists graphile_worker cascade')
  const taskList = { a: async () => onStart() }
  const runner = await runGraphile({ pgPool, noHandleSignals: true, taskList, concurrency: 10 })
  return {
    enqueue: () => runner.addJob('a', { n: 1 }),
    async settled() {
      for (;;) {
        const { rows } = await pgPool.query('select 1 from graphile_worker._private_jobs limit 1')
        if (rows.length === 0) return
      }
    },
    async close() {
      await runner.stop()
      await pgPool.end()
    },
  }
}

async function openPgBossQueue({ postgresUrl = '' }: Surroundings, onStart: () => void): Promise<Queue> {
  const boss = await openPgBoss(postgresUrl)
  await boss.work('a', { pollingIntervalSeconds: 0.5 }, async () => onStart())
  return {
    enqueue: () => boss.send('a', { n: 1 }),
    settled: async () => {},
    close: () => boss.stop({ graceful: false, wait: true }),
  }
}

/** With a pause, as polling without one would take processor time from the measured work. */
function moment(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1))
}
