import { describe, expect, test } from 'vitest'
import type { ScheduledJobOptions } from '../../src/schedule/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { outcomeOf } from '../engine/scene.ts'
import { type Member, Stage } from './stage.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

/** Starts a process of that name with one job, at 3:00 each day or as given. Its work takes an hour, or as given. */
function starts(
  stage: Stage,
  name: string,
  options: ScheduledJobOptions & { expression?: string; forMs?: number; aheadMs?: number } = {},
): Member {
  const { expression = '0 3 * * *', forMs = HOUR_MS, aheadMs = 0, ...job } = options
  const member = stage.member(name, { aheadMs })
  member.schedule.add('job', expression, job, stage.work(member, forMs))
  member.schedule.start()
  return member
}

const runs = (stage: Stage) => stage.record.map((line) => line.replace(/ .*T(\d\d:\d\d).*/, ' $1'))

/** The state of the job, for all processes. */
async function statusOf(stage: Stage, member: Member) {
  return stage.clock.until(member.schedule.jobs[0]?.status() ?? Promise.reject(new Error('no job')))
}

describe('a run that breaks off is taken over by a process that was not there when it began', () => {
  test.each([
    { end: 'stopped', options: {} },
    { end: 'killed', options: {} },
    { end: 'stopped', options: { missed: 'once', catchUp: '10m' } },
    { end: 'killed', options: { missed: 'all', catchUp: '10m' } },
  ] as const)(
    'in a rolling deploy, when the old processes are $end ($options.missed)',
    async ({ end, options }) => {
      const stage = new Stage('2027-01-15T02:59:00Z')
      const old = [starts(stage, 'old', options), starts(stage, 'old', { ...options, aheadMs: -100 })]
      await stage.clock.advance(30 * MINUTE_MS)
      const [young] = [starts(stage, 'new', options), starts(stage, 'new', options)]
      await stage.clock.advance(MINUTE_MS)
      for (const member of old.reverse()) {
        if (end === 'killed') await stage.kill(member)
        else await stage.clock.until(member.schedule.stop({ grace: 0 }))
      }
      await stage.clock.advance(2 * HOUR_MS)
      expect(runs(stage)).toEqual(['old 03:00', 'new 03:00'])
      expect((await statusOf(stage, young)).last).toMatchObject({ result: 'ok' })
    },
  )

  test('after a restart of the only process', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const first = starts(stage, 'first')
    await stage.clock.advance(30 * MINUTE_MS)
    await stage.kill(first)
    await stage.clock.advance(HOUR_MS)
    starts(stage, 'second')
    await stage.clock.advance(MINUTE_MS)
    expect(runs(stage)).toEqual(['first 03:00', 'second 03:00'])
  })

  test('when that process was without its store at the tick', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const runner = starts(stage, 'runner')
    const late = starts(stage, 'late')
    late.store.always('fail')
    await stage.clock.advance(5 * MINUTE_MS)
    late.store.always('answer')
    await stage.clock.advance(MINUTE_MS)
    await stage.kill(runner)
    await stage.clock.advance(MINUTE_MS)
    expect(runs(stage)).toEqual(['runner 03:00', 'late 03:00'])
  })

  test('although other ticks have come during the run', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const job = { expression: '*/10 * * * *' }
    const old = starts(stage, 'old', job)
    await stage.clock.advance(37 * MINUTE_MS)
    starts(stage, 'new', { ...job, aheadMs: -3000 })
    await stage.clock.advance(1000)
    await stage.kill(old)
    await stage.clock.advance(MINUTE_MS)
    expect(runs(stage)).toEqual(['old 03:00', 'new 03:00'])
  })

  test('and then the last tick that waited for it runs, with `overlap: queue`', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const job = { expression: '*/10 * * * *', overlap: 'queue' } as const
    const old = starts(stage, 'old', job)
    await stage.clock.advance(36 * MINUTE_MS)
    starts(stage, 'new', { ...job, forMs: 1000 })
    await stage.kill(old)
    await stage.clock.advance(2 * MINUTE_MS)
    expect(runs(stage)).toEqual(['old 03:00', 'new 03:00', 'new 03:30'])
  })

  test('but not once the third process has died of it', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    for (const name of ['a', 'b', 'c', 'd']) {
      const member = starts(stage, name)
      await stage.clock.advance(10 * MINUTE_MS)
      await stage.kill(member)
    }
    const survivor = starts(stage, 'e')
    await stage.clock.advance(10 * MINUTE_MS)
    expect(runs(stage)).toEqual(['a 03:00', 'b 03:00', 'c 03:00'])
    expect((await statusOf(stage, survivor)).last).toMatchObject({ result: 'failed' })
  })

  test('but has failed with `afterCrash: skip`', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const first = starts(stage, 'first', { afterCrash: 'skip' })
    await stage.clock.advance(30 * MINUTE_MS)
    await stage.kill(first)
    const second = starts(stage, 'second', { afterCrash: 'skip' })
    await stage.clock.advance(10 * MINUTE_MS)
    expect(runs(stage)).toEqual(['first 03:00'])
    expect(second.errors).toMatchObject([{ code: 'task-failed' }])
    expect((await statusOf(stage, second)).last).toMatchObject({ result: 'failed' })
  })

  test('but not if it broke off before, and another tick has come since', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const first = starts(stage, 'first')
    await stage.clock.advance(30 * MINUTE_MS)
    await stage.kill(first)
    await stage.clock.advance(24 * HOUR_MS)
    starts(stage, 'second')
    await stage.clock.advance(HOUR_MS)
    expect(runs(stage)).toEqual(['first 03:00'])
  })
})

