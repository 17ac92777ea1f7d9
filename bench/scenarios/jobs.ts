import { Logger, run as runGraphile } from 'graphile-worker'
import pg from 'pg'
import PgBoss from 'pg-boss'
import { createJobs, type Jobs } from '../../src/jobs/index.ts'
import type { Surroundings } from '../adapter.ts'
import type { Candidate, Scenario } from '../scenario.ts'

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
    throughput('holdfast', (surroundings, count) => drainHoldfast(surroundings, count, {}), 120_000),
    throughput(
      'holdfast, keepCompleted: 0',
      (surroundings, count) => drainHoldfast(surroundings, count, { keepCompleted: 0 }),
      120_000,
    ),
    // Slower by so much that connecting is no part of what is measured.
    throughput('graphile-worker', (surroundings, count) => drainGraphile(surroundings, count, {}), 40_000),
    throughput('pg-boss', drainPgBoss, 40_000),
  ],
}

/** One worker as a user would write it, with 8 jobs at a time: jobs per second, until the last one is settled. */
export const jobsOneWorker: Scenario = {
  name: 'postgres-jobs-8',
  title: 'PostgreSQL, jobs that do nothing, one worker, 8 at a time',
  metrics: [{ name: 'jobs', unit: '/s', better: 'higher' }],
  target: '≥ 0.9x',
  candidates: [
    oneWorker('SKIP LOCKED + delete, 8 loops, 100 a claim', (surroundings, count) =>
      drainBare(surroundings, count),
    ),
    oneWorker('holdfast, concurrency: 8', (surroundings, count) =>
      drainHoldfast(surroundings, count, { workers: 1, concurrency: 8 }),
    ),
    oneWorker('holdfast, concurrency: 100', (surroundings, count) =>
      drainHoldfast(surroundings, count, { workers: 1, concurrency: 100 }),
    ),
    oneWorker('graphile-worker, concurrentJobs: 8, local queue of 100', (surroundings, count) =>
      drainGraphile(surroundings, count, { runners: 1, concurrentJobs: 8 }),
    ),
  ],
}

