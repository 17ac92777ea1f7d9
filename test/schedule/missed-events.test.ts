import { describe, expect, onTestFinished, test } from 'vitest'
import { type ScheduledJobOptions, type ScheduleEvents, scheduleEvents } from '../../src/schedule/index.ts'
import { seededRandom } from '../../src/testing/index.ts'
import { type Member, Stage } from './stage.ts'

const MINUTE_MS = 60_000
/** By then every tick is judged: the window of 30 s, 5 minutes for wrong clocks, and the longest sleep. */
const JUDGED_MS = 7 * MINUTE_MS

/** The ticks that are told from now on, as `08:10` or `08:10:30`. */
function listens(event: 'missed' | 'overlapped'): string[] {
  const told: string[] = []
  const stop =
    event === 'overlapped'
      ? scheduleEvents.on(event, ({ scheduledAt }) => told.push(shown(scheduledAt.toISOString())))
      : scheduleEvents.on(event, (missed) => told.push(...ticksOf(missed)))
  onTestFinished(stop)
  return told
}

/** The ticks of these tests are equally far from each other. */
function ticksOf({ count, firstAt, lastAt }: MissedTicksEvent): string[] {
  const stepMs = (lastAt.getTime() - firstAt.getTime()) / Math.max(1, count - 1)
  return Array.from({ length: count }, (_, at) =>
    shown(new Date(firstAt.getTime() + at * stepMs).toISOString()),
  )
}

type MissedTicksEvent = ScheduleEvents['missed']

function starts(
  stage: Stage,
  name: string,
  options: ScheduledJobOptions & { aheadMs?: number; expression?: string; forMs?: number } = {},
): Member {
  const { aheadMs = 0, expression = '*/10 * * * *', forMs = 0, ...job } = options
  const member = stage.member(name, { aheadMs })
  member.schedule.add('job', expression, job, stage.work(member, forMs))
  member.schedule.start()
  return member
}

const shown = (tick: string) => tick.slice(11, 19).replace(/:00$/, '')
const ran = (stage: Stage) => stage.ticks.map(shown)

