import { describe, expect, test } from 'vitest'
import type { ScheduledJobOptions } from '../../src/schedule/index.ts'
import { type Member, Stage } from './stage.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** Starts a process of that name with one job, every 10 minutes or as given. Its work takes no time. */
function starts(
  stage: Stage,
  name: string,
  options: ScheduledJobOptions,
  expression = '*/10 * * * *',
): Member {
  const member = stage.member(name)
  member.schedule.add('job', expression, options, stage.work(member))
  member.schedule.start()
  return member
}

async function stops(stage: Stage, member: Member): Promise<void> {
  await stage.clock.until(member.schedule.stop())
}

/** Runs a process for 20 minutes, none for an hour and a few minutes, and the next one for 25 minutes. */
async function outage(options: ScheduledJobOptions): Promise<Stage> {
  const stage = new Stage('2027-01-15T08:00:30Z')
  const first = starts(stage, 'first', options)
  await stage.clock.advance(20 * MINUTE_MS)
  await stops(stage, first)
  await stage.clock.advance(65 * MINUTE_MS)
  starts(stage, 'second', options)
  await stage.clock.advance(25 * MINUTE_MS)
  return stage
}

const minutes = (stage: Stage) => stage.record.map((line) => line.replace(/ .*T(\d\d:\d\d).*/, ' $1'))

describe('ticks at which no process ran', () => {
  test('are skipped by default', async () => {
    expect(minutes(await outage({}))).toEqual([
      'first 08:10',
      'first 08:20',
      'second 09:30',
      'second 09:40',
      'second 09:50',
    ])
  })

  test('are made up for by one run for the last of them', async () => {
    expect(minutes(await outage({ missed: 'once' }))).toEqual([
      'first 08:10',
      'first 08:20',
      'second 09:20',
      'second 09:30',
      'second 09:40',
      'second 09:50',
    ])
  })

  test('are made up for one by one, in order, as far back as `catchUp`', async () => {
    expect(minutes(await outage({ missed: 'all', catchUp: '30m' }))).toEqual([
      'first 08:10',
      'first 08:20',
      'second 09:00',
      'second 09:10',
      'second 09:20',
      'second 09:30',
      'second 09:40',
      'second 09:50',
    ])
  })

  test('are not made up for when the last of them is older than `catchUp`', async () => {
    expect(minutes(await outage({ missed: 'once', catchUp: '3m' }))).not.toContain('second 09:20')
  })

  test.each(['once', 'all'] as const)(
    'do not include one that a process is less than 30 s late for, whatever `catchUp` says (%s)',
    async (missed) => {
      const stage = new Stage('2027-01-15T08:09:50Z')
      starts(stage, 'a', { missed, catchUp: 0 })
      await stage.clock.advance(5000)
      stage.clock.block(25_000)
      await stage.clock.advance(1000)
      expect(minutes(stage)).toEqual(['a 08:10'])
    },
  )

  test('are made up for once, even if several processes start together', async () => {
    const stage = new Stage('2027-01-15T08:00:30Z')
    const first = starts(stage, 'first', { missed: 'all' })
    await stage.clock.advance(1000)
    await stops(stage, first)
    await stage.clock.advance(35 * MINUTE_MS)
    for (const name of ['a', 'b', 'c']) starts(stage, name, { missed: 'all' })
    await stage.clock.advance(10 * MINUTE_MS)
    expect(stage.ticks.map((tick) => tick.slice(11, 16))).toEqual(['08:10', '08:20', '08:30', '08:40'])
  })

  test('are those of the present expression: a new expression has missed nothing', async () => {
    const stage = new Stage('2027-01-15T08:00:30Z')
    const old = starts(stage, 'old', { missed: 'all' })
    await stage.clock.advance(10 * MINUTE_MS)
    await stops(stage, old)
    await stage.clock.advance(30 * MINUTE_MS)
    starts(stage, 'new', { missed: 'all' }, '5-55/10 * * * *')
    await stage.clock.advance(10 * MINUTE_MS)
    expect(minutes(stage)).toEqual(['old 08:10', 'new 08:45'])
  })

  test('include one whose process was stopped in the middle of it', async () => {
    const stage = new Stage('2027-01-15T08:00:30Z')
    const first = stage.member('first')
    first.schedule.add('job', '*/10 * * * *', { missed: 'once' }, stage.work(first, HOUR_MS))
    first.schedule.start()
    await stage.clock.advance(10 * MINUTE_MS)
    await stops(stage, first)
    expect(first.finished).toMatchObject([{ result: 'interrupted' }])
    await stage.clock.advance(MINUTE_MS)
    starts(stage, 'second', { missed: 'once' })
    await stage.clock.advance(MINUTE_MS)
    expect(minutes(stage)).toEqual(['first 08:10', 'second 08:10'])
  })
})

