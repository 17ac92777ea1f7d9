import { expect, test } from 'vitest'
import { type Advance, advanceOf, type DueSchedule } from '../../../src/jobs/schedules/advance.ts'
import { parseSettings, type StoredScheduleOptions } from '../../../src/jobs/schedules/options.ts'
import { anchorOf, dueMsOf, firstTick, tickAfter } from '../../../src/jobs/schedules/timing.ts'

const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const START = Date.parse('2027-03-01T00:00:00Z')

/** A schedule as it was stored at `START`. */
function stored(settings: StoredScheduleOptions, more: Partial<DueSchedule> = {}): DueSchedule {
  const definition = parseSettings(settings)
  const timing = { id: 'a', definition, anchorMs: anchorOf(definition, START) }
  const tickMs = firstTick(timing, START)
  const dueMs = tickMs === null ? null : dueMsOf(timing, tickMs)
  return { ...timing, tickMs, dueMs, runs: 0, lastJob: null, ...more }
}

/** Fires as the processes do, each look at the time that the last one has named, and says when its ticks were. */
function played(schedule: DueSchedule, untilMs: number): string[] {
  const ticks: string[] = []
  let now = schedule
  let dueMs = schedule.tickMs === null ? START : dueMsOf(schedule, schedule.tickMs)
  for (let looks = 0; dueMs < untilMs; looks += 1) {
    expect(looks).toBeLessThan(10_000)
    const { fires, next, missed } = advanceOf(now, dueMs)
    expect(missed).toBeNull()
    ticks.push(...fires.map((tick) => new Date(tick).toISOString()))
    if (next === null) break
    now = {
      ...now,
      ...next,
      runs: now.runs + fires.length,
      lastJob: { hasEnded: true, endedMs: dueMs },
    }
    dueMs = next.dueMs
  }
  return ticks
}

test('an outage of some hours is counted in full, with its first and its last tick', () => {
  const nowMs = START + 10 * HOUR + 5 * MINUTE
  for (const times of [{ every: '1m' }, { cron: '* * * * *' }]) {
    const { missed } = advanceOf(stored({ ...times, missed: 'skip' }), nowMs)
    const firstMs = START + MINUTE
    expect(missed).toEqual({ count: 604, firstMs, lastMs: nowMs - MINUTE, isAtLeast: false })
  }
})

function counts({ fires, missed, overlapped, next }: Advance) {
  return {
    fires: fires.map((tick) => (tick - START) / MINUTE),
    missed: missed?.count ?? 0,
    overlapped: overlapped?.count ?? 0,
    nextTick: next?.tickMs === undefined || next.tickMs === null ? null : (next.tickMs - START) / MINUTE,
  }
}

test.each([
  ['30 2 * * *', 'Europe/Berlin', '2027-03-28', ['01:00']],
  ['*/30 2 * * *', 'Europe/Berlin', '2027-03-28', []],
  ['30 2 * * *', 'Europe/Berlin', '2027-10-31', ['00:30']],
  ['*/30 2 * * *', 'Europe/Berlin', '2027-10-31', ['00:00', '00:30', '01:00', '01:30']],
  ['30 1,13 * * *', 'America/New_York', '2027-11-07', ['05:30', '18:30']],
  ['15 2 * * *', 'Australia/Lord_Howe', '2027-10-02', ['15:30']],
])('%s in %s fires on the day of a change %s at %j', (cron, timezone, day, expected) => {
  const from = Date.parse(`${day}T00:00:00Z`) - 2 * HOUR
  const schedule = stored({
    cron,
    timezone,
    startAt: new Date(from),
    stopAt: new Date(from + 24 * HOUR),
    overlap: 'allow',
  })
  expect(played(schedule, from + 24 * HOUR).map((tick) => tick.slice(11, 16))).toEqual(expected)
})

test('`every` counts from the moment it was stored, or from `startAt`, and ends before `stopAt`', () => {
  const minutes = (settings: StoredScheduleOptions) =>
    played(stored(settings), START + HOUR).map((tick) => (Date.parse(tick) - START) / MINUTE)
  expect(minutes({ every: '25m' })).toEqual([25, 50])
  const at = (minute: number) => new Date(START + minute * MINUTE)
  expect(minutes({ every: '25m', startAt: at(0) })).toEqual([25, 50])
  expect(minutes({ every: '25m', startAt: at(10) })).toEqual([10, 35])
  expect(minutes({ every: '25m', startAt: at(-40), stopAt: at(35) })).toEqual([10])
  expect(minutes({ every: '10m', maxRuns: 3 })).toEqual([10, 20, 30])
})

