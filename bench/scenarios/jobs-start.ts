import { run as runGraphile } from 'graphile-worker'
import pg from 'pg'
import { createJobs } from '../../src/jobs/index.ts'
import type { Surroundings } from '../adapter.ts'
import { type Candidate, percentile, type Scenario } from '../scenario.ts'
import { CLAIM, moment, openBare, openPgBoss, SILENT } from './jobs.ts'

/** One job at a time, from the call of enqueue to the start of its handler, with an idle worker: p50 in ms. */
export const jobsLatency: Scenario = {
  name: 'postgres-jobs-start',
  title: 'PostgreSQL, from enqueue to start, one idle worker',
  metrics: [{ name: 'p50', unit: 'ms', better: 'lower' }],
  target: '≤ 1.15x',
  candidates: [
    latency('SKIP LOCKED + NOTIFY', openBareQueue, 1000),
    latency('holdfast', openHoldfastQueue, 1000),
    latency('graphile-worker', openGraphileQueue, 1000),
    // Its workers poll twice a second at most.
    latency('pg-boss', openPgBossQueue, 60),
  ],
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
      while (worker.jobCount > 0) await moment()
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
  const runner = await runGraphile({
    pgPool,
    noHandleSignals: true,
    logger: SILENT,
    taskList,
    concurrency: 10,
  })
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
