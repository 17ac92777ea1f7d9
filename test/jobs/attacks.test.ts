// Kills, restarts and wrong clocks, on children, groups of n and limits of names. Stored schedules: schedules/once-per-tick.test.ts.
//
//   HOLDFAST_KILLS=120 npx vitest run test/jobs/attacks.test.ts    (two minutes of it)
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { afterAll, expect, test } from 'vitest'
import type { Jobs } from '../../src/jobs/index.ts'
import { bundled } from '../servers/bundled.ts'
import { startPostgres } from '../servers/postgres-server.ts'
import { until } from '../servers/until.ts'
import { closeSharedServer, JobsScene, openScene } from './scene.ts'

const PROGRAM = await bundled(new URL('attacked-worker.ts', import.meta.url))
const KILLS = Number(process.env['HOLDFAST_KILLS'] ?? 4)
const HOUR_MS = 3_600_000
const GROUP_LIMITS = { 'customer:0': 1, 'customer:1': 2, 'customer:2': 3, shared: 4, wholes: 2 }
const FEW = 2
const RATE = { points: 20, windowMs: 500 }
const FAMILIES_AT_ONCE = 20

afterAll(closeSharedServer)

const children = new Set<ChildProcess>()
for (const event of ['exit', 'disconnect']) {
  process.once(event, () => {
    for (const child of children) child.kill('SIGKILL')
  })
}

async function startProcess(
  scene: JobsScene,
  { skewMs, ttl }: { readonly skewMs: number; readonly ttl: string },
): Promise<ChildProcess> {
  const child = fork(PROGRAM, [scene.server.url, scene.schema, String(skewMs), ttl], {
    execArgv: [],
  })
  children.add(child)
  child.once('exit', () => children.delete(child))
  await once(child, 'message', { signal: AbortSignal.timeout(120_000) })
  return child
}

/** Resolves with what the worker of the process has seen that must never happen. */
async function stopProcess(child: ChildProcess): Promise<unknown> {
  const told = once(child, 'message', { signal: AbortSignal.timeout(60_000) })
  const ended = once(child, 'exit')
  child.send('stop')
  const [faults] = await told
  await ended
  return faults
}

/** The database itself records from when to when each attempt has its lease. */
async function recordLeases(scene: JobsScene): Promise<void> {
  await scene.sql(`
    create table $schema.effects (job bigint);
    create table $schema.leases (
      job bigint, attempt integer, name text, group_key text, from_at timestamptz, until_at timestamptz, ended boolean,
      primary key (job, attempt)
    );
    create function $schema.record_lease() returns trigger language plpgsql as $function$
    begin
      if old.state <> 'running' then
        insert into $schema.leases values (new.id, new.attempt, new.name, new.group_key, clock_timestamp());
      else
        update $schema.leases set until_at = clock_timestamp(), ended = (tg_op = 'DELETE')
        where job = old.id and attempt = old.attempt;
      end if;
      return null;
    end
    $function$;
    create trigger leases_changed after update on $schema.jobs for each row
      when ((old.state = 'running') <> (new.state = 'running')) execute function $schema.record_lease();
    create trigger leases_ended after delete on $schema.jobs for each row
      when (old.state = 'running') execute function $schema.record_lease()`)
}

async function enqueueSeed(jobs: Jobs, family: number): Promise<void> {
  await jobs.enqueue('seed', { family }, { maxAttempts: 100, backoff: 50, maxBackoff: 100, priority: 1 })
}

async function enqueueSeeds(jobs: Jobs): Promise<void> {
  for (let family = 0; family < FAMILIES_AT_ONCE; family += 1) await enqueueSeed(jobs, family)
}

async function openAttacked(scene: JobsScene): Promise<Jobs> {
  const jobs = scene.open()
  await jobs.migrate()
  await recordLeases(scene)
  await jobs.setLimit('few', { concurrency: FEW })
  await jobs.setLimit('rated', { rate: { points: RATE.points, window: RATE.windowMs } })
  await enqueueSeeds(jobs)
  return jobs
}

function noJobIsLeft(scene: JobsScene): Promise<true> {
  return until(
    'no job is left',
    async () => {
      const [row] = await scene.sql('select count(*)::int as left from $schema.jobs')
      return row?.['left'] === 0
    },
    { withinMs: 100_000, everyMs: 100 },
  )
}

/** How many of the jobs that have ended were taken over from a process that died. */
async function takenOver(scene: JobsScene): Promise<number> {
  const [row] = await scene.sql(`
    select count(*)::int as jobs from $schema.ended_jobs
    where concat(failed_attempts::text, error) like '%was not heard of%'`)
  return Number(row?.['jobs'])
}

/** How many of them ran at once at most. */
async function mostAtOnce(scene: JobsScene, of: 'name' | 'group_key'): Promise<Record<string, number>> {
  const rows = await scene.sql(`
    select ${of} as of, max(running)::int as most from (
      select ${of}, sum(step) over (partition by ${of} order by at, step) as running from (
        select ${of}, from_at as at, 1 as step from $schema.leases
        union all select ${of}, until_at, -1 from $schema.leases
      ) steps
    ) counted where ${of} is not null group by 1`)
  return Object.fromEntries(rows.map(({ of: key, most }) => [String(key), Number(most)]))
}

/**
 * Resolves when no job is left and each group and `few` was full at some time. It enqueues more families until then: a group that
 * was never full shows nothing about its limit.
 */
