import { afterAll, beforeAll, expect, test } from 'vitest'
import type { ScheduleFire } from '../../../src/jobs/schedules/index.ts'
import { until } from '../../servers/until.ts'
import { closeSharedServer, sharedServer } from '../scene.ts'
import { letPass, openSchedules } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

test('a tick becomes one job, with the payload of the schedule and the tick', async () => {
  const fires: ScheduleFire[] = []
  await using at = await openSchedules({ onFire: (fire) => fires.push(fire) })
  const { schedules, jobs } = at
  const payload = { customer: 'acme', text: 'a\u0000b "quoted"', deep: { list: [1, null] } }
  await schedules.add('report', {
    ...{ job: 'make-report', payload, tenant: 'acme', every: '1h', overlap: 'allow' },
    ...{ priority: 7, group: 'reports', maxAttempts: 3 },
  })
  await letPass(at.scene, 3600)
  schedules.start()
  await until('it has fired', () => fires.length === 1)
  const [fire] = fires
  const job = await jobs.find(fire?.jobId ?? '')
  expect(job).toMatchObject({
    ...{ name: 'make-report', state: 'ready', priority: 7, group: 'reports', maxAttempts: 3 },
    payload: {
      ...payload,
      schedule: { id: 'report', tenant: 'acme', scheduledAt: fire?.scheduledAt.toISOString() },
    },
  })
  const stored = await schedules.find('report')
  expect(stored).toMatchObject({
    ...{ id: 'report', tenant: 'acme', job: 'make-report', payload, state: 'active', everyMs: 3_600_000 },
    ...{ runs: 1, missedTicks: 0, overlappedTicks: 0 },
    last: { jobId: fire?.jobId, scheduledAt: fire?.scheduledAt, outcome: 'ready', endedAt: null },
  })
  expect(stored?.nextAt?.getTime()).toBe((fire?.scheduledAt.getTime() ?? 0) + 3_600_000)
})

test('a start right after a stop, which still waits for its round, fires again', async () => {
  const fires: ScheduleFire[] = []
  await using at = await openSchedules({ onFire: (fire) => fires.push(fire) })
  const { schedules } = at
  schedules.start()
  const stopped = schedules.stop()
  schedules.start()
  await stopped
  await schedules.add('a', { job: 'j', every: '1s' })
  await until('it has fired', () => fires.length === 1)
  await Promise.all([schedules.stop(), schedules.stop()])
})

test('a schedule that fires each second makes a job for each of its ticks, a second apart', async () => {
  const fires: ScheduleFire[] = []
  await using at = await openSchedules({ onFire: (fire) => fires.push(fire) })
  at.schedules.start()
  await at.schedules.add('often', { job: 'tick', every: '1s', overlap: 'allow' })
  await until('it has fired three times', () => fires.length >= 3)
  const ticks = fires.map(({ scheduledAt }) => scheduledAt.getTime())
  expect(ticks.slice(1).map((tick, before) => tick - (ticks[before] ?? 0))).toEqual(
    ticks.slice(1).map(() => 1000),
  )
})

test('a schedule is added, changed, paused, resumed and removed in a transaction, and only if that commits', async () => {
  await using at = await openSchedules()
  const { schedules, scene } = at
  const client = await scene.connect()
  const inTransaction = { transaction: client }
  await client.query('begin')
  expect(await schedules.add('a', { job: 'j', every: '1h' }, inTransaction)).toBe(true)
  expect(await schedules.change('a', { every: '2h' }, inTransaction)).toBe(true)
  expect(await schedules.pause('a', inTransaction)).toEqual(['a'])
  expect(await schedules.find('a')).toBeNull()
  await client.query('rollback')
  expect(await schedules.find('a')).toBeNull()

  await client.query('begin')
  await schedules.put('a', { job: 'j', cron: '0 3 * * *', timezone: 'Europe/Berlin' }, inTransaction)
  await schedules.pause('a', inTransaction)
  await schedules.resume('a', inTransaction)
  expect(await schedules.run('a', inTransaction)).not.toBeNull()
  await client.query('commit')
  expect(await schedules.find('a')).toMatchObject({ state: 'active', timezone: 'Europe/Berlin', payload: {} })
  expect(await at.jobs.count()).toMatchObject([{ name: 'j', count: 1 }])

  await client.query('begin')
  expect(await schedules.remove('a', inTransaction)).toEqual(['a'])
  await client.query('rollback')
  expect(await schedules.find('a')).not.toBeNull()
  await expect(schedules.remove('a', inTransaction)).rejects.toMatchObject({
    code: 'invalid-argument',
    message: expect.stringContaining('`transaction`'),
  })
})