test('after an outage the missed ticks are left out, or the last one fires, or all of them up to a bound', () => {
  const nowMs = START + 185 * MINUTE
  const after = (settings: StoredScheduleOptions) =>
    counts(advanceOf(stored({ every: '1h', ...settings }), nowMs))
  expect(after({ missed: 'skip' })).toEqual({ fires: [], missed: 3, overlapped: 0, nextTick: 240 })
  expect(after({})).toEqual({ fires: [180], missed: 2, overlapped: 0, nextTick: 240 })
  expect(after({ catchUp: '4m' })).toEqual({ fires: [], missed: 3, overlapped: 0, nextTick: 240 })
  expect(after({ missed: 'all' })).toEqual({ fires: [60, 120, 180], missed: 0, overlapped: 0, nextTick: 240 })
  expect(after({ missed: 'all', catchUp: '70m' })).toEqual({
    fires: [120, 180],
    missed: 1,
    overlapped: 0,
    nextTick: 240,
  })
  expect(after({ missed: 'all', maxRuns: 2 })).toEqual({
    fires: [60, 120],
    missed: 0,
    overlapped: 0,
    nextTick: null,
  })
})

test('a tick of the last 30 s is not missed, and stands for the missed ones', () => {
  const nowMs = START + 3 * HOUR + 29 * SECOND
  const after = (settings: StoredScheduleOptions) =>
    counts(advanceOf(stored({ every: '1h', ...settings }), nowMs))
  expect(after({ missed: 'skip' })).toEqual({ fires: [180], missed: 2, overlapped: 0, nextTick: 240 })
  expect(after({ missed: 'once' })).toEqual({ fires: [180], missed: 2, overlapped: 0, nextTick: 240 })
})

test('a long outage of a frequent schedule takes one look, and `all` goes on in portions', () => {
  const nowMs = START + 20 * 24 * HOUR
  for (const times of [{ every: '1s' }, { cron: '* * * * * *' }]) {
    const { fires, missed, next } = advanceOf(stored(times), nowMs)
    expect(fires.map((tick) => (nowMs - tick) / SECOND)).toEqual([30])
    // Those of `every` are all counted. Those of an expression are at least a thousand.
    const firstMs = START + SECOND
    const lastMs = nowMs - 31 * SECOND
    expect(missed).toMatchObject({ firstMs, lastMs, isAtLeast: 'cron' in times })
    if ('cron' in times) expect(missed?.count).toBeGreaterThanOrEqual(1000)
    else expect(missed?.count).toBe((lastMs - firstMs) / SECOND + 1)
    expect(next?.tickMs).toBeGreaterThan(nowMs)
  }
  const all = advanceOf(stored({ every: '1s', missed: 'all', catchUp: '1h' }), nowMs)
  expect(all.fires.map((tick) => (nowMs - tick) / SECOND)).toEqual(
    Array.from({ length: 100 }, (_, n) => 3600 - n),
  )
  expect(all.next?.tickMs).toBe(nowMs - 3500 * SECOND)
})

test('ticks overlap while the last job has not ended, unless that is allowed', () => {
  const nowMs = START + 10 * MINUTE
  const running = { lastJob: { hasEnded: false, endedMs: null } }
  const ended = { lastJob: { hasEnded: true, endedMs: START } }
  expect(counts(advanceOf(stored({ every: '10m' }, running), nowMs))).toMatchObject({
    fires: [],
    overlapped: 1,
    nextTick: 20,
  })
  expect(counts(advanceOf(stored({ every: '10m' }, ended), nowMs))).toMatchObject({
    fires: [10],
    overlapped: 0,
  })
  expect(counts(advanceOf(stored({ every: '10m', overlap: 'allow' }, running), nowMs))).toMatchObject({
    fires: [10],
  })
  const twoAtOnce = advanceOf(stored({ every: '10s' }, ended), START + 25 * SECOND)
  expect(twoAtOnce).toMatchObject({ fires: [START + 10_000], overlapped: { count: 1 } })
})

test('`afterEnd` waits also for a last job that somebody has tried again', () => {
  const ended = { hasEnded: true, endedMs: START + MINUTE }
  const waiting = advanceOf(stored({ afterEnd: '90s' }, { tickMs: null, lastJob: ended }), START + MINUTE)
  const { tickMs = null, dueMs = 0 } = waiting.next ?? {}
  expect(tickMs).not.toBeNull()
  const again = stored({ afterEnd: '90s' }, { tickMs, dueMs, lastJob: { ...ended, hasEnded: false } })
  expect(advanceOf(again, dueMs)).toMatchObject({ fires: [], next: { tickMs: null } })
  expect(advanceOf({ ...again, lastJob: ended }, dueMs).fires).toEqual([tickMs])
})