describe('a missed tick', () => {
  test('is told by one process, when all processes were down', async () => {
    const missed = listens('missed')
    const stage = new Stage('2027-01-15T08:00:30Z')
    const first = starts(stage, 'first')
    await stage.clock.advance(20 * MINUTE_MS)
    await stage.clock.until(first.schedule.stop())
    await stage.clock.advance(32 * MINUTE_MS)
    for (const [name, aheadMs] of Object.entries({ a: 0, b: 800, c: -1300 })) starts(stage, name, { aheadMs })
    await stage.clock.advance(20 * MINUTE_MS)
    expect(ran(stage)).toEqual(['08:10', '08:20', '09:00', '09:10'])
    expect(missed).toEqual(['08:30', '08:40', '08:50'])
  })

  test.each([
    { missed: 'once', expected: ['08:30', '08:40'] },
    { missed: 'all', expected: ['08:30'] },
  ] as const)('is not one that is made up for ($missed)', async ({ missed: policy, expected }) => {
    const missed = listens('missed')
    const stage = new Stage('2027-01-15T08:00:30Z')
    const options = { missed: policy, catchUp: '15m' } as const
    const first = starts(stage, 'first', options)
    await stage.clock.advance(20 * MINUTE_MS)
    await stage.clock.until(first.schedule.stop())
    await stage.clock.advance(32 * MINUTE_MS)
    for (const name of ['a', 'b']) starts(stage, name, options)
    await stage.clock.advance(22 * MINUTE_MS)
    expect(missed).toEqual(expected)
    expect(ran(stage).filter((tick) => missed.includes(tick))).toEqual([])
  })

  test('is told when the store was away, once for all processes', async () => {
    const missed = listens('missed')
    const stage = new Stage()
    const fleet = [0, 900, -700].map((aheadMs, at) =>
      starts(stage, `m${at}`, { aheadMs, expression: '* * * * *' }),
    )
    await stage.clock.advance(2 * MINUTE_MS)
    for (const { store } of fleet) store.always('fail')
    await stage.clock.advance(3 * MINUTE_MS)
    for (const { store } of fleet) store.always('answer')
    await stage.clock.advance(5 * MINUTE_MS + JUDGED_MS)
    const minutes = Array.from({ length: 10 }, (_, at) => `08:${String(at + 1).padStart(2, '0')}`)
    expect(missed.length).toBeGreaterThanOrEqual(2)
    expect([...missed, ...ran(stage).filter((tick) => tick <= '08:10')].sort()).toEqual(minutes)
  })

  test('is told when the event loop of the only process was blocked', async () => {
    const missed = listens('missed')
    const stage = new Stage()
    starts(stage, 'a', { expression: '* * * * *' })
    await stage.clock.advance(2 * MINUTE_MS)
    stage.clock.block(3.5 * MINUTE_MS)
    await stage.clock.advance(JUDGED_MS)
    expect(missed).toEqual(['08:03', '08:04', '08:05'])
    expect(ran(stage)).not.toEqual(expect.arrayContaining(missed))
  })

  test('is told apart from others with a run in between, also when all are judged at the same time', async () => {
    const events: MissedTicksEvent[] = []
    onTestFinished(scheduleEvents.on('missed', (event) => events.push(event)))
    const stage = new Stage()
    starts(stage, 'a', { expression: '* * * * *' })
    await stage.clock.advance(2 * MINUTE_MS)
    stage.clock.block(1.6 * MINUTE_MS)
    await stage.clock.advance(0.5 * MINUTE_MS)
    expect(ran(stage)).toEqual(['08:01', '08:02', '08:04'])
    stage.clock.block(7.5 * MINUTE_MS)
    await stage.clock.advance(1000)
    expect(events.map(ticksOf)).toEqual([['08:03'], ['08:05', '08:06']])
  })

  test('is told by the next process, when the process that was late dies before it could tell', async () => {
    const missed = listens('missed')
    const stage = new Stage()
    const a = starts(stage, 'a', { expression: '* * * * *' })
    await stage.clock.advance(2 * MINUTE_MS)
    stage.clock.block(2.5 * MINUTE_MS)
    await stage.clock.advance(MINUTE_MS)
    await stage.kill(a)
    starts(stage, 'b', { expression: '* * * * *' })
    await stage.clock.advance(JUDGED_MS)
    expect(missed).toEqual(['08:03', '08:04'])
  })

  test('is told by none, when the process dies between its mark and its telling', async () => {
    const missed = listens('missed')
    const stage = new Stage()
    const a = starts(stage, 'a', { expression: '* * * * *' })
    starts(stage, 'b', { expression: '* * * * *', aheadMs: -100 })
    await stage.clock.advance(2 * MINUTE_MS)
    stage.clock.block(2.5 * MINUTE_MS)
    const { store } = a
    const acquire = store.acquire.bind(store)
    let deaths = 0
    store.acquire = (ticket) => {
      if (!ticket.key.endsWith('#missed')) return acquire(ticket)
      deaths += 1
      store.next('acquire', 'lose reply')
      const answer = acquire(ticket)
      store.always('lose request')
      return answer
    }
    await stage.clock.advance(4 * MINUTE_MS + JUDGED_MS)
    expect(deaths).toBeGreaterThan(0)
    // 08:03 was the one; the other process tells of the rest.
    expect(missed).toEqual(['08:04'])
  })
})

