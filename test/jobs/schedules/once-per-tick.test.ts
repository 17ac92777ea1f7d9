import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createJobSchedules, type ScheduleFire } from '../../../src/jobs/schedules/index.ts'
import { bundled } from '../../servers/bundled.ts'
import { startPostgres } from '../../servers/postgres-server.ts'
import { until } from '../../servers/until.ts'
import { closeSharedServer, JobsScene, openProxied, sharedServer } from '../scene.ts'
import { letPass, openSchedules } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const PROGRAM = await bundled(new URL('firing-process.ts', import.meta.url))
const HOUR_MS = 3_600_000
const children = new Set<ChildProcess>()
for (const event of ['exit', 'disconnect']) {
  process.once(event, () => {
    for (const child of children) child.kill('SIGKILL')
  })
}

async function startProcess(scene: JobsScene, skewMs: number): Promise<ChildProcess> {
  const child = fork(PROGRAM, [scene.server.url, scene.schema, String(skewMs)], {
    execArgv: [],
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  await once(child, 'message', { signal: AbortSignal.timeout(120_000) })
  return child
}

/** The ticks of the jobs that there are, and how many a schedule should have from its first tick to its last one. */
async function ticksOf(scene: JobsScene): Promise<Record<string, unknown>[]> {
  return scene.sql(`
    select payload -> 'schedule' ->> 'id' as id, count(*)::int as jobs,
      count(distinct payload -> 'schedule' ->> 'scheduledAt')::int as ticks,
      1 + extract(epoch from max((payload -> 'schedule' ->> 'scheduledAt')::timestamptz)
        - min((payload -> 'schedule' ->> 'scheduledAt')::timestamptz))::int as seconds
    from $schema.jobs group by 1`)
}

test('each tick becomes one job, with three processes whose clocks differ by an hour and that are killed all the time', async () => {
  await using at = await openSchedules()
  const { scene, schedules } = at
  const SCHEDULES = 300
  const client = await scene.connect()
  await client.query('begin')
  for (let n = 0; n < SCHEDULES; n += 1)
    await schedules.add(`s${n}`, { job: 'j', every: '1s', missed: 'all' }, { transaction: client })
  await client.query('commit')
  // As after an outage of ten minutes: there is always something to fire.
  await letPass(scene, 600)
  const skews = [0, HOUR_MS, -HOUR_MS]
  const processes = await Promise.all(skews.map((skewMs) => startProcess(scene, skewMs)))
  let kills = 0
  while (kills < 9) {
    await new Promise((resolve) => setTimeout(resolve, 150 + 300 * Math.random()))
    const victim = processes.shift()
    if (victim === undefined) throw new Error('There is nobody to kill')
    const ended = once(victim, 'exit')
    victim.kill('SIGKILL')
    await ended
    kills += 1
    processes.push(await startProcess(scene, skews[kills % 3] ?? 0))
  }
  await until(
    'all have caught up',
    async () => {
      const [row] = await scene.sql(
        `select count(*)::int as late from $schema.job_schedules where due_at < clock_timestamp() - interval '5 s'`,
      )
      return row?.['late'] === 0
    },
    { withinMs: 240_000, everyMs: 200 },
  )
  await Promise.all(
    processes.map(async (child) => {
      const ended = once(child, 'exit')
      child.send('stop')
      await ended
    }),
  )
  const ticks = await ticksOf(scene)
  expect(ticks).toHaveLength(SCHEDULES)
  for (const { id, jobs, ticks: distinct, seconds } of ticks) {
    expect({ id, jobs, distinct }).toEqual({ id, jobs: seconds, distinct: seconds })
    expect(jobs).toBeGreaterThan(600)
  }
  const [counted] = await scene.sql(
    'select sum(runs)::int as runs, sum(missed)::int as missed, sum(overlapped)::int as overlapped from $schema.job_schedules',
  )
  const [all] = await scene.sql('select count(*)::int as jobs from $schema.jobs')
  expect(counted).toEqual({ runs: all?.['jobs'], missed: 0, overlapped: 0 })
}, 300_000)

test('a lost answer fires nothing twice', async () => {
  await using at = await openProxied()
  const { scene, proxy, url } = at
  const jobs = scene.open({}, { url })
  const errors: unknown[] = []
  const schedules = createJobSchedules(jobs, { onError: (error) => errors.push(error) })
  await schedules.add('a', { job: 'j', every: '1s', missed: 'all' })
  const lost = proxy.loseNextReply('jobs_fire_schedules')
  schedules.start()
  await lost
  await until('the error was told', () => errors.length > 0)
  const ticks = await until('it has fired again', async () => {
    const [row] = await ticksOf(scene)
    return Number(row?.['jobs']) > 3 && row
  })
  expect(ticks).toMatchObject({ jobs: ticks['seconds'], ticks: ticks['seconds'] })
  await schedules.stop()
})

test('an outage of the database costs no tick, and the schedules go on by themselves', async () => {
  await using server = await startPostgres()
  await using scene = new JobsScene(server)
  const jobs = scene.open()
  await jobs.migrate()
  const errors: unknown[] = []
  const schedules = createJobSchedules(jobs, { onError: (error) => errors.push(error) })
  await schedules.add('a', { job: 'j', every: '1s', missed: 'all' })
  schedules.start()
  const count = async (): Promise<number> =>
    Number((await scene.sql('select count(*)::int as jobs from $schema.jobs'))[0]?.['jobs'])
  await until('it fires', async () => (await count()) > 0)
  await server.kill()
  await until('the error was told', () => errors.length > 0)
  await server.restart()
  const before = await until('the database is back', () => count().catch(() => false as const))
  await until('it fires again', async () => (await count()) > before + 2)
  await schedules.stop()
  const [ticks] = await ticksOf(scene)
  expect(ticks?.['jobs']).toBe(ticks?.['seconds'])
  expect(ticks?.['ticks']).toBe(ticks?.['seconds'])
})

test('schedules that make up for a long outage keep no other from firing in time', async () => {
  const fires: ScheduleFire[] = []
  await using at = await openSchedules({
    onFire: (fire) => {
      if (fire.id === 'now') fires.push(fire)
    },
  })
  const { scene, schedules } = at
  await schedules.add('s', { job: 'j', every: '1s', missed: 'all' })
  // More than a round has, each with a day of ticks: it takes minutes to make up for them.
  await scene.sql(`insert into $schema.job_schedules (id, name, payload, definition, anchor_at, state, tick_at, due_at, created_at, changed_at)
    select id || n, name, payload, definition, anchor_at, state, tick_at, due_at, created_at, changed_at
    from $schema.job_schedules, generate_series(1, 400) n`)
  await letPass(scene, 23 * 3600)
  await schedules.add('now', { job: 'j', every: '1s', missed: 'skip', overlap: 'allow' })
  schedules.start()
  await until('the other one has fired', () => fires.length >= 3)
  const [row] = await scene.sql(
    `select count(*)::int as late from $schema.job_schedules where due_at < clock_timestamp() - interval '1 h'`,
  )
  expect(row?.['late']).toBeGreaterThan(300)
  expect(await schedules.find('now')).toMatchObject({ missedTicks: 0 })
})

test('100,000 schedules that are not due cost a look no more pages, and an idle process does not look', {
  timeout: 180_000,
}, async () => {
  await using at = await openSchedules()
  const { scene, schedules } = at
  const client = new Client({ connectionString: scene.server.url })
  await client.connect()
  const look = `explain (analyze, buffers, format json) select ${scene.schema}.jobs_due_schedules(200, 0, '{}')`
  async function pagesOfLook(): Promise<number> {
    await client.query(`vacuum analyze ${scene.schema}.job_schedules`)
    const seen: number[] = []
    for (let round = 0; round < 4; round += 1) {
      const { rows } = await client.query(look)
      const [{ Plan: plan }] = (rows[0] as { 'QUERY PLAN': [{ Plan: Record<string, number> }] })['QUERY PLAN']
      seen.push(Number(plan['Shared Hit Blocks']) + Number(plan['Shared Read Blocks']))
    }
    return Math.min(...seen)
  }
  const fill = (first: number, last: number) =>
    scene.sql(`
      insert into $schema.job_schedules (
        id, tenant, name, payload, definition, anchor_at, state, tick_at, due_at, last_job_id, last_outcome, created_at, changed_at
      )
      select 'filled ' || n, 't' || n % 100, 'j', '{}', definition, anchor_at, 'active', due_at + n * interval '1 ms',
        due_at + n * interval '1 ms', n, 'completed', now(), now()
      from $schema.job_schedules, generate_series(${first}, ${last}) n where id = 'seed'`)
  await schedules.add('seed', { job: 'j', every: '1h' })
  await fill(1, 100)
  const few = await pagesOfLook()
  await fill(101, 100_000)
  expect(await pagesOfLook()).toBeLessThan(few + 10)

  const scans = async (): Promise<number> => {
    const [row] = await scene.sql(
      `select idx_scan::int as scans from pg_stat_user_indexes where schemaname = '$schema' and indexrelname = 'job_schedules_due'`,
    )
    return Number(row?.['scans'])
  }
  // A session reports what it has scanned with a delay of up to ten seconds, or when it ends.
  await client.end()
  const own = await until('the looks above are counted', async () => (await scans()) || undefined)
  schedules.start()
  const before = await until('it has looked', async () => {
    const [one, other] = [
      await scans(),
      await new Promise((resolve) => setTimeout(resolve, 3000)).then(scans),
    ]
    return one === other && one > own ? one : undefined
  })
  await new Promise((resolve) => setTimeout(resolve, 3000))
  expect(await scans()).toBe(before)
})