describe('a job that is new', () => {
  test.each(['once', 'all'] as const)('has missed nothing (%s)', async (missed) => {
    const stage = new Stage('2027-01-15T08:09:30Z')
    starts(stage, 'a', { missed, catchUp: '24h' })
    await stage.clock.advance(15_000)
    starts(stage, 'b', { missed, catchUp: '24h' })
    await stage.clock.advance(20_000)
    expect(stage.ticks).toEqual(['2027-01-15T08:10:00.000Z'])
  })

  test('is known for as long as a process is there, and for 24 days more', async () => {
    const stage = new Stage('2027-01-15T08:09:30Z')
    const job: [ScheduledJobOptions, string] = [{ missed: 'once', catchUp: '20h' }, '0 12 1 * *']
    const first = starts(stage, 'first', ...job)
    // The process's machine sleeps most of the time, because this test is about marks and not about waiting.
    for (const day of ['2027-02-01', '2027-02-08']) {
      stage.clock.suspend(Date.parse(`${day}T11:00:00Z`) - stage.clock.wallMs())
      await stage.clock.advance(2 * HOUR_MS)
    }
    expect(stage.ticks).toEqual(['2027-02-01T12:00:00.000Z'])
    await stops(stage, first)
    stage.clock.suspend(Date.parse('2027-03-02T06:00:00Z') - stage.clock.wallMs())
    const next = starts(stage, 'next', ...job)
    await stage.clock.advance(MINUTE_MS)
    expect(stage.ticks.slice(1)).toEqual(['2027-03-01T12:00:00.000Z'])
    await stops(stage, next)
    stage.clock.suspend(31 * DAY_MS)
    starts(stage, 'last', ...job)
    await stage.clock.advance(MINUTE_MS)
    expect(stage.ticks).toHaveLength(2)
  })
})

describe('a machine that was suspended', () => {
  test.each([
    { missed: 'skip', expected: ['08:10', '09:40'] },
    { missed: 'once', expected: ['08:10', '09:30', '09:40'] },
    { missed: 'all', expected: ['08:10', '08:50', '09:00', '09:10', '09:20', '09:30', '09:40'] },
  ] as const)(
    'treats the ticks that it slept through as missed ($missed)',
    async ({ missed, expected: ticks }) => {
      const stage = new Stage('2027-01-15T08:00:30Z')
      starts(stage, 'a', { missed, ...(missed === 'skip' ? {} : { catchUp: '50m' }) })
      await stage.clock.advance(10 * MINUTE_MS)
      stage.clock.suspend(85 * MINUTE_MS)
      await stage.clock.advance(5 * MINUTE_MS)
      expect(stage.ticks.map((tick) => tick.slice(11, 16))).toEqual(ticks)
    },
  )

  test('does so also when its clock is set forward', async () => {
    const stage = new Stage('2027-01-15T08:00:30Z')
    const a = starts(stage, 'a', { missed: 'all' })
    await stage.clock.advance(10 * MINUTE_MS)
    a.setClock(30 * MINUTE_MS)
    await stage.clock.advance(MINUTE_MS)
    expect(stage.ticks.map((tick) => tick.slice(11, 16))).toEqual(['08:10', '08:20', '08:30', '08:40'])
  })
})
