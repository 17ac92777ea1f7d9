import { describe, expect, test } from 'vitest'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf } from '../engine/scene.ts'
import { Letter } from '../engine/scripted-store.ts'
import { Stage } from './stage.ts'

const MINUTE_MS = 60_000
const GRACE_MS = 5000

describe('stop', () => {
  test('lets a run end undisturbed, and begins no other run', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', stage.work(a, 8000))
    a.schedule.start()
    await stage.clock.advance(51_000)
    const stopping = a.schedule.stop()
    expect(await outcomeOf(stopping)).toBe('pending')
    await stage.clock.until(stopping)
    expect(a.finished).toMatchObject([{ result: 'ok', durationMs: 8000 }])
    await stage.clock.advance(5 * MINUTE_MS)
    expect(stage.record).toHaveLength(1)
    expect(stage.clock.timers.keepingAlive).toBe(0)
  })

  test('aborts a run that does not end in time, and another process takes its tick over at once', async () => {
    const stage = new Stage()
    const a = stage.member('a', { grace: '3s' })
    const b = stage.member('b', { aheadMs: -400 })
    for (const member of [a, b]) {
      member.schedule.add('job', '* * * * *', stage.work(member, 20_000))
      member.schedule.start()
    }
    await stage.clock.advance(51_000)
    const stopping = a.schedule.stop()
    await stage.clock.advance(3100)
    expect(await outcomeOf(stopping)).toEqual({ value: undefined })
    expect(stage.record).toEqual(['a 2027-01-15T08:01:00.000Z', 'b 2027-01-15T08:01:00.000Z'])
    expect(a.finished).toMatchObject([{ result: 'interrupted', error: { code: 'closed' } }])
    expect(a.errors).toEqual([])
  })

  test('leaves a run that it interrupted alone with `afterCrash: skip`: its tick has failed', async () => {
    const stage = new Stage()
    const a = stage.member('a', { grace: '3s' })
    const b = stage.member('b', { aheadMs: -1000 })
    for (const member of [a, b]) {
      const work = member === a ? stage.work(a, 40_000) : stage.work(b)
      member.schedule.add('job', '* * * * *', { afterCrash: 'skip' }, work)
      member.schedule.start()
    }
    await stage.clock.advance(55_000)
    await stage.clock.until(a.schedule.stop())
    await stage.clock.advance(65_000)
    expect(stage.record).toEqual(['a 2027-01-15T08:01:00.000Z', 'b 2027-01-15T08:02:00.000Z'])
    expect(b.errors).toMatchObject([{ message: expect.stringContaining('was stopped') }])
  })

  test('may interrupt a long run again and again, as a rolling deploy does: the tick is not given up for that', async () => {
    const stage = new Stage()
    const attempts: number[] = []
    for (let deploys = 0; deploys < 6; deploys += 1) {
      const member = stage.member(`m${deploys}`, { grace: '1s' })
      const next = stage.member(`n${deploys}`, { aheadMs: -100 })
      for (const one of [member, next]) {
        one.schedule.add('job', '0 9 * * *', { missed: 'once' }, async (run) => {
          attempts.push(run.attempt)
          await stage.work(one, 3_600_000)(run)
        })
        one.schedule.start()
      }
      await stage.clock.advance(deploys === 0 ? 60 * MINUTE_MS : MINUTE_MS)
      for (const { schedule } of [member, next]) await stage.clock.until(schedule.stop())
    }
    expect(attempts[0]).toBe(1)
    expect(attempts.length).toBeGreaterThanOrEqual(6)
    expect(new Set(attempts.slice(1))).toEqual(new Set([2]))
  })

  test('leaves work behind that never ends, and lets its key run out', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const b = stage.member('b', { aheadMs: -400 })
    a.schedule.add('job', '* * * * *', { ttl: '20s' }, () => new Promise(() => {}))
    b.schedule.add('job', '* * * * *', stage.work(b))
    for (const { schedule } of [a, b]) schedule.start()
    await stage.clock.advance(51_000)
    const stopping = a.schedule.stop({ grace: 0 })
    await stage.clock.advance(GRACE_MS)
    expect(await outcomeOf(stopping)).toEqual({ value: undefined })
    expect(stage.record).toEqual([])
    await stage.clock.advance(20_000)
    expect(stage.record).toEqual(['b 2027-01-15T08:01:00.000Z'])
  })

  test('ends within its bound when it is called from inside a run', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', () => a.schedule.stop({ grace: '1s' }))
    a.schedule.start()
    await stage.clock.advance(50_000 + 1000 + GRACE_MS)
    expect(a.finished).toMatchObject([{ result: 'interrupted' }])
  })

  test('ends a wait for another process, and an idle schedule, at once', async () => {
    const stage = new Stage()
    const a = stage.member('a', { aheadMs: 500 })
    const b = stage.member('b')
    for (const member of [a, b]) {
      member.schedule.add('job', '* * * * *', stage.work(member, MINUTE_MS))
      member.schedule.start()
    }
    await stage.clock.advance(55_000)
    const idle = stage.member('idle')
    idle.schedule.add('job', '0 0 1 1 *', () => {})
    idle.schedule.start()
    await settled()
    for (const { schedule } of [b, idle]) {
      const stopping = schedule.stop()
      await settled()
      expect(await outcomeOf(stopping)).toEqual({ value: undefined })
    }
  })

  test('ends at whatever moment before a run it is called', async () => {
    for (let turns = 0; turns < 60; turns += 1) {
      const stage = new Stage()
      const a = stage.member('a')
      a.schedule.add('job', '* * * * *', () => new Promise(() => {}))
      a.schedule.start()
      await stage.clock.advance(49_999)
      // Four answers: to the first look, the lock, the second look, and the mark of the begin. The last one is held
      // back.
      const begin = new Letter()
      a.store.next('acquire', 'answer', 'answer', 'answer', begin)
      await stage.clock.advance(1)
      begin.arrive().reply()
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve()
      const stopping = a.schedule.stop({ grace: 0 })
      await stage.clock.advance(GRACE_MS)
      expect(await outcomeOf(stopping), `after ${turns} turns`).toEqual({ value: undefined })
    }
  })

  test('may be called twice, before start, and for one job only', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const one = a.schedule.add('one', '* * * * *', stage.work({ name: 'one' }))
    a.schedule.add('other', '* * * * *', stage.work({ name: 'other' }))
    a.schedule.start()
    a.schedule.start()
    await Promise.all([one.stop(), one.stop()])
    expect(a.schedule.jobs.map(({ name }) => name)).toEqual(['other'])
    const again = a.schedule.add('one', '30 * * * * *', stage.work({ name: 'again' }))
    await one.stop()
    expect(a.schedule.jobs).toContain(again)
    await stage.clock.advance(MINUTE_MS)
    expect(stage.record).toEqual(['again 2027-01-15T08:00:30.000Z', 'other 2027-01-15T08:01:00.000Z'])
    await Promise.all([a.schedule.stop(), a.schedule.stop()])
    expect(() => a.schedule.start()).toThrow(/^Expected a schedule that was not stopped, got one that was/)
    expect(() => a.schedule.add('late', '* * * * *', () => {})).toThrow(/not stopped/)
    await stage.member('never started').schedule.stop()
  })
})