test('`afterEnd` waits for the end of the job, looks once for each of its lengths, and never comes late for that', () => {
  let schedule = stored({ afterEnd: '90s', maxRuns: 3 })
  expect(schedule.tickMs).toBe(START + 90_000)
  let nowMs = START + 90_000
  const first = advanceOf(schedule, nowMs)
  expect(first).toMatchObject({ fires: [nowMs], next: { tickMs: null, dueMs: nowMs + 90_000 } })
  schedule = { ...schedule, tickMs: null, runs: 1, lastJob: { hasEnded: false, endedMs: null } }
  nowMs += 90_000
  expect(advanceOf(schedule, nowMs)).toMatchObject({
    fires: [],
    next: { tickMs: null, dueMs: nowMs + 90_000 },
  })
  // It has ended just after that look.
  const endedMs = nowMs + 1
  nowMs += 90_000
  schedule = { ...schedule, lastJob: { hasEnded: true, endedMs } }
  expect(advanceOf(schedule, nowMs)).toMatchObject({ fires: [], next: { tickMs: endedMs + 90_000 } })
  // It is long over: the processes were down.
  nowMs += 10 * HOUR
  expect(advanceOf(schedule, nowMs)).toMatchObject({ fires: [endedMs + 90_000], missed: null })
  const last = { ...schedule, tickMs: endedMs + 90_000, runs: 2 }
  expect(advanceOf(last, nowMs)).toMatchObject({ fires: [endedMs + 90_000], next: null })
})

test('jitter delays each tick by a part of it, always the same, and differently for others', () => {
  const schedule = stored({ every: '1h', jitter: '10m' })
  const delays: number[] = []
  for (let tick = schedule.tickMs; tick !== null && delays.length < 200; tick = tickAfter(schedule, tick)) {
    const delayMs = dueMsOf(schedule, tick) - tick
    expect(dueMsOf({ ...schedule }, tick) - tick).toBe(delayMs)
    delays.push(delayMs)
  }
  expect(Math.min(...delays)).toBeGreaterThanOrEqual(0)
  expect(Math.max(...delays)).toBeLessThanOrEqual(10 * MINUTE)
  const mean = delays.reduce((sum, each) => sum + each, 0) / delays.length
  expect(mean).toBeGreaterThan(4 * MINUTE)
  expect(mean).toBeLessThan(6 * MINUTE)
  expect(dueMsOf({ ...schedule, id: 'b' }, START)).not.toBe(dueMsOf(schedule, START))
})

test.each<[string, StoredScheduleOptions]>([
  ['an hour and a day', { cron: '0 * * * *', jitter: '24h' }],
  ['an hour and two hours', { cron: '0 * * * *', jitter: '2h' }],
  ['ten minutes and an hour', { cron: '*/10 * * * *', jitter: '1h' }],
  ['an hour or 23 hours and a day', { cron: '0 9,10 * * *', jitter: '24h' }],
  ['five minutes and ten', { every: '5m', jitter: '10m' }],
  ['five minutes and five', { every: '5m', jitter: '5m' }],
])('with ticks and a jitter of %s each tick becomes one job, before the next tick', (_, settings) => {
  const untilMs = START + 10 * 24 * HOUR
  for (const missed of ['skip', 'once', 'all'] as const) {
    const schedule = stored({ ...settings, missed, overlap: 'allow' })
    const ticks: string[] = []
    for (let tick = schedule.tickMs; tick !== null; tick = tickAfter(schedule, tick)) {
      const dueMs = dueMsOf(schedule, tick)
      if (dueMs >= untilMs) break
      if (dueMs < tick || dueMs >= (tickAfter(schedule, tick) ?? 0)) expect.fail(`${tick} is due at ${dueMs}`)
      ticks.push(new Date(tick).toISOString())
    }
    expect(ticks.length).toBeGreaterThanOrEqual(19)
    expect(played(schedule, untilMs)).toEqual(ticks)
  }
})

test('a long outage takes one look, however long the jitter is', () => {
  const nowMs = START + 20 * 24 * HOUR
  for (const missed of ['skip', 'once'] as const) {
    const schedule = stored({ cron: '* * * * * *', jitter: '24h', missed })
    const { fires, missed: left, next } = advanceOf(schedule, nowMs)
    expect(fires.every((tick) => nowMs - tick <= 31 * SECOND)).toBe(true)
    expect(left).toMatchObject({ firstMs: START + SECOND, isAtLeast: true })
    expect(left?.count).toBeLessThan(1100)
    expect(next?.dueMs).toBeGreaterThan(nowMs)
  }
})