describe('a long outage', () => {
  const HOUR_MS = 60 * MINUTE_MS

  /** The events from now on. */
  function events(): MissedTicksEvent[] {
    const told: MissedTicksEvent[] = []
    onTestFinished(scheduleEvents.on('missed', (event) => told.push(event)))
    return told
  }

  const all = (told: readonly MissedTicksEvent[]) => told.flatMap(ticksOf).sort()
  const range = (fromMs: number, untilMs: number, stepMs: number) =>
    Array.from({ length: (untilMs - fromMs) / stepMs + 1 }, (_, at) =>
      shown(new Date(fromMs + at * stepMs).toISOString()),
    )
  const at = (time: string) => Date.parse(`2027-01-15T${time}Z`)

  test('is told by one event, with the count, the first and the last tick', async () => {
    const told = events()
    const stage = new Stage('2027-01-15T08:00:30Z')
    const first = starts(stage, 'first')
    await stage.clock.advance(20 * MINUTE_MS)
    await stage.clock.until(first.schedule.stop())
    await stage.clock.advance(10 * HOUR_MS)
    starts(stage, 'a')
    await stage.clock.advance(2 * HOUR_MS)
    const last = { firstAt: new Date(at('18:20:00')), lastAt: new Date(at('18:20:00')) }
    expect(told).toEqual([
      {
        ...{ event: 'missed', at: expect.any(Number), name: 'job', count: 59 },
        ...{ firstAt: new Date(at('08:30:00')), lastAt: new Date(at('18:10:00')), isAtLeast: false },
      },
      // At the start of the process it was too early to judge this one.
      { event: 'missed', at: expect.any(Number), name: 'job', count: 1, ...last, isAtLeast: false },
    ])
    expect(ran(stage).slice(0, 3)).toEqual(['08:10', '08:20', '18:30'])
  })

  test('is told once when several processes come back together, and again after the next one', async () => {
    const told = events()
    const stage = new Stage('2027-01-15T08:00:30Z')
    const aheads = { a: 0, b: 800, c: -1300 }
    let fleet = Object.entries(aheads).map(([name, aheadMs]) => starts(stage, name, { aheadMs }))
    await stage.clock.advance(20 * MINUTE_MS)
    for (const hours of [3, 5]) {
      for (const member of fleet) await stage.kill(member)
      await stage.clock.advance(hours * HOUR_MS)
      fleet = Object.entries(aheads).map(([name, aheadMs]) => starts(stage, name, { aheadMs }))
      await stage.clock.advance(HOUR_MS)
    }
    const missed = [
      ...range(at('08:30:00'), at('11:20:00'), 10 * MINUTE_MS),
      ...range(at('12:30:00'), at('17:20:00'), 10 * MINUTE_MS),
    ]
    expect(all(told)).toEqual(missed)
    expect(told.length).toBeLessThanOrEqual(6)
  })

  test('of the store is told by the processes that lived through it', async () => {
    const told = events()
    const stage = new Stage()
    const fleet = [0, 900, -700].map((aheadMs, index) =>
      starts(stage, `m${index}`, { aheadMs, expression: '* * * * *' }),
    )
    await stage.clock.advance(2.1 * MINUTE_MS)
    for (const { store } of fleet) store.always('fail')
    await stage.clock.advance(3 * HOUR_MS)
    for (const { store } of fleet) store.always('answer')
    await stage.clock.advance(JUDGED_MS)
    const missed = all(told)
    expect(new Set(missed).size).toBe(missed.length)
    expect(missed).toEqual(range(at('08:03:00'), at(`${missed.at(-1)}:00`), MINUTE_MS))
    expect(missed.length).toBeGreaterThan(178)
    expect(missed.filter((tick) => ran(stage).includes(tick))).toEqual([])
  })

  test('of more ticks than can be counted says so', async () => {
    const told = events()
    const stage = new Stage()
    const first = starts(stage, 'first', { expression: '* * * * *' })
    await stage.clock.advance(2 * MINUTE_MS)
    await stage.clock.until(first.schedule.stop())
    await stage.clock.advance(20 * HOUR_MS)
    starts(stage, 'a', { expression: '* * * * *' })
    await stage.clock.advance(JUDGED_MS)
    const [event] = told
    expect(event).toMatchObject({ firstAt: new Date(at('08:03:00')), isAtLeast: true })
    expect(event?.count).toBeGreaterThanOrEqual(1000)
    expect(event?.lastAt.getTime()).toBeGreaterThanOrEqual(at('08:00:00') + 20 * HOUR_MS - 6 * MINUTE_MS)
  })

  test('is none of a process that was cut off while another one ran the ticks', async () => {
    const told = events()
    const stage = new Stage()
    const a = starts(stage, 'a', { expression: '* * * * *' })
    const b = starts(stage, 'b', { expression: '* * * * *', aheadMs: 300 })
    await stage.clock.advance(5 * MINUTE_MS)
    a.store.always('fail')
    await stage.clock.advance(2 * HOUR_MS)
    a.store.always('answer')
    await stage.clock.advance(JUDGED_MS)
    expect(told).toEqual([])
    // Now the other one goes on for two hours, and then nobody does.
    a.store.always('fail')
    await stage.clock.advance(2 * HOUR_MS)
    await stage.kill(b)
    await stage.clock.advance(2 * HOUR_MS)
    a.store.always('answer')
    await stage.clock.advance(JUDGED_MS)
    expect(all(told).filter((tick) => ran(stage).includes(tick))).toEqual([])
    expect(all(told).length).toBeGreaterThan(115)
    expect(all(told).length).toBeLessThan(125)
  })

  test('is none if processes without a listener ran the ticks', async () => {
    const stage = new Stage()
    const old: MissedTicksEvent[] = []
    const stop = scheduleEvents.on('missed', (event) => old.push(event))
    const a = starts(stage, 'a')
    await stage.clock.advance(30 * MINUTE_MS)
    await stage.clock.until(a.schedule.stop())
    stop()
    const b = starts(stage, 'b')
    await stage.clock.advance(10 * HOUR_MS)
    await stage.clock.until(b.schedule.stop())
    const told = events()
    starts(stage, 'c')
    await stage.clock.advance(HOUR_MS)
    expect([...old, ...told]).toEqual([])
  })

  test('is none while one run takes hours', async () => {
    const told = events()
    const stage = new Stage()
    starts(stage, 'a', { forMs: 5 * HOUR_MS })
    starts(stage, 'b', { forMs: 5 * HOUR_MS, aheadMs: 200 })
    await stage.clock.advance(5.5 * HOUR_MS)
    expect(told).toEqual([])
  })

  test('is told of at most once, whenever the process that tells dies', async () => {
    const told = events()
    const stage = new Stage()
    const first = starts(stage, 'first')
    await stage.clock.advance(25 * MINUTE_MS)
    await stage.clock.until(first.schedule.stop())
    await stage.clock.advance(4 * HOUR_MS)
    const a = starts(stage, 'a')
    const { store } = a
    const acquire = store.acquire.bind(store)
    let claims = 0
    store.acquire = (ticket) => {
      if (ticket.key.endsWith('#missed')) claims += 1
      if (claims === 3) store.always('lose request')
      return acquire(ticket)
    }
    await stage.clock.advance(5 * MINUTE_MS)
    starts(stage, 'b')
    await stage.clock.advance(2 * HOUR_MS)
    const ticks = all(told)
    expect(new Set(ticks).size).toBe(ticks.length)
    expect(ticks.filter((tick) => ran(stage).includes(tick))).toEqual([])
  })
})