describe('runNow', () => {
  test('runs the work in addition to its ticks, and returns the result', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const fences: bigint[] = []
    const job = a.schedule.add('job', '* * * * *', async (run) => {
      fences.push(run.fence)
      await stage.work(a, 1000)(run)
    })
    // `runNow` also works before the start.
    const run = await stage.clock.until(job.runNow())
    expect(run).toMatchObject({ name: 'job', result: 'ok', durationMs: 1000 })
    expect(run.scheduledAt).toEqual(run.startedAt)
    expect(job.last).toEqual(run)
    a.schedule.start()
    await stage.clock.advance(MINUTE_MS)
    expect(stage.ticks).toEqual(['2027-01-15T08:00:10.000Z', '2027-01-15T08:01:00.000Z'])
    expect(fences[1]).toBeGreaterThan(fences[0] as bigint)
  })

  test('waits for a run in another process, and overlaps with none', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const b = stage.member('b', { aheadMs: -400 })
    a.schedule.add('job', '* * * * *', stage.work(a, 15_000))
    const job = b.schedule.add('job', '* * * * *', stage.work(b, 15_000))
    for (const { schedule } of [a, b]) schedule.start()
    await stage.clock.advance(55_000)
    const running = job.runNow()
    await stage.clock.advance(9000)
    expect(stage.record).toHaveLength(1)
    await stage.clock.advance(1500)
    expect(stage.record).toHaveLength(2)
    expect(await stage.clock.until(running)).toMatchObject({ result: 'ok' })
  })

  test('rejects with the error of the work, and once it is stopped', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const broken = new Error('not today')
    const job = a.schedule.add('job', '* * * * *', () => {
      throw broken
    })
    expect(await stage.clock.until(errorOf(job.runNow()))).toBe(broken)
    expect(job.last).toMatchObject({ result: 'failed', error: broken })
    await job.stop()
    expect(await errorOf(job.runNow())).toMatchObject({ code: 'closed' })
  })

  test('resolves when the work is over, and not only when `minHold` is', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const job = a.schedule.add('job', '* * * * *', { minHold: '1h' }, stage.work(a, 1000))
    const begunAt = stage.clock.monotonicMs()
    expect(await stage.clock.until(job.runNow())).toMatchObject({ result: 'ok', durationMs: 1000 })
    expect(stage.clock.monotonicMs() - begunAt).toBeLessThan(2000)
    expect((await stage.clock.until(job.status())).running).toBeDefined()
    const again = job.runNow().catch((error: unknown) => error)
    await stage.clock.advance(65_000)
    expect(await outcomeOf(again)).toMatchObject({ value: { code: 'acquire-timeout' } })
    // The rest of `minHold` does not hold up `stop`: the store keeps the job.
    await stage.clock.until(a.schedule.stop(), { withinMs: 1000 })
    expect((await stage.clock.until(job.status())).running).toBeDefined()
    await stage.clock.advance(59 * 60_000)
    expect((await stage.clock.until(job.status())).running).toBeUndefined()
  })

  test('is a deadlock inside a run of the same job, and rejects at once', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const job = a.schedule.add('job', '* * * * *', () => job.runNow().then(() => {}))
    expect(await stage.clock.until(errorOf(job.runNow()))).toMatchObject({ code: 'deadlock' })
  })

  test('is waited for by stop', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const job = a.schedule.add('job', '* * * * *', stage.work(a, 4000))
    const running = job.runNow()
    await settled()
    const stopping = a.schedule.stop()
    await stage.clock.advance(3000)
    expect(await outcomeOf(stopping)).toBe('pending')
    await stage.clock.advance(1000)
    expect(await outcomeOf(stopping)).toEqual({ value: undefined })
    expect(await running).toMatchObject({ result: 'ok' })
  })
})