async function runUntilAllWereFull(scene: JobsScene, jobs: Jobs): Promise<void> {
  for (let tries = 0; tries < 10; tries += 1) {
    await noJobIsLeft(scene)
    const { few = 0 } = await mostAtOnce(scene, 'name')
    const groups = await mostAtOnce(scene, 'group_key')
    if (few >= FEW && Object.entries(GROUP_LIMITS).every(([group, limit]) => (groups[group] ?? 0) >= limit))
      return
    await enqueueSeeds(jobs)
  }
}

async function expectAllKept(scene: JobsScene, jobs: Jobs): Promise<void> {
  const [seeds] = (await jobs.count()).filter(({ name }) => name === 'seed')
  const families = Number(seeds?.count)
  const completed = { state: 'completed', count: families }
  expect((await jobs.count()).map(({ name, state, count }) => ({ name, state, count }))).toEqual([
    { name: 'brave', ...completed },
    { name: 'careful', state: 'cancelled', count: families },
    { name: 'doomed', state: 'dead', count: families },
    { name: 'few', ...completed },
    { name: 'flaky', ...completed },
    { name: 'part', state: 'completed', count: 2 * families },
    { name: 'rated', ...completed },
    { name: 'seed', ...completed },
    { name: 'whole', ...completed },
  ])
  const [effects] = await scene.sql(
    'select count(*)::int as effects, count(distinct job)::int as jobs from $schema.effects',
  )
  expect(effects).toEqual({ effects: 2 * families, jobs: 2 * families })

  expect(await mostAtOnce(scene, 'group_key')).toEqual(GROUP_LIMITS)
  expect((await mostAtOnce(scene, 'name'))['few']).toBe(FEW)
  const [fast] = await scene.sql(`
    select count(*)::int as fast from (
      select from_at - lag(from_at, ${RATE.points}) over (order by from_at) as took from $schema.leases where name = 'rated'
    ) windows where took < interval '${RATE.windowMs} ms'`)
  expect(fast).toEqual({ fast: 0 })

  const [early] = await scene.sql(`
    select count(*)::int as pairs, count(*) filter (where child.id is null or child.ended_at > l.from_at)::int as early
    from $schema.ended_jobs parent cross join lateral unnest(parent.children) as c (id)
    join $schema.leases l on l.job = parent.id left join $schema.ended_jobs child on child.id = c.id`)
  expect(early?.['pairs']).toBeGreaterThanOrEqual(7 * families)
  expect(early?.['early']).toBe(0)

  const [left] = await scene.sql(`
    select (select count(*)::int from $schema.job_children) as children,
      (select count(*)::int from $schema.ended_jobs where tell_at is not null) as untold,
      (select count(*)::int from $schema.leases where until_at is null) as leases,
      (select count(*)::int from (select job from $schema.leases group by job having count(*) filter (where ended) <> 1) odd) as odd`)
  expect(left).toEqual({ children: 0, untold: 0, leases: 0, odd: 0 })
}

test(
  'with a process killed each second and a database that restarts and crashes, jobs run after their children, and no more at once than groups and limits allow',
  async () => {
    await using server = await startPostgres()
    await using scene = new JobsScene(server)
    const jobs = await openAttacked(scene)
    const start = (skewMs: number) => startProcess(scene, { skewMs, ttl: '2s' })
    const skews = [0, HOUR_MS, -HOUR_MS]
    const processes = await Promise.all(skews.map(start))
    let isOver = false
    let families = FAMILIES_AT_ONCE
    const enqueuing = (async () => {
      while (!isOver) {
        // While the database is away. What may have been enqueued is enqueued once more, and counts as another family.
        await enqueueSeed(jobs, families).catch(() => {})
        families += 1
        await pause(60)
      }
    })()
    // A kill shows nothing if the process had no job at that moment.
    for (let kills = 0; kills < KILLS || ((await takenOver(scene)) === 0 && kills < 10 * KILLS); kills += 1) {
      const second = pause(1000)
      const victim = processes.shift()
      if (victim === undefined) throw new Error('There is nobody to kill')
      const ended = once(victim, 'exit')
      victim.kill('SIGKILL')
      await ended
      if (kills % 12 === 3) await server.kill()
      if (kills % 6 === 1 || kills % 12 === 3) await server.restart()
      processes.push(await start(skews[kills % 3] ?? 0))
      await second
    }
    isOver = true
    await enqueuing
    await runUntilAllWereFull(scene, jobs)
    expect(await Promise.all(processes.map(stopProcess))).toEqual(skews.map(() => []))
    await expectAllKept(scene, jobs)
    expect(await takenOver(scene)).toBeGreaterThan(0)
    if (KILLS > 4) {
      const [seen] = await scene.sql(`
      select (select count(*)::int from $schema.ended_jobs) as jobs, (select count(*)::int from $schema.leases) as attempts`)
      console.log({ kills: KILLS, ...seen, takenOver: await takenOver(scene) })
    }
  },
  60_000 + KILLS * 30_000,
)

test('workers whose wall clocks are an hour off enqueue and run them as any others, and lose no lease', async () => {
  await using scene = await openScene()
  const jobs = await openAttacked(scene)
  const processes = await Promise.all(
    [HOUR_MS, -HOUR_MS].map((skewMs) => startProcess(scene, { skewMs, ttl: '10m' })),
  )
  await runUntilAllWereFull(scene, jobs)
  expect(await Promise.all(processes.map(stopProcess))).toEqual([[], []])
  await expectAllKept(scene, jobs)
  const again = await scene.sql(`select distinct name, attempt from $schema.ended_jobs where attempt > 1`)
  expect(again).toEqual([{ name: 'flaky', attempt: 2 }])
  const [far] = await scene.sql(`
    select count(*)::int as far from $schema.ended_jobs where ended_at - enqueued_at not between interval '0' and interval '30 min'`)
  expect(far).toEqual({ far: 0 })
})
