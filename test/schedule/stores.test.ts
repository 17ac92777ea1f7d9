import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { Clock } from '../../src/index.ts'
import {
  createSchedule,
  type ScheduledJob,
  type ScheduledJobOptions,
  scheduleEvents,
} from '../../src/schedule/index.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'
import { connectForMarks } from './connect-for-marks.ts'

// All missed ticks run, because the speed of the machine decides which of them is the last.
const OPTIONS: ScheduledJobOptions = { missed: 'all', catchUp: '1m', ttl: '20s' }

test.concurrent.each(Object.entries(places))(
  'on %s: one of two processes runs each tick, all see how it went, and the next one knows what it has missed',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-schedule-'))
    const place = await open(folder)
    const ticks: number[] = []
    const fences: bigint[] = []
    const errors: unknown[] = []
    const begin = async (label: string) => {
      const locks = await connectForMarks(place.url, { label })
      const schedule = createSchedule(locks, { onError: (error) => errors.push(error) })
      const startedAt = Date.now()
      const job = schedule.add('job', '* * * * * *', OPTIONS, ({ scheduledAt, fence }) => {
        ticks.push(scheduledAt.getTime())
        fences.push(fence)
        if (ticks.length === 1) throw new Error('not today')
      })
      schedule.start()
      const end = async () => {
        await schedule.stop()
        await locks.close()
      }
      return { job, startedAt, end }
    }
    const ran = (count: number) => until(`${count} runs`, () => ticks.length >= count)
    const first = await begin('first')
    const second = await begin('second')
    try {
      await ran(2)
      expect(ticks).toEqual([...new Set(ticks)].sort())
      // Only the end of one of the two latest ticks is seen, and on a busy machine the runs may lag further behind.
      await until('the first sees an end', () => lastOf(first.job))
      const { owner } = await until('the second sees an end', () => lastOf(second.job))
      expect(['first', 'second']).toContain(owner['label'])
    } finally {
      await Promise.all([first.end(), second.end()])
    }
    const endedAt = Math.max(...ticks)
    await until('a tick was missed', () => Date.now() > endedAt + 2000)
    const count = ticks.length
    const third = await begin('third')
    try {
      await ran(count + 1)
      expect(ticks[count]).toBeLessThanOrEqual(third.startedAt)
      expect(ticks[count]).toBeGreaterThan(endedAt)
      await ran(count + 2)
      expect(new Set(ticks).size).toBe(ticks.length)
      expect(errors).toEqual([new Error('not today')])
      expect(fences).toEqual([...fences].sort((one, other) => (one < other ? -1 : 1)))
    } finally {
      await third.end()
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

test.concurrent.each(Object.entries(places).filter(([name]) => ['redis', 'postgres'].includes(name)))(
  'on %s: one of three connections tells of each tick that all of them have missed',
  async (store, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-schedule-'))
    const place = await open(folder)
    const name = `missed on ${store}`
    let aheadMs = 0
    const clock: Clock = {
      monotonicMs: () => performance.now(),
      wallMs: () => Date.now() + aheadMs,
      startTimer(delayMs, fire) {
        const timeout = setTimeout(fire, delayMs)
        return { stop: () => clearTimeout(timeout), keepAlive: () => {} }
      },
    }
    const [ran, told, lasts, errors]: [number[], number[], number[], unknown[]] = [[], [], [], []]
    const stopListening = scheduleEvents.on('missed', (event) => {
      if (event.name !== name) return
      for (let at = 0; at < event.count; at += 1) told.push(event.firstAt.getTime() + at * 1000)
      lasts.push(event.lastAt.getTime())
    })
    const members = await Promise.all(
      [0, 1, 2].map(async () => {
        const locks = await connectForMarks(place.url)
        const schedule = createSchedule(locks, { clock, onError: (error) => errors.push(error) })
        schedule.add(name, '* * * * * *', ({ scheduledAt }) => ran.push(scheduledAt.getTime()))
        schedule.start()
        return { locks, schedule }
      }),
    )
    try {
      const isIdle = async () => {
        const { last, running } = (await members[0]?.schedule.jobs[0]?.status()) ?? {}
        return last?.result === 'ok' && running === undefined
      }
      await until('it has run', isIdle)
      const sleepsAt = clock.wallMs()
      // As if all machines had slept. The first 40 s of it are over for long enough.
      aheadMs = 370_000
      await until('ticks of that time are judged', () => told.some((tick) => tick > sleepsAt + 38_000))
      await until('it goes on', () => Math.max(...ran) > sleepsAt + aheadMs)
      expect(new Set(told).size).toBe(told.length)
      // On a busy machine, ticks before the sleep may have been missed or overlapped, too.
      const slept = told.filter((tick) => tick > sleepsAt).sort()
      const first = Math.floor(sleepsAt / 1000) * 1000 + 1000
      expect(slept).toEqual(slept.map((_, at) => first + at * 1000))
      expect(slept.length).toBeGreaterThanOrEqual(37)
      expect(told).toEqual(expect.arrayContaining(lasts))
      expect(ran.filter((tick) => told.includes(tick))).toEqual([])
      expect(errors).toEqual([])
    } finally {
      stopListening()
      for (const { schedule, locks } of members) {
        await schedule.stop()
        await locks.close()
      }
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)

async function lastOf(job: ScheduledJob) {
  return (await job.status()).last
}