test('a transaction that stays open keeps only its own schedules from firing', async () => {
  const fires: string[] = []
  await using at = await openSchedules({ onFire: ({ id }) => fires.push(id) })
  const { schedules, scene } = at
  for (const id of ['held', 'free']) await schedules.add(id, { job: 'j', every: '1h' })
  await letPass(scene, 3600)
  const client = await scene.connect()
  await client.query('begin')
  await schedules.change('held', { payload: { n: 2 } }, { transaction: client })
  schedules.start()
  await until('the free one has fired', () => fires.length === 1)
  await client.query('commit')
  await until('the other one has fired, too', () => fires.length === 2)
  expect(fires).toEqual(['free', 'held'])
})

test('add leaves a schedule alone that is there, put makes it as given, and the same again changes nothing', async () => {
  await using at = await openSchedules()
  const { schedules } = at
  const first = { job: 'j', payload: { n: 1 }, every: '1h', tenant: 't' } as const
  expect(await schedules.add('a', first)).toBe(true)
  expect(await schedules.add('a', { ...first, every: '2h' })).toBe(false)
  const before = await schedules.find('a')
  expect(before).toMatchObject({ everyMs: 3_600_000 })
  await schedules.put('a', first)
  expect(await schedules.find('a')).toEqual(before)

  await schedules.put('a', { ...first, payload: { n: 2 }, priority: 3 })
  const same = await schedules.find('a')
  expect(same).toMatchObject({ nextAt: before?.nextAt, payload: { n: 2 }, jobOptions: { priority: 3 } })

  await schedules.put('a', { job: 'j', cron: '0 3 * * *' })
  expect(await schedules.find('a')).toMatchObject({
    ...{ tenant: null, cron: '0 3 * * *', timezone: 'UTC', everyMs: null, jobOptions: {}, payload: {} },
  })
})

test('a change touches only what it names, and null takes a setting away', async () => {
  await using at = await openSchedules()
  const { schedules } = at
  await schedules.add('a', {
    ...{ job: 'j', payload: { n: 1 }, cron: '0 3 * * *', timezone: 'Asia/Tokyo', tenant: 't', maxRuns: 5 },
    ...{ jitter: '5m', missed: 'all', catchUp: '6h', group: 'g' },
  })
  expect(await schedules.change('a', { timezone: 'Europe/Berlin', maxRuns: null, group: null })).toBe(true)
  expect(await schedules.find('a')).toMatchObject({
    ...{ cron: '0 3 * * *', timezone: 'Europe/Berlin', maxRuns: null, jobOptions: {}, tenant: 't' },
    ...{ missed: 'all', catchUpMs: 21_600_000, overlap: 'allow', jitterMs: 300_000, payload: { n: 1 } },
  })
  await schedules.change('a', { every: '90s', missed: 'skip', payload: { n: 2 }, job: 'k' })
  expect(await schedules.find('a')).toMatchObject({
    ...{ cron: null, timezone: null, everyMs: 90_000, missed: 'skip', catchUpMs: null, overlap: 'skip' },
    ...{ payload: { n: 2 }, job: 'k' },
  })
  await schedules.change('a', { afterEnd: '1m' })
  expect(await schedules.find('a')).toMatchObject({ everyMs: null, afterEndMs: 60_000 })
  expect(await schedules.change('nobody', { every: '1h' })).toBe(false)
})

test('a paused schedule does not fire, and goes on with its next tick from now', async () => {
  const fires: ScheduleFire[] = []
  await using at = await openSchedules({ onFire: (fire) => fires.push(fire) })
  const { schedules, scene } = at
  for (const [id, tenant] of [
    ['a', 't'],
    ['b', 't'],
    ['c', 'u'],
  ] as const)
    await schedules.add(id, { job: 'j', every: '1h', tenant })
  expect(await schedules.pause({ tenant: 't' })).toEqual(['a', 'b'])
  expect(await schedules.pause({ tenant: 't' })).toEqual([])
  expect(await schedules.find('a')).toMatchObject({ state: 'paused', nextAt: null })
  await scene.sql(`update $schema.job_schedules set anchor_at = anchor_at - interval '10 h'`)
  schedules.start()
  expect(await schedules.resume({ tenant: 't' })).toEqual(['a', 'b'])
  const resumed = await schedules.find('a')
  expect(resumed).toMatchObject({ state: 'active', missedTicks: 0 })
  expect(resumed?.nextAt?.getTime()).toBeGreaterThan(Date.now())
  expect(resumed?.nextAt?.getTime()).toBeLessThanOrEqual(Date.now() + 3_600_000)
  expect(await schedules.resume(['a', 'c'])).toEqual([])
  expect(fires).toEqual([])
})