describe('no tick is missed', () => {
  test('that ran in another process, also while this one was suspended', async () => {
    const missed = listens('missed')
    const stage = new Stage()
    const ahead = { a: 0, b: 4000, c: -7000, d: -140_000, e: 150_000 }
    const members = Object.entries(ahead).map(([name, aheadMs]) =>
      starts(stage, name, { aheadMs, expression: '* * * * *' }),
    )
    await stage.clock.advance(10 * MINUTE_MS)
    // Cut off for longer than each of its ticks may be late.
    members[0]?.store.always('fail')
    await stage.clock.advance(6 * MINUTE_MS)
    members[0]?.store.always('answer')
    await stage.clock.advance(2 * JUDGED_MS)
    expect(missed).toEqual([])
  })

  test.each(['skip', 'queue'] as const)('that overlapped (%s)', async (overlap) => {
    const [missed, overlapped] = [listens('missed'), listens('overlapped')]
    const stage = new Stage()
    for (const [name, aheadMs] of Object.entries({ a: 0, b: 800, c: -1300 }))
      starts(stage, name, { aheadMs, expression: '* * * * *', overlap, forMs: 3.5 * MINUTE_MS })
    await stage.clock.advance(20 * MINUTE_MS)
    expect(missed).toEqual([])
    const lastMs = Date.parse(stage.ticks.at(-1) ?? '') - Date.parse(stage.ticks[0] ?? '')
    const settled = [...ran(stage), ...overlapped].filter((tick) => tick <= shown(stage.ticks.at(-1) ?? ''))
    expect(new Set(settled).size).toBe(settled.length)
    expect(settled).toHaveLength(lastMs / MINUTE_MS + 1)
  })

  test('that came during a run which still goes on when a process starts', async () => {
    const [missed, overlapped] = [listens('missed'), listens('overlapped')]
    const stage = new Stage()
    starts(stage, 'a', { expression: '*/5 * * * *', forMs: 14 * MINUTE_MS })
    await stage.clock.advance(16 * MINUTE_MS)
    starts(stage, 'late', { expression: '*/5 * * * *' })
    await stage.clock.advance(10 * MINUTE_MS)
    expect(overlapped).toEqual(['08:10', '08:15'])
    expect(missed).toEqual([])
  })

  test('that ran before the clock of its process was set back', async () => {
    const missed = listens('missed')
    const stage = new Stage()
    const a = starts(stage, 'a', { expression: '* * * * *' })
    await stage.clock.advance(30 * MINUTE_MS)
    a.setClock(-40 * MINUTE_MS)
    await stage.clock.advance(60 * MINUTE_MS)
    expect(missed).toEqual([])
  })

  test('of a job that is new, or that has a new expression', async () => {
    const missed = listens('missed')
    const stage = new Stage('2027-01-15T08:00:30Z')
    const old = starts(stage, 'old')
    await stage.clock.advance(11 * MINUTE_MS)
    await stage.clock.until(old.schedule.stop())
    starts(stage, 'new', { expression: '*/5 * * * *' })
    await stage.clock.advance(20 * MINUTE_MS)
    expect(missed).toEqual([])
  })
})

