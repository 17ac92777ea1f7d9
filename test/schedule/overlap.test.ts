import { describe, expect, onTestFinished, test } from 'vitest'
import { type ScheduledJobOptions, scheduleEvents } from '../../src/schedule/index.ts'
import { Stage } from './stage.ts'

const MINUTE_MS = 60_000

/** Plays three processes. The first three runs take two and a half minutes each, and later runs take no time. */
async function longRuns(options: ScheduledJobOptions, forMs: number): Promise<Stage> {
  const stage = new Stage()
  let most = 0
  let running = 0
  for (const [name, aheadMs] of Object.entries({ a: 0, b: 800, c: -1300 })) {
    const member = stage.member(name, { aheadMs })
    member.schedule.add('job', '* * * * *', options, async (run) => {
      running += 1
      most = Math.max(most, running)
      await stage.work(member, stage.record.length < 3 ? 2.5 * MINUTE_MS : 0)(run)
      running -= 1
    })
    member.schedule.start()
  }
  await stage.clock.advance(forMs)
  expect(most).toBe(1)
  return stage
}

const minutes = (stage: Stage) => stage.ticks.map((tick) => tick.slice(11, 16))

describe('ticks that come while a run is going on', () => {
  test('are left out by default, by all processes', async () => {
    const stage = await longRuns({}, 11.5 * MINUTE_MS)
    expect(minutes(stage)).toEqual(['08:01', '08:04', '08:07', '08:10', '08:11'])
  })

  test('are left out for good: a process that starts right after makes up for none', async () => {
    const stage = await longRuns({ missed: 'all' }, 3.5 * MINUTE_MS)
    const late = stage.member('late')
    late.schedule.add('job', '* * * * *', { missed: 'all' }, stage.work(late))
    late.schedule.start()
    await stage.clock.advance(10_000)
    expect(minutes(stage)).toEqual(['08:01'])
  })

  test('are not run by a process that starts meanwhile', async () => {
    const stage = await longRuns({}, 1.5 * MINUTE_MS)
    const late = stage.member('late', { aheadMs: 100 })
    late.schedule.add('job', '* * * * *', stage.work(late))
    late.schedule.start()
    await stage.clock.advance(2 * MINUTE_MS)
    expect(minutes(stage)).toEqual(['08:01'])
  })

  test('are run for the last of them, when the run is over, with `queue`', async () => {
    const stage = await longRuns({ overlap: 'queue' }, 11.5 * MINUTE_MS)
    expect(minutes(stage)).toEqual(['08:01', '08:03', '08:06', '08:08', '08:09', '08:10', '08:11'])
  })

  test('do not include those of an outage after the run, with `queue`', async () => {
    const stage = new Stage('2027-01-15T02:59:00Z')
    const members = ['a', 'b'].map((name) => {
      const member = stage.member(name)
      const options = { overlap: 'queue', minHold: '30m' } as const
      member.schedule.add('job', '0 * * * *', options, stage.work(member, MINUTE_MS))
      member.schedule.start()
      return member
    })
    await stage.clock.advance(11 * MINUTE_MS)
    for (const { store } of members) store.always('lose request')
    await stage.clock.advance(150 * MINUTE_MS)
    for (const { store } of members) store.always('answer')
    await stage.clock.advance(30 * MINUTE_MS)
    expect(minutes(stage)).toEqual(['03:00', '06:00'])
  })

  test('are run one by one with `queue` and `missed: all`', async () => {
    const stage = await longRuns({ overlap: 'queue', missed: 'all' }, 11.5 * MINUTE_MS)
    expect(stage.ticks).toHaveLength(11)
    expect(minutes(stage)).toEqual([...new Set(minutes(stage))].sort())
  })
})

test('work that never settles keeps the job to its process, which others can see, until that process is gone', async () => {
  const stage = new Stage()
  const [hung, other] = [stage.member('hung'), stage.member('other', { aheadMs: -500 })]
  const hang = async (run: Parameters<ReturnType<typeof stage.work>>[0]) => {
    await stage.work(hung)(run)
    await new Promise(() => {})
  }
  const job = other.schedule.add('job', '* * * * *', stage.work(other))
  hung.schedule.add('job', '* * * * *', hang)
  for (const { schedule } of [hung, other]) schedule.start()
  await stage.clock.advance(61 * MINUTE_MS)
  expect(stage.record).toEqual(['hung 2027-01-15T08:01:00.000Z'])
  const { running } = await stage.clock.until(job.status())
  expect(running?.startedAt.getTime()).toBeCloseTo(Date.parse('2027-01-15T08:01:00Z'), -4)
  await stage.kill(hung)
  await stage.clock.advance(2 * MINUTE_MS)
  expect(stage.record.at(-1)).toMatch(/^other /)
})