test('a round that has read a schedule does not fire another one that is added under its id meanwhile', async () => {
  await using at = await openSchedules()
  const { schedules, scene, jobs } = at
  await schedules.add('a', { job: 'before', every: '1h' })
  await letPass(scene, 3600)
  const [read] = await scene.sql(`select due ->> 'version' as version, due ->> 'tickMs' as tick
    from json_array_elements($schema.jobs_due_schedules(200, 0, '{}') -> 'due') as due`)

  await schedules.remove('a')
  await schedules.add('a', { job: 'after', every: '1h' })
  await letPass(scene, 3600)
  const entry = {
    name: 'before',
    priority: 0,
    max_attempts: 1,
    backoff_ms: 0,
    max_backoff_ms: 0,
    group_limit: 1,
  }
  const fires = { version: Number(read?.['version']), fires: [Number(read?.['tick'])], entry }
  const advance = { id: 'a', ...fires, missed: 0, overlapped: 0, state: 'over' }
  const [answer] = await scene.sql(
    `select $schema.jobs_fire_schedules('${JSON.stringify([advance])}') as fired`,
  )
  expect(answer).toEqual({ fired: [] })
  expect(await schedules.find('a')).toMatchObject({ state: 'active', job: 'after', runs: 0 })
  expect(await jobs.count()).toEqual([])
})

test('schedules are listed in the order of their ids, by tenant, job and state, a page at a time', async () => {
  await using at = await openSchedules()
  const { schedules } = at
  for (let n = 1; n <= 5; n += 1)
    await schedules.add(`s${n}`, {
      job: n % 2 === 0 ? 'even' : 'odd',
      every: '1h',
      tenant: n < 4 ? 't' : 'u',
    })
  await schedules.pause('s2')
  const ids = async (options: Parameters<typeof schedules.list>[0]): Promise<string[]> =>
    (await schedules.list(options)).schedules.map(({ id }) => id)
  expect(await ids({ tenant: 't' })).toEqual(['s1', 's2', 's3'])
  expect(await ids({ tenant: 't', job: 'odd' })).toEqual(['s1', 's3'])
  expect(await ids({ state: 'paused' })).toEqual(['s2'])
  const first = await schedules.list({ limit: 3 })
  expect(first).toMatchObject({ next: 's3' })
  expect(await schedules.list({ limit: 3, after: first.next ?? '' })).toMatchObject({
    schedules: [{ id: 's4' }, { id: 's5' }],
    next: null,
  })
  expect(await schedules.remove({ tenant: ['t', 'u'], job: 'odd' })).toEqual(['s1', 's3', 's5'])
  expect(await ids({})).toEqual(['s2', 's4'])
})

test('a run by hand is a job at once, and replaces no tick', async () => {
  await using at = await openSchedules()
  const { schedules, jobs } = at
  await schedules.add('a', { job: 'j', payload: { n: 1 }, every: '1h', tenant: 't', priority: 2 })
  await schedules.pause('a')
  const id = await schedules.run('a')
  expect(await jobs.find(id ?? '')).toMatchObject({
    ...{ name: 'j', priority: 2, payload: { n: 1, schedule: { id: 'a', tenant: 't' } } },
  })
  expect(await schedules.find('a')).toMatchObject({ runs: 0, last: null, state: 'paused' })
  expect(await schedules.run('nobody')).toBeNull()
})

test('the end of the last job is kept, also after the job is deleted', async () => {
  await using at = await openSchedules()
  const { schedules, scene } = at
  const worker = at.jobs.work(
    {
      good: () => {},
      bad: () => {
        throw new Error('no')
      },
    },
    { onFailure: () => {} },
  )
  await schedules.add('good', { job: 'good', every: '1h' })
  await schedules.add('bad', { job: 'bad', every: '1h', maxAttempts: 1 })
  await letPass(scene, 3600)
  schedules.start()
  await until('both are over', async () => {
    const { schedules: all } = await schedules.list()
    return all.every(({ last }) => last !== null && last.endedAt !== null)
  })
  await worker.stop()
  await schedules.stop()
  // Another process looks, and records what it finds.
  schedules.start()
  await until('the outcomes are recorded', async () => {
    const rows = await scene.sql('select last_outcome from $schema.job_schedules order by id')
    return rows.every(({ last_outcome }) => last_outcome !== null)
  })
  await scene.sql('delete from $schema.ended_jobs')
  expect((await schedules.list()).schedules).toMatchObject([
    { id: 'bad', last: { outcome: 'dead', endedAt: expect.any(Date) } },
    { id: 'good', last: { outcome: 'completed', endedAt: expect.any(Date) } },
  ])
})
