import { describe, expect, test } from 'vitest'
import { delaysOf } from '../engine/fake-clock.ts'
import { errorOf } from '../engine/scene.ts'
import { Stage } from './stage.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000

describe('a fleet', () => {
  test('runs each tick once, whichever process is first', async () => {
    const stage = new Stage('2027-01-15T08:00:00Z')
    for (const name of ['a', 'b', 'c', 'd']) {
      const member = stage.member(name)
      member.schedule.add('job', '*/10 * * * * *', stage.work(member))
      member.schedule.start()
    }
    await stage.clock.advance(MINUTE_MS)
    expect(stage.ticks).toEqual([
      '2027-01-15T08:00:10.000Z',
      '2027-01-15T08:00:20.000Z',
      '2027-01-15T08:00:30.000Z',
      '2027-01-15T08:00:40.000Z',
      '2027-01-15T08:00:50.000Z',
      '2027-01-15T08:01:00.000Z',
    ])
  })

  test('does so though its clocks differ by minutes, and its work takes no time', async () => {
    const stage = new Stage('2027-01-15T08:00:30Z')
    const ahead = { a: 0, b: 4000, c: -7000, d: -140_000, e: 150_000 }
    for (const [name, aheadMs] of Object.entries(ahead)) {
      const member = stage.member(name, { aheadMs })
      member.schedule.add('job', '* * * * *', stage.work(member))
      member.schedule.start()
    }
    await stage.clock.advance(20 * MINUTE_MS)
    expect(stage.ticks.length).toBeGreaterThanOrEqual(20)
    expect(stage.ticks).toEqual([...new Set(stage.ticks)])
  })

  test('does so in any zone, and while some processes stop and others start', async () => {
    const stage = new Stage('2027-01-15T08:00:30Z')
    for (let number = 0; number < 20; number += 1) {
      const member = stage.member(`m${number}`, { timezone: 'Asia/Kolkata', aheadMs: (number % 5) * 700 })
      member.schedule.add('job', '* * * * *', stage.work(member, 900))
      member.schedule.start()
      await stage.clock.advance(40_000)
      if (number % 3 !== 0) await stage.clock.until(member.schedule.stop())
    }
    expect(stage.ticks).toHaveLength(13)
    expect(new Set(stage.ticks).size).toBe(13)
  })

  test('counts work that throws as a run: no other process tries the tick again', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const b = stage.member('b', { aheadMs: -2000 })
    const broken = new Error('not today')
    for (const member of [a, b]) {
      member.schedule.add('job', '* * * * *', async (run) => {
        await stage.work(member, 5000)(run)
        throw broken
      })
      member.schedule.start()
    }
    await stage.clock.advance(90_000)
    expect(stage.record).toEqual(['a 2027-01-15T08:01:00.000Z'])
    expect(a.errors).toEqual([broken])
    expect(b.errors).toEqual([])
  })

  test('with two expressions for one name, as in a rolling deploy, runs each instant of either once', async () => {
    const stage = new Stage('2027-01-15T08:00:05Z')
    const old = stage.member('old')
    old.schedule.add('job', '*/20 * * * * *', stage.work(old))
    const young = stage.member('young', { aheadMs: 1500 })
    young.schedule.add('job', '*/30 * * * * *', { missed: 'all' }, stage.work(young))
    for (const { schedule } of [old, young]) schedule.start()
    await stage.clock.advance(MINUTE_MS)
    expect(stage.ticks.map((tick) => tick.slice(14, 19))).toEqual(['00:20', '00:30', '00:40', '01:00'])
  })
})

test('a tick costs its runner nine requests and each later process one, and the time between ticks costs none', async () => {
  const stage = new Stage()
  const a = stage.member('a')
  const b = stage.member('b', { aheadMs: -5000 })
  for (const member of [a, b]) {
    member.schedule.add('job', '*/10 * * * *', stage.work(member))
    member.schedule.start()
  }
  await stage.clock.advance(15 * MINUTE_MS)
  const before = a.store.sent.length
  const otherBefore = b.store.sent.length
  await stage.clock.advance(10 * MINUTE_MS)
  expect(stage.record).toEqual(['a 2027-01-15T08:10:00.000Z', 'a 2027-01-15T08:20:00.000Z'])
  expect(a.store.sent.slice(before).map(({ verb }) => verb)).toHaveLength(9)
  expect(b.store.sent.slice(otherBefore)).toHaveLength(1)
})