describe('a process that starts', () => {
  test('runs no tick that nobody has begun, and none that has run', async () => {
    const stage = new Stage('2027-01-15T03:05:00Z')
    const first = starts(stage, 'first')
    await stage.clock.advance(24 * HOUR_MS + MINUTE_MS)
    starts(stage, 'second')
    await stage.clock.advance(HOUR_MS)
    starts(stage, 'third')
    await stage.clock.advance(HOUR_MS)
    expect(runs(stage)).toEqual(['first 03:00'])
    expect(first.finished).toMatchObject([{ result: 'ok' }])
  })

  test('sends one request if the last tick is settled, and three if the store does not know of it', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const first = starts(stage, 'first', { forMs: 1000 })
    await stage.clock.advance(30_000)
    expect(first.store.sent).toHaveLength(3)
    await stage.clock.advance(5 * MINUTE_MS)
    const second = starts(stage, 'second')
    await stage.clock.advance(5 * MINUTE_MS)
    expect(second.store.sent).toHaveLength(1)
  })

  test('is stopped at once though its store does not answer', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.store.always('lose request')
    a.schedule.add('job', '* * * * *', stage.work(a))
    a.schedule.start()
    await settled()
    const stopping = a.schedule.stop()
    await settled()
    expect(await outcomeOf(stopping)).toEqual({ value: undefined })
  })
})

describe('when a process is stopped, and its run ends within the grace,', () => {
  async function deploy(options: Parameters<typeof starts>[2]): Promise<Stage> {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const [old] = [starts(stage, 'old', options), starts(stage, 'new', options)]
    await stage.clock.advance(5 * MINUTE_MS)
    await stage.clock.until(old.schedule.stop({ grace: '1h' }))
    await stage.clock.advance(5 * MINUTE_MS)
    return stage
  }

  test('the last tick that waited for it runs in another process, with `overlap: queue`', async () => {
    const stage = await deploy({ expression: '*/10 * * * *', overlap: 'queue', forMs: 34 * MINUTE_MS })
    expect(runs(stage)).toEqual(['old 03:00', 'new 03:30'])
  })

  test('no other process runs a tick that came meanwhile, with `overlap: skip`', async () => {
    const stage = await deploy({ expression: '*/10 * * * *', forMs: 30 * MINUTE_MS + 10_000 })
    expect(runs(stage)).toEqual(['old 03:00'])
  })

  test.each(['skip', 'queue'] as const)('the job stays taken for its `minHold` (%s)', async (overlap) => {
    const stage = await deploy({
      ...{ expression: '*/10 * * * *', minHold: '25m', overlap, forMs: 5 * MINUTE_MS },
    })
    expect(runs(stage)).toEqual(['old 03:00'])
    await stage.clock.advance(14 * MINUTE_MS)
    expect(runs(stage)).toEqual(['old 03:00'])
    await stage.clock.advance(7 * MINUTE_MS)
    expect(runs(stage)).toEqual(['old 03:00', overlap === 'skip' ? 'new 03:30' : 'new 03:20'])
  })

  test.each([
    { minHold: '25m', ran: ['old 03:00', 'new 03:30'] },
    { minHold: '16m', ran: ['old 03:00', 'new 03:20', 'new 03:30'] },
  ])(
    'a process that starts after the stop, in its `minHold` ($minHold), runs the next tick after that',
    async ({ minHold, ran }) => {
      const stage = new Stage('2027-01-15T02:59:00Z')
      const options = { expression: '*/10 * * * *', minHold, overlap: 'queue', forMs: 5 * MINUTE_MS } as const
      const old = starts(stage, 'old', options)
      await stage.clock.advance(5 * MINUTE_MS)
      await stage.clock.until(old.schedule.stop({ grace: '1h' }))
      await stage.clock.advance(MINUTE_MS)
      starts(stage, 'new', options)
      await stage.clock.advance(41 * MINUTE_MS)
      expect(runs(stage)).toEqual(ran)
    },
  )

  test.each([
    { grace: '10s', isFree: true },
    { grace: 100, isFree: false },
  ])('the last moment of a `minHold` is awaited within the grace ($grace)', async ({ grace, isFree }) => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const old = starts(stage, 'old', { minHold: '3m', ttl: '5m', forMs: 1000 })
    await stage.clock.advance(4 * MINUTE_MS - 200)
    const since = stage.clock.wallMs()
    await stage.clock.until(old.schedule.stop({ grace }))
    expect(stage.clock.wallMs() - since).toBeLessThan(250)
    expect((await stage.clock.until(old.locks.peek('schedule:job'))) === null).toBe(isFree)
  })
})