/** The same worker beside other rows of the table. The jobs per second ought not to change. */
export const jobsBeside: Scenario = {
  name: 'postgres-jobs-beside',
  title: 'PostgreSQL, one worker, 8 at a time, beside many other jobs',
  metrics: [
    { name: 'jobs', unit: '/s', better: 'higher' },
    { name: 'enqueuing 100,000', unit: 's', better: 'lower' },
  ],
  target: '≥ 0.9x',
  candidates: [
    beside('holdfast, nothing beside', {}),
    beside('holdfast, of 100,000 enqueued in one call', { inOneCall: 100_000 }),
    beside('holdfast, a million delayed ones beside', { delayed: 1_000_000 }),
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

export const CLAIM = `
update bare_jobs set state = 'running' where id in (
  select id from bare_jobs where state = 'ready' and name = 'a' and run_at <= now()
  order by priority desc, run_at, id limit $1 for update skip locked
) returning id, payload`

export async function openBare(surroundings: Surroundings): Promise<pg.Pool> {
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

interface HoldfastDrain {
  readonly workers?: number
  readonly concurrency?: number
  readonly keepCompleted?: number | string
  readonly prepare?: (jobs: Jobs, pool: pg.Pool) => Promise<void>
}

async function drainHoldfast(
  { postgresUrl }: Surroundings,
  count: number,
  {
    workers: many = WORKERS,
    concurrency = BATCH,
    keepCompleted = '1h',
    prepare = enqueued(count),
  }: HoldfastDrain,
): Promise<number> {
  const pool = new pg.Pool({ connectionString: postgresUrl })
  await pool.query('drop schema if exists holdfast_bench cascade')
  // One worker has the connections that it has by default.
  const connections = many === 1 ? {} : { maxConnections: many }
  const jobs = createJobs(pool, { schema: 'holdfast_bench', keepCompleted, ...connections })
  await jobs.migrate()
  await prepare(jobs, pool)
  await pool.query('vacuum analyze holdfast_bench.jobs')
  let started = 0
  const startedAt = performance.now()
  const handlers = {
    a: () => {
      started += 1
    },
  }
  const workers = Array.from({ length: many }, () => jobs.work(handlers, { concurrency }))
  while (started < count || workers.some(({ jobCount }) => jobCount > 0)) await moment()
  const tookMs = performance.now() - startedAt
  await jobs.close()
  await pool.end()
  return tookMs
}

function enqueued(count: number): (jobs: Jobs) => Promise<void> {
  return async (jobs) => {
    for (let from = 0; from < count; from += 1000) await jobs.enqueueAll(quick(Math.min(1000, count - from)))
  }
}

function quick(count: number) {
  return Array.from({ length: count }, () => ({ name: 'a', payload: { n: 1 } }))
}

function oneWorker(name: string, drain: Drain): Candidate {
  return {
    name,
    async measure(surroundings, { quick }) {
      const count = quick ? 20_000 : 100_000
      return [(count / (await drain(surroundings, count))) * 1000]
    },
  }
}

function beside(
  name: string,
  { inOneCall = 0, delayed = 0 }: { inOneCall?: number; delayed?: number },
): Candidate {
  return {
    name,
    async measure(surroundings, { quick: isQuick }) {
      const share = isQuick ? 10 : 1
      const count = 100_000 / share
      let enqueuingMs = Number.NaN
      const tookMs = await drainHoldfast(surroundings, count, {
        workers: 1,
        concurrency: 8,
        async prepare(jobs, pool) {
          if (inOneCall > 0) {
            const startedAt = performance.now()
            await jobs.enqueueAll(quick(inOneCall / share))
            enqueuingMs = performance.now() - startedAt
          } else await enqueued(count)(jobs)
          if (delayed === 0) return
          await pool.query(`
            insert into holdfast_bench.jobs (id, name, state, priority, payload, max_attempts, backoff_ms, max_backoff_ms, enqueued_at, due_at)
            select nextval('holdfast_bench.job_ids'), 'a', 'delayed', 9, '1', 10, 1000, 1000, now(), now() + interval '1 hour' + n * interval '1 ms'
            from generate_series(1, ${delayed / share}) n`)
        },
      })
      return [(count / tookMs) * 1000, (enqueuingMs / 1000) * share]
    },
  }
}

/** It writes a line for each job otherwise. */
export const SILENT = new Logger(() => () => {})

async function drainGraphile(
  { postgresUrl }: Surroundings,
  count: number,
  { runners: many = WORKERS, concurrentJobs = BATCH }: { runners?: number; concurrentJobs?: number },
): Promise<number> {
  const pgPool = new pg.Pool({ connectionString: postgresUrl, max: 24 })
  await pgPool.query('drop schema if exists graphile_worker cascade')
  let done = 0
  const start = (concurrentJobs: number) =>
    runGraphile({
      pgPool,
      noHandleSignals: true,
      logger: SILENT,
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
  // In portions: one statement that adds 100,000 jobs takes more than ten minutes.
  for (let from = 0; from < count; from += 1000) {
    const portion = Math.min(1000, count - from)
    await pgPool.query(`select graphile_worker.add_job('a', '{"n":1}') from generate_series(1, $1)`, [
      portion,
    ])
  }
  await pgPool.query('vacuum analyze graphile_worker._private_jobs')
  const startedAt = performance.now()
  const runners = await Promise.all(Array.from({ length: many }, () => start(concurrentJobs)))
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

export async function openPgBoss(connectionString: string): Promise<PgBoss> {
  const pool = new pg.Pool({ connectionString })
  await pool.query('drop schema if exists pgboss cascade')
  await pool.end()
  const boss = new PgBoss({ connectionString, max: WORKERS, supervise: false, schedule: false })
  await boss.start()
  await boss.createQueue('a')
  return boss
}

/** With a pause, as polling without one would take processor time from the measured work. */
export function moment(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1))
}