describe('a process that dies in the middle of a run', () => {
  test('has its tick taken over when the ttl is over', async () => {
    const stage = new Stage()
    const a = stage.member('a', { aheadMs: 1000 })
    const b = stage.member('b')
    const attempts: number[] = []
    for (const member of [a, b]) {
      member.schedule.add('job', '0 * * * *', { ttl: '10s' }, (run) => {
        attempts.push(run.attempt)
        return stage.work(member, 45 * MINUTE_MS)(run)
      })
      member.schedule.start()
    }
    await stage.clock.advance(80 * MINUTE_MS)
    expect(stage.record).toEqual(['a 2027-01-15T09:00:00.000Z'])
    await stage.kill(a)
    await stage.clock.advance(15_000)
    expect(stage.record).toEqual(['a 2027-01-15T09:00:00.000Z', 'b 2027-01-15T09:00:00.000Z'])
    expect(attempts).toEqual([1, 2])
    expect(a.finished).toMatchObject([{ result: 'failed', error: { code: 'lease-lost' } }])
    await stage.clock.advance(46 * MINUTE_MS)
    expect(b.finished).toMatchObject([{ result: 'ok', durationMs: 45 * MINUTE_MS }])
  })

  test('has its tick left alone with `afterCrash: skip`, and the next tick runs', async () => {
    const stage = new Stage()
    const a = stage.member('a', { aheadMs: 1000 })
    const b = stage.member('b')
    for (const member of [a, b]) {
      member.schedule.add('job', '* * * * *', { ttl: '10s', afterCrash: 'skip' }, stage.work(member, 20_000))
      member.schedule.start()
    }
    await stage.clock.advance(52_000)
    await stage.kill(a)
    await stage.clock.advance(MINUTE_MS)
    expect(stage.record).toEqual(['a 2027-01-15T08:01:00.000Z', 'b 2027-01-15T08:02:00.000Z'])
    expect(b.errors).toMatchObject([
      { code: 'task-failed', message: expect.stringMatching(/^A run of "job" for 2027-01-15T08:01/) },
    ])
  })

  test('has its tick given up when it is the third process that dies of the tick', async () => {
    const stage = new Stage()
    const fleet = ['a', 'b', 'c', 'd', 'e'].map((name, at) => stage.member(name, { aheadMs: -10 * at }))
    for (const member of fleet) {
      member.schedule.add('job', '0 * * * *', { ttl: '10s' }, stage.work(member, 40 * MINUTE_MS))
      member.schedule.start()
    }
    await stage.clock.advance(HOUR_MS)
    for (let deaths = 1; deaths <= 3; deaths += 1) {
      const [name] = stage.record.at(-1)?.split(' ') ?? []
      await stage.kill(fleet.find((member) => member.name === name) ?? stage.member('nobody'))
      await stage.clock.advance(MINUTE_MS)
      expect(stage.record).toHaveLength(Math.min(deaths + 1, 3))
    }
    const survivors = fleet.filter(({ finished }) => finished.length === 0)
    expect(survivors.flatMap(({ errors }) => errors)).toMatchObject([
      { code: 'task-failed', message: expect.stringMatching(/^3 runs of "job"/) },
    ])
    const keys: string[] = []
    for await (const { key } of survivors[0]?.locks.inspect() ?? []) keys.push(key.slice(13))
    expect(keys).toEqual(['2027-01-15T09:00:00.000Z#done', '2027-01-15T09:00:00.000Z#failed'])
    await stage.clock.advance(HOUR_MS)
    expect(stage.ticks.at(-1)).toBe('2027-01-15T10:00:00.000Z')
  })

  test('leaves nothing behind once its tick was taken over', async () => {
    const stage = new Stage()
    const a = stage.member('a', { aheadMs: 1000 })
    const b = stage.member('b')
    for (const member of [a, b]) {
      member.schedule.add('job', '0 0 9 15 1 *', { ttl: '10s' }, stage.work(member, MINUTE_MS))
      member.schedule.start()
    }
    await stage.clock.advance(HOUR_MS)
    await stage.kill(a)
    await stage.clock.advance(5 * MINUTE_MS)
    expect(stage.record).toHaveLength(2)
    const keys: string[] = []
    for await (const { key } of b.locks.inspect({ prefix: 'schedule:' })) keys.push(key)
    expect(keys).toEqual(['schedule:job@2027-01-15T09:00:00.000Z#done'])
  })
})