describe('`minHold`', () => {
  test('keeps the job taken when its work is done, and ticks that come meanwhile overlap with it', async () => {
    const stage = new Stage()
    for (const [name, aheadMs] of Object.entries({ a: 0, b: 800, c: -1300 })) {
      const member = stage.member(name, { aheadMs })
      member.schedule.add('job', '* * * * *', { minHold: '150s' }, stage.work(member, 1000))
      member.schedule.start()
    }
    await stage.clock.advance(9 * MINUTE_MS)
    expect(minutes(stage)).toEqual(['08:01', '08:04', '08:07'])
  })

  test('keeps a waiting run waiting', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const job = a.schedule.add('job', '* * * * *', { minHold: '25s' }, stage.work(a))
    a.schedule.start()
    await stage.clock.advance(51_000)
    const begunAt = stage.clock.wallMs()
    await stage.clock.until(job.runNow())
    expect(stage.clock.wallMs() - begunAt).toBeGreaterThanOrEqual(23_000)
    expect(minutes(stage)).toHaveLength(2)
  })
})

describe('`maxRun`', () => {
  test('ends a run that hangs: its signal aborts, it has failed, and the next tick runs', async () => {
    const stage = new Stage()
    const members = ['a', 'b'].map((name, at) => stage.member(name, { aheadMs: -500 * at }))
    const reasons: unknown[] = []
    for (const member of members) {
      const hang = async (run: Parameters<ReturnType<typeof stage.work>>[0]) => {
        await stage.work(member)(run)
        run.signal.addEventListener('abort', () => reasons.push(run.signal.reason))
        if (stage.record.length === 1) await new Promise(() => {})
      }
      member.schedule.add('job', '* * * * *', { maxRun: '20s', ttl: '10s' }, hang)
      member.schedule.start()
    }
    await stage.clock.advance(3 * MINUTE_MS)
    expect(reasons).toMatchObject([{ code: 'task-failed', message: expect.stringContaining('20000 ms') }])
    expect(members[0]?.errors).toEqual(reasons)
    // Each tick ran once: the end was not taken for a crash by either process.
    expect(minutes(stage)).toEqual(['08:01', '08:02', '08:03'])
    expect(await stage.clock.until(members[0]?.schedule.jobs[0]?.status() ?? Promise.reject())).toMatchObject(
      {
        last: { result: 'ok' },
      },
    )
  })

  test('leaves out the ticks that come until a run that hangs is given up, and they are not missed', async () => {
    const stage = new Stage('2027-01-15T08:00:00Z')
    const members = ['a', 'b'].map((name, at) => stage.member(name, { aheadMs: -500 * at }))
    const [overlapped, missed]: [string[], unknown[]] = [[], []]
    const stops = [
      scheduleEvents.on('overlapped', ({ scheduledAt }) => overlapped.push(scheduledAt.toISOString())),
      scheduleEvents.on('missed', (ticks) => missed.push(ticks)),
    ]
    onTestFinished(() => {
      for (const stop of stops) stop()
    })
    for (const member of members) {
      const hang = async (run: Parameters<ReturnType<typeof stage.work>>[0]) => {
        await stage.work(member)(run)
        if (stage.record.length === 1) await new Promise(() => {})
      }
      member.schedule.add('job', '*/10 * * * * *', { maxRun: '20s' }, hang)
      member.schedule.start()
    }
    // It begins at :00, and is given up at :25.
    await stage.clock.advance(3 * MINUTE_MS)
    expect(stage.ticks.slice(0, 3).map((tick) => tick.slice(17, 19))).toEqual(['00', '30', '40'])
    expect(overlapped.map((tick) => tick.slice(17, 19))).toEqual(['10', '20'])
    expect(missed).toEqual([])
  })

  test('lets work that listens end at once', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', { maxRun: '20s' }, stage.work(a, 10 * MINUTE_MS))
    a.schedule.start()
    await stage.clock.advance(50_000 + 20_000)
    expect(a.finished).toMatchObject([
      { result: 'failed', durationMs: 20_000, error: { code: 'task-failed' } },
    ])
  })

  test('changes nothing for work that ends in time', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const signals: AbortSignal[] = []
    a.schedule.add('job', '* * * * *', { maxRun: '20s' }, async (run) => {
      signals.push(run.signal)
      await stage.work(a, 15_000)(run)
    })
    a.schedule.start()
    await stage.clock.advance(130_000)
    expect(a.finished).toMatchObject([{ result: 'ok' }, { result: 'ok' }])
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, false])
  })
})