describe('the visible state of a job', () => {
  test('here: the next tick, and the last run', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const job = a.schedule.add('job', '*/5 * * * *', { timezone: 'Asia/Kolkata' }, stage.work(a, 2000))
    expect(job).toMatchObject({
      name: 'job',
      expression: '*/5 * * * *',
      timezone: 'Asia/Kolkata',
      last: undefined,
    })
    expect(job.nextAt).toEqual(new Date('2027-01-15T08:05:00Z'))
    a.schedule.start()
    await stage.clock.advance(7 * MINUTE_MS)
    expect(job.nextAt).toEqual(new Date('2027-01-15T08:10:00Z'))
    expect(job.last).toEqual({
      name: 'job',
      scheduledAt: new Date('2027-01-15T08:05:00Z'),
      startedAt: new Date('2027-01-15T08:05:00Z'),
      durationMs: 2000,
      result: 'ok',
    })
    expect(a.finished).toEqual([job.last])
  })

  test('in every process: which process runs it, and how the last tick went, when and where', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    const b = stage.member('b', { aheadMs: -400 })
    const work = { a: stage.work(a, 10_000), b: stage.work(b, 10_000) }
    a.schedule.add('job', '* * * * *', async (run) => {
      await work.a(run)
      if (stage.record.length === 2) throw new Error('not today')
    })
    const job = b.schedule.add('job', '* * * * *', work.b)
    const status = () => stage.clock.until(job.status())
    expect(await status()).toMatchObject({ running: undefined, last: undefined })
    for (const { schedule } of [a, b]) schedule.start()
    await stage.clock.advance(55_000)
    expect(await status()).toMatchObject({ running: { owner: { label: 'test' } }, last: undefined })
    await stage.clock.advance(30_000)
    expect(await status()).toMatchObject({
      nextAt: new Date('2027-01-15T08:02:00Z'),
      running: undefined,
      last: { scheduledAt: new Date('2027-01-15T08:01:00Z'), result: 'ok', owner: { label: 'test' } },
    })
    const ended = (await status()).last?.endedAt.getTime() ?? 0
    expect(Math.abs(ended - Date.parse('2027-01-15T08:01:10Z'))).toBeLessThan(500)
    await stage.clock.advance(MINUTE_MS)
    expect(await status()).toMatchObject({
      last: { scheduledAt: new Date('2027-01-15T08:02:00Z'), result: 'failed' },
    })
  })

  test('loses its ticks in time', async () => {
    const stage = new Stage()
    const a = stage.member('a')
    a.schedule.add('job', '* * * * *', stage.work(a))
    a.schedule.start()
    await stage.clock.advance(30 * MINUTE_MS)
    const keys: string[] = []
    for await (const { key } of a.locks.inspect()) keys.push(key)
    // Three ticks are three minutes, half a minute is for lateness, and eleven minutes are for skew and for judging.
    expect(keys).toHaveLength(15)
  })
})

test('a listener that throws causes a warning, and changes nothing else', async () => {
  const stage = new Stage()
  const warnings: string[] = []
  const onWarning = (warning: Error) => warnings.push(warning.message)
  process.on('warning', onWarning)
  const angry = () => {
    throw new Error('angry')
  }
  const a = stage.member('a', { onRun: angry, onError: angry })
  const quiet = stage.member('quiet', { onError: undefined })
  for (const { schedule } of [a, quiet]) {
    schedule.add('job', '* * * * *', angry)
    schedule.start()
  }
  await stage.clock.advance(2 * MINUTE_MS)
  process.off('warning', onWarning)
  expect(new Set(warnings)).toEqual(
    new Set(['`onRun` of a schedule itself failed.', '`onError` of a schedule itself failed.']),
  )
})

test('a job may lock in its work what the caller of `start` holds', async () => {
  const stage = new Stage()
  const a = stage.member('a')
  a.schedule.add('job', '* * * * *', (run) =>
    a.locks.withLock('boot', { wait: '5m' }, () => stage.work(a)(run)),
  )
  const booting = a.locks.withLock('boot', async () => {
    a.schedule.start()
    await stage.pass(90_000)
  })
  await stage.clock.until(booting)
  await stage.clock.advance(MINUTE_MS)
  expect(a.errors).toEqual([])
  expect(stage.ticks.slice(0, 1)).toEqual(['2027-01-15T08:01:00.000Z'])
})