describe('time that does not go as planned', () => {
  test('an event loop that is blocked across ticks runs the last one, and none twice', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '*/10 * * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(10_000)
    stage.clock.block(45_000)
    await stage.clock.advance(5000)
    expect(stage.ticks.map((tick) => tick.slice(17, 19))).toEqual(['20', '00', '10'])
  })

  test.each([
    { missed: 'skip', expected: ['10', '40', '50'] },
    { missed: 'once', expected: ['10', '40', '50'] },
    { missed: 'all', expected: ['10', '20', '30', '40', '50'] },
  ] as const)(
    'of several ticks that are less than 30 s late, the last one runs, or each one ($missed)',
    async ({ missed, expected: ticks }) => {
      const stage = new Stage('2027-01-15T08:00:05Z')
      const a = stage.member('a')
      a.schedule.add('job', '*/10 * * * * *', { missed }, stage.work(a))
      a.schedule.start()
      await stage.clock.advance(10_000)
      stage.clock.block(25_000)
      await stage.clock.advance(10_000)
      expect(stage.ticks.map((tick) => tick.slice(17, 19))).toEqual(ticks)
    },
  )

  test('work that blocks the event loop beyond its lease fails, and the next tick runs', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', async (run) => {
      await stage.work(a)(run)
      if (stage.record.length === 1) stage.clock.block(40_000)
    })
    a.schedule.start()
    await stage.clock.advance(2 * MINUTE_MS)
    expect(a.finished).toMatchObject([{ result: 'failed', error: { code: 'lease-lost' } }, { result: 'ok' }])
    expect(stage.ticks).toEqual(['2027-01-15T08:01:00.000Z', '2027-01-15T08:02:00.000Z'])
  })

  test('a wall clock that is set back runs no tick twice, and goes on', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(30 * MINUTE_MS)
    expect(stage.ticks).toHaveLength(30)
    a.setClock(-20 * MINUTE_MS)
    await stage.clock.advance(20 * MINUTE_MS)
    expect(stage.ticks).toHaveLength(30)
    await stage.clock.advance(5 * MINUTE_MS)
    expect(stage.ticks).toHaveLength(35)
    expect(new Set(stage.ticks).size).toBe(35)
  })

  test.each(['skip', 'all'] as const)(
    'a wall clock that is set back to before the start of its process runs no tick twice, and goes on (%s)',
    async (missed) => {
      const stage = new Stage()
      const a = stage.member('a')
      a.schedule.add('job', '* * * * *', { missed }, stage.work(a))
      a.schedule.start()
      await stage.clock.advance(30 * MINUTE_MS)
      a.setClock(-40 * MINUTE_MS)
      await stage.clock.advance(10 * MINUTE_MS)
      expect(stage.ticks.slice(-1)).toEqual(['2027-01-15T08:00:00.000Z'])
      expect(a.schedule.jobs[0]?.nextAt).toEqual(new Date('2027-01-15T08:31:00Z'))
      await stage.clock.advance(31 * MINUTE_MS)
      expect(stage.ticks).toHaveLength(41)
      expect(new Set(stage.ticks).size).toBe(41)
    },
  )

  test.each(['skip', 'all'] as const)(
    'a tick that the wall clock has jumped over runs once, although the clock is set back (%s)',
    async (missed) => {
      const stage = new Stage()
      const a = stage.member('a')
      a.schedule.add('job', '*/10 * * * *', { missed }, stage.work(a))
      a.schedule.start()
      await stage.clock.advance(20 * MINUTE_MS)
      a.setClock(5 * HOUR_MS)
      await stage.clock.advance(2 * MINUTE_MS)
      a.setClock(-5 * HOUR_MS)
      await stage.clock.advance(6 * HOUR_MS)
      expect(new Set(stage.ticks).size).toBe(stage.ticks.length)
    },
  )

  test('a wall clock that is set forward, and then back, runs no tick twice', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(30 * MINUTE_MS)
    a.setClock(24 * HOUR_MS)
    await stage.clock.advance(5 * MINUTE_MS)
    a.setClock(-24 * HOUR_MS - 30 * MINUTE_MS)
    await stage.clock.advance(30 * MINUTE_MS)
    expect(stage.ticks.length).toBeGreaterThanOrEqual(39)
    expect(new Set(stage.ticks).size).toBe(stage.ticks.length)
  })

  test('a wall clock that was a year ahead, and is set right, does not stop the job for a year', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const b = stage.member('b', { aheadMs: -500 })
    for (const member of [a, b]) {
      member.schedule.add('job', '* * * * *', stage.work(member))
      member.schedule.start()
    }
    await stage.clock.advance(5 * MINUTE_MS)
    a.setClock(365 * 24 * HOUR_MS)
    await stage.clock.advance(5 * MINUTE_MS)
    a.setClock(-365 * 24 * HOUR_MS)
    await stage.clock.advance(5 * MINUTE_MS)
    const right = stage.record.filter((line) => line.includes(' 2027-'))
    expect(right).toHaveLength(15)
    expect(new Set(right).size).toBe(15)
    expect(right.slice(-4)).toEqual([
      'a 2027-01-15T08:12:00.000Z',
      'a 2027-01-15T08:13:00.000Z',
      'a 2027-01-15T08:14:00.000Z',
      'a 2027-01-15T08:15:00.000Z',
    ])
  })

  test('a clock that is set while a process sleeps is noticed within half a minute', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '0 * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(10 * MINUTE_MS)
    a.setClock(40 * MINUTE_MS)
    await stage.clock.advance(11 * MINUTE_MS)
    expect(stage.ticks).toEqual(['2027-01-15T09:00:00.000Z'])
  })

  test('a tick that is further away than a timer can be is run at its time', async () => {
    const stage = new Stage('2027-01-01T00:00:00Z')
    const delays = delaysOf(stage.clock, { most: 1_000_000 })
    const a = stage.member('a')
    a.schedule.add('job', '0 0 1 3 *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(HOUR_MS)
    stage.clock.suspend(58 * 24 * HOUR_MS)
    await stage.clock.advance(23 * HOUR_MS - 1)
    expect(stage.ticks).toEqual([])
    await stage.clock.advance(1)
    expect(stage.ticks).toEqual(['2027-03-01T00:00:00.000Z'])
    expect(Math.max(...delays)).toBeLessThan(2 ** 31)
  })
})

