import { afterAll, beforeAll, expect, test } from 'vitest'
import type { LeftOutTicks, ScheduleFire } from '../../../src/jobs/schedules/index.ts'
import { until } from '../../servers/until.ts'
import { closeSharedServer, sharedServer } from '../scene.ts'
import { letPass, openSchedules } from './scene.ts'

beforeAll(sharedServer)
afterAll(closeSharedServer)

const HOUR_MS = 3_600_000

test('the next runs of times that are not stored, and of a schedule, by the clock of the database', async () => {
  await using at = await openSchedules()
  const { schedules } = at
  const startAt = new Date('2099-03-29T00:00:00Z')
  const texts = async (...asked: Parameters<typeof schedules.nextRuns>): Promise<string[]> =>
    (await schedules.nextRuns(...asked)).map((tick) => tick.toISOString())
  expect(await texts({ cron: '30 2 * * *', timezone: 'Europe/Berlin', startAt }, 2)).toEqual([
    '2099-03-29T01:00:00.000Z',
    '2099-03-30T00:30:00.000Z',
  ])
  const stopAt = new Date(startAt.getTime() + 2 * HOUR_MS)
  const few = ['2099-03-29T00:00:00.000Z', '2099-03-29T01:00:00.000Z']
  expect(await texts({ every: '1h', startAt, stopAt }, 10)).toEqual(few)

  await schedules.add('a', { job: 'j', every: '1h', startAt, stopAt })
  expect(await texts('a', 10)).toEqual(few)
  await schedules.change('a', { maxRuns: 1, stopAt: null })
  expect(await texts('a', 10)).toEqual(few.slice(0, 1))
  await schedules.pause('a')
  expect(await texts('a', 10)).toEqual([])
  await schedules.add('b', { job: 'j', afterEnd: '1h', startAt })
  expect(await texts('b', 10)).toEqual(few.slice(0, 1))
})

test('a schedule fires so long after the end of its last job, and is over after `maxRuns`', async () => {
  const fires: ScheduleFire[] = []
  await using at = await openSchedules({ onFire: (fire) => fires.push(fire) })
  const { schedules, scene } = at
  const ends: (() => void)[] = []
  const worker = at.jobs.work({ j: () => new Promise<void>((resolve) => ends.push(resolve)) })
  await schedules.add('a', { job: 'j', afterEnd: '1s', maxRuns: 2 })
  schedules.start()
  await until('it has fired', () => fires.length === 1)
  // Longer than its distance: it waits for the end.
  const version = async () =>
    Number((await scene.sql('select version from $schema.job_schedules'))[0]?.['version'])
  const fired = await version()
  await until('it has looked for the end', async () => (await version()) > fired + 1)
  expect(fires).toHaveLength(1)
  expect(await schedules.find('a')).toMatchObject({ nextAt: null, last: { outcome: 'running' } })
  await until('the first one works', () => ends.length === 1)
  ends[0]?.()
  await until('it has fired again', () => fires.length === 2)
  const first = await at.jobs.find(fires[0]?.jobId ?? '')
  expect(fires[1]?.scheduledAt.getTime()).toBe((first?.endedAt?.getTime() ?? 0) + 1000)
  await until('the second one works', () => ends.length === 2)
  ends[1]?.()
  await until(
    'the second one is over',
    async () => (await schedules.find('a'))?.last?.outcome === 'completed',
  )
  await worker.stop()
  expect(await schedules.find('a')).toMatchObject({ state: 'over', runs: 2, nextAt: null })

  await schedules.change('a', { maxRuns: 3 })
  expect(await schedules.find('a')).toMatchObject({ state: 'active', nextAt: expect.any(Date) })
})

test('ticks that were missed or that overlap are told of and counted', async () => {
  const leftOut: LeftOutTicks[] = []
  await using at = await openSchedules({ onLeftOut: (ticks) => leftOut.push(ticks) })
  const { schedules, scene } = at
  await schedules.add('a', { job: 'j', every: '1h', tenant: 't' })
  await letPass(scene, 3 * 3600 + 60)
  const before = await schedules.find('a')
  schedules.start()
  await until('the missed ones were told of', () => leftOut.length === 1)
  const firstAt = before?.nextAt as Date
  expect(leftOut).toEqual([
    {
      ...{ id: 'a', tenant: 't', job: 'j', reason: 'missed', count: 2 },
      firstAt,
      lastAt: new Date(firstAt.getTime() + HOUR_MS),
      isAtLeast: false,
    },
  ])
  // Nobody works, so the job of the third one waits.
  await scene.sql(
    `update $schema.job_schedules set due_at = tick_at - interval '1 h', tick_at = tick_at - interval '1 h'`,
  )
  await letPass(scene, 0)
  await schedules.change('a', { payload: { n: 1 } })
  await until('the overlapping one was told of', () => leftOut.length === 2)
  expect(leftOut[1]).toMatchObject({ reason: 'overlapped', count: 1 })
  expect(await schedules.find('a')).toMatchObject({ runs: 1, missedTicks: 2, overlappedTicks: 1 })
})

test('a tick whose jitter is taken away while it waits fires at once, and is not missed', async () => {
  const fires: ScheduleFire[] = []
  await using at = await openSchedules({ onFire: (fire) => fires.push(fire) })
  const { schedules, scene } = at
  await schedules.add('a', { job: 'j', every: '1h', jitter: '1h', missed: 'skip' })
  await scene.sql(`update $schema.job_schedules set due_at = clock_timestamp() + interval '10 min',
    tick_at = tick_at - interval '70 min', anchor_at = anchor_at - interval '70 min'`)
  const tick = (await schedules.nextRuns('a', 1)).map((at) => at.getTime() - HOUR_MS)
  await schedules.change('a', { jitter: 0 })
  schedules.start()
  await until('it has fired', () => fires.length === 1)
  expect(fires.map(({ scheduledAt }) => scheduledAt.getTime())).toEqual(tick)
  expect(await schedules.find('a')).toMatchObject({ runs: 1, missedTicks: 0 })
})

test('100 schedules of one moment are enqueued at different moments of their jitter', async () => {
  await using at = await openSchedules()
  const { schedules, scene } = at
  const startAt = new Date(Date.now() + HOUR_MS)
  for (let n = 0; n < 100; n += 1)
    await schedules.add(`s${n}`, { job: 'j', every: '24h', startAt, jitter: '30m' })
  const [row] = await scene.sql(`
    select count(distinct due_at)::int as moments, count(distinct tick_at)::int as ticks,
      extract(epoch from max(due_at) - min(due_at))::int as spread from $schema.job_schedules`)
  expect(row).toMatchObject({ ticks: 1 })
  expect(row?.['moments']).toBeGreaterThan(95)
  expect(row?.['spread']).toBeGreaterThan(1200)
})