test('a wall clock that is set forward during a run takes no tick from the others', async () => {
  const stage = new Stage()
  const a = stage.member('a')
  a.schedule.add('job', '* * * * *', async (run) => {
    if (stage.record.length === 0) a.setClock(10 * MINUTE_MS)
    await stage.work(a, 1000)(run)
  })
  a.schedule.start()
  starts(stage, 'b', { expression: '* * * * *', aheadMs: -100 })
  await stage.clock.advance(8 * MINUTE_MS)
  expect(ran(stage)).toEqual(expect.arrayContaining(['08:01', '08:02', '08:03', '08:04', '08:05', '08:06']))
})

test.each(Array.from({ length: 10 }, (_, seed) => seed))(
  'a random fleet tells of no tick twice, and of none that has run or overlapped (seed %i)',
  async (seed) => {
    const [missed, overlapped] = [listens('missed'), listens('overlapped')]
    const random = seededRandom(seed)
    const stage = new Stage()
    const fleet = new Set<Member>()
    const join = () =>
      fleet.add(
        starts(stage, `m${fleet.size}`, {
          aheadMs: random.between(-MINUTE_MS, MINUTE_MS),
          expression: '*/30 * * * * *',
          forMs: random.between(0, 70_000),
          ttl: '5s',
        }),
      )
    join()
    for (let passedMs = 0; passedMs < 25 * MINUTE_MS; ) {
      const pauseMs = random.between(1000, 3 * MINUTE_MS)
      await stage.clock.advance(pauseMs)
      passedMs += pauseMs
      const member = random.pick([...fleet])
      const what = random.between(0, 4)
      if (what === 0) {
        fleet.delete(member)
        await stage.kill(member)
        await stage.clock.advance(random.between(0, 2 * MINUTE_MS))
      } else if (what === 1) {
        fleet.delete(member)
        await stage.clock.until(member.schedule.stop({ grace: 0 }))
      } else if (what === 2) {
        member.store.always('fail')
        await stage.clock.advance(random.between(1, 2 * MINUTE_MS))
        member.store.always('answer')
      } else if (what === 3) member.setClock(random.between(-20_000, 20_000))
      if (fleet.size < 3) join()
    }
    await stage.clock.advance(JUDGED_MS)
    expect(missed).toEqual([...new Set(missed)])
    expect(missed.filter((tick) => ran(stage).includes(tick) || overlapped.includes(tick))).toEqual([])
  },
)