describe('a store that is away', () => {
  test('is asked again, and the ticks of the meantime run when it is back in time', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(40_000)
    a.store.always('fail')
    await stage.clock.advance(20_000)
    a.store.always('answer')
    await stage.clock.advance(20_000)
    expect(stage.ticks).toEqual(['2027-01-15T08:01:00.000Z'])
    expect(a.errors).not.toEqual([])
    expect(a.errors).toEqual(a.errors.map(() => expect.objectContaining({ code: 'store-unavailable' })))
  })

  test('is asked again, and ticks from too long ago are left out', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(40_000)
    a.store.always('fail')
    await stage.clock.advance(45_000)
    a.store.always('answer')
    await stage.clock.advance(30_000)
    expect(stage.ticks).toEqual(['2027-01-15T08:02:00.000Z'])
  })

  test.each(['fail', 'lose request', 'lose reply'] as const)(
    'when a run ends hears of the end once it is back, before another process has the job (%s)',
    async (fate) => {
      const stage = new Stage()
      const a = stage.member('a', { aheadMs: 1000 })
      const b = stage.member('b')
      for (const member of [a, b]) {
        member.schedule.add('job', '* * * * *', { ttl: '30s' }, stage.work(member, 5000))
        member.schedule.start()
      }
      await stage.clock.advance(52_000)
      expect(stage.record).toEqual(['a 2027-01-15T08:01:00.000Z'])
      a.store.always(fate)
      await stage.clock.advance(15_000)
      a.store.always('answer')
      await stage.clock.advance(60_000)
      expect(stage.ticks).toEqual(['2027-01-15T08:01:00.000Z', '2027-01-15T08:02:00.000Z'])
      expect(a.finished[0]).toMatchObject({ result: 'ok' })
    },
  )

  test('for longer than the lease when a run ends leaves the tick to the others, as a crash would', async () => {
    const stage = new Stage()
    const a = stage.member('a', { aheadMs: 1000 })
    const b = stage.member('b')
    const attempts: string[] = []
    for (const member of [a, b]) {
      member.schedule.add('job', '* * * * *', { ttl: '10s' }, (run) => {
        attempts.push(`${member.name} ${run.attempt}`)
        return stage.work(member, 5000)(run)
      })
      member.schedule.start()
    }
    await stage.clock.advance(52_000)
    a.store.always('lose request')
    await stage.clock.advance(20_000)
    a.store.always('answer')
    await stage.clock.advance(10_000)
    expect(attempts).toEqual(['a 1', 'b 2'])
    expect(b.finished).toMatchObject([{ result: 'ok' }])
  })

  test('while a run ends does not hold up `stop`', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', { ttl: '10m' }, stage.work(a, 5000))
    a.schedule.start()
    await stage.clock.advance(52_000)
    a.store.always('lose request')
    await stage.clock.advance(5000)
    expect(a.finished).toMatchObject([{ result: 'ok' }])
    const stopped = stage.clock.monotonicMs()
    await stage.clock.until(a.schedule.stop())
    expect(stage.clock.monotonicMs() - stopped).toBeLessThan(15_000)
  })

  test('that refuses is reported, and asked again ever more seldom', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '*/5 * * * * *', stage.work(a))
    a.schedule.start()
    a.store.always('refuse')
    await stage.clock.advance(10 * MINUTE_MS)
    expect(stage.ticks).toEqual([])
    expect(a.errors.length).toBeGreaterThan(10)
    expect(a.errors.length).toBeLessThan(40)
    a.store.always('answer')
    await stage.clock.advance(MINUTE_MS)
    expect(stage.ticks.length).toBeGreaterThan(5)
  })

  test('cannot be asked any more once the locks are closed, and the job ends', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const job = a.schedule.add('job', '* * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.until(a.locks.close())
    await stage.clock.advance(5 * MINUTE_MS)
    expect(a.errors).toMatchObject([{ code: 'closed' }])
    expect(stage.clock.timers.keepingAlive).toBe(0)
    expect(await stage.clock.until(errorOf(job.runNow()))).toMatchObject({ code: 'closed' })
  })
})
