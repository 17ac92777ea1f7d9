import { readdirSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { Check, CheckName } from '../../src/cli/torture/checker/check.ts'
import { judgeRun, refusedKeys } from '../../src/cli/torture/checker/judge.ts'
import type { RegisterLine, WorkerRecord } from '../../src/cli/torture/record.ts'
import { hold, type WrittenHistory, written } from './history.ts'

function checked(
  name: CheckName,
  history: WrittenHistory,
  { forgets = false, keepsOrder = true, stuckProcesses = 0, leftovers = [] as string[] } = {},
): Pick<Check, 'broken' | 'excused'> {
  const terms = { ttlMs: 2000, settleMs: 10_000, forgets, keepsOrder }
  const { checks } = judgeRun({ history: written(history), terms }, { stuckProcesses, leftovers })
  const { broken, excused } = checks.find((check) => check.name === name) as Check
  return { broken, excused }
}

test('the checker shares no code with the locks', () => {
  const folder = new URL('../../src/cli/torture/checker/', import.meta.url)
  const imported = readdirSync(folder).flatMap((file) =>
    Array.from(readFileSync(new URL(file, folder), 'utf8').matchAll(/ from '([^']+)'/g), ([, path]) => path),
  )
  expect(imported.length).toBeGreaterThan(10)
  expect(imported.filter((path) => !/^\.\/[\w-]+\.ts$/.test(path ?? '') && path !== '../record.ts')).toEqual(
    [],
  )
})

describe('exclusion', () => {
  const first = hold({ id: 'a', asked: 90, held: [100, 200], fence: 1, released: 210 })

  test('two holds one after the other are fine', () => {
    const second = hold({ id: 'b', asked: 95, held: [211, 220], fence: 2 })
    expect(checked('exclusion', { workers: { 1: first, 2: second } })).toEqual({ broken: 0, excused: 0 })
  })

  test('two holds at the same time are an overlap', () => {
    const second = hold({ id: 'b', asked: 95, held: [150, 160], fence: 2 })
    expect(checked('exclusion', { workers: { 1: first, 2: second } })).toEqual({ broken: 1, excused: 0 })
  })

  test('readers hold together, and a writer does not', () => {
    const reader = (id: string, at: number) =>
      hold({ id, asked: at, held: [at, at + 100], fence: at, limit: null })
    const readers = { 1: reader('a', 100), 2: reader('b', 120) }
    expect(checked('exclusion', { workers: readers })).toEqual({ broken: 0, excused: 0 })
    const writer = hold({ id: 'c', asked: 130, held: [150], fence: 300 })
    expect(checked('exclusion', { workers: { ...readers, 3: writer } })).toEqual({ broken: 1, excused: 0 })
  })

  test('permits count by their sum', () => {
    const permit = (id: string, units: number) =>
      hold({ id, asked: 90, held: [100, 200], fence: units, units, limit: 3 })
    expect(checked('exclusion', { workers: { 1: permit('a', 2), 2: permit('b', 1) } })).toEqual({
      broken: 0,
      excused: 0,
    })
    expect(checked('exclusion', { workers: { 1: permit('a', 2), 2: permit('b', 3) } }).broken).toBe(1)
  })

  test('only a server that may lose its data excuses an overlap, and only for a ttl', () => {
    const server = [
      { tag: 'fault', at: 140, nth: 1, kind: 'server', slot: null, how: 'flush' },
      { tag: 'fault-ended', at: 145, nth: 1 },
    ] as const
    const second = hold({ id: 'b', asked: 95, held: [150, 160], fence: 2 })
    const history = { workers: { 1: first, 2: second }, nemesis: server }
    expect(checked('exclusion', history).broken).toBe(1)
    expect(checked('exclusion', history, { forgets: true })).toEqual({ broken: 0, excused: 1 })
    const tooLong = hold({ id: 'a', asked: 90, held: [100, 2200], fence: 1 })
    expect(
      checked('exclusion', { ...history, workers: { 1: tooLong, 2: second } }, { forgets: true }).broken,
    ).toBe(1)
  })
})

describe('fences', () => {
  test.each([
    ['a fence that was given twice', 1, 1],
    ['a fence that falls', 5, 4],
  ])('%s is found', (_, one, other) => {
    const first = hold({ id: 'a', asked: 10, held: [20, 30], fence: one, released: 31 })
    const second = hold({ id: 'b', asked: 40, held: [50], fence: other })
    expect(checked('fences', { workers: { 1: first, 2: second } }).broken).toBe(1)
  })

  test('a later holder that asked before still needs a higher fence', () => {
    const first = hold({ id: 'a', asked: 10, held: [20, 30], fence: 5, released: 31 })
    const second = hold({ id: 'b', asked: 15, held: [50], fence: 4 })
    expect(checked('fences', { workers: { 1: first, 2: second } }).broken).toBe(1)
  })

  test('only the loss of data, and only for a ttl, excuses a lower fence that is held after a higher one', () => {
    const server = [
      { tag: 'fault', at: 16, nth: 1, kind: 'server', slot: null, how: 'flush' },
      { tag: 'fault-ended', at: 18, nth: 1 },
    ] as const
    const after = hold({ id: 'a', asked: 15, held: [20, 30], fence: 5, released: 31 })
    const lost = (lastHeldAt: number) => hold({ id: 'b', asked: 10, held: [50, lastHeldAt], fence: 4 })
    const history = { workers: { 1: after, 2: lost(60) }, nemesis: server }
    expect(checked('fences', history).broken).toBe(1)
    expect(checked('fences', history, { forgets: true })).toEqual({ broken: 0, excused: 1 })
    const tooLong = { ...history, workers: { 1: after, 2: lost(2100) } }
    expect(checked('fences', tooLong, { forgets: true }).broken).toBe(1)
    // Its lease lasts longer than one from before the loss: so it was granted after it.
    const grantedAfter = { ...history, workers: { 1: after, 2: lost(1100) } }
    expect(checked('fences', grantedAfter, { forgets: true }).broken).toBe(1)
    // The one with the lower fence asked when the other one had its lease: nothing explains that.
    const later = hold({ id: 'b', asked: 40, held: [50, 60], fence: 4 })
    expect(checked('fences', { ...history, workers: { 1: after, 2: later } }, { forgets: true }).broken).toBe(
      1,
    )
  })

  test('permits that were asked for at the same time have fences in any order', () => {
    const permit = (id: string, fence: number) => hold({ id, asked: 10, held: [20, 30], fence, limit: 3 })
    expect(checked('fences', { workers: { 1: permit('a', 5), 2: permit('b', 4) } }).broken).toBe(0)
  })
})

describe('the registers', () => {
  const write = (id: string, nth: number, fence: number, saw: string, sawFenced = saw): RegisterLine => ({
    ...{ id, nth, what: 'write', fence: String(fence), saw, sawFenced },
  })
  const wrote = (id: string, nth: number, held: boolean): WorkerRecord => ({ tag: 'wrote', id, nth, held })
  const one = hold({ id: 'a', asked: 10, held: [20, 30], fence: 1 })
  const two = hold({ id: 'b', asked: 10, held: [40, 50], fence: 2 })

  test('a write of somebody who has not seen the write before it is a lost update', () => {
    const register = [write('a', 1, 1, ''), write('b', 1, 2, '')]
    const workers = { 1: [...one, wrote('a', 1, true)], 2: [...two, wrote('b', 1, true)] }
    expect(checked('plain-register', { workers, register }).broken).toBe(1)
    expect(checked('fenced-register', { workers, register }).broken).toBe(1)
  })

  test('a write after the end of the lease excuses the register without fences, and fences refuse it', () => {
    const register = [
      write('a', 1, 1, ''),
      { ...write('b', 1, 2, ''), what: 'enter' as const },
      write('b', 2, 2, 'a 1'),
      write('a', 2, 1, 'a 1'),
      write('b', 3, 2, 'a 2', 'b 2'),
    ]
    const workers = {
      1: [...one, wrote('a', 1, true), wrote('a', 2, false)],
      2: [...two, wrote('b', 2, true), wrote('b', 3, true)],
    }
    expect(checked('plain-register', { workers, register })).toEqual({ broken: 0, excused: 1 })
    expect(checked('fenced-register', { workers, register })).toEqual({ broken: 0, excused: 0 })
  })

  test('a server that may lose its data excuses the register without fences, and only for a ttl', () => {
    const nemesis = [
      { tag: 'fault', at: 35, nth: 1, kind: 'server', slot: null, how: 'flush' },
      { tag: 'fault-ended', at: 38, nth: 1 },
    ] as const
    // The first holder looks, the second one writes, and the first one writes after it.
    const register = [write('b', 1, 2, ''), write('a', 1, 1, '')]
    const holders = (lastOfFirst: number) => ({
      1: [...hold({ id: 'a', asked: 10, held: [20, lastOfFirst], fence: 1 }), wrote('a', 1, true)],
      2: [...two, wrote('b', 1, true)],
    })
    const workers = holders(60)
    expect(checked('plain-register', { workers, register, nemesis }).broken).toBe(1)
    const forgets = { forgets: true }
    expect(checked('plain-register', { workers, register, nemesis }, forgets)).toEqual({
      broken: 0,
      excused: 1,
    })
    expect(checked('plain-register', { workers, register }, forgets).broken).toBe(1)
    expect(checked('plain-register', { workers: holders(2100), register, nemesis }, forgets).broken).toBe(1)
  })
})

describe('waiters', () => {
  const holder = hold({ id: 'a', asked: 10, held: [20, 100], fence: 1, released: 100 })
  const early = hold({ id: 'b', asked: 30, queued: 31, held: [200, 210], fence: 3, released: 211 })
  const late = hold({ id: 'c', asked: 50, queued: 51, held: [102, 110], fence: 2, released: 111 })

  test('nobody goes before a waiter that came earlier', () => {
    expect(checked('arrival', { workers: { 1: holder, 2: early, 3: late } }).broken).toBe(1)
  })

  test('a waiter counts once, however many went before it, and its process is named with its place', () => {
    const more = [1, 2, 3].map((nth) =>
      hold({ id: `m${nth}`, asked: 50 + nth, held: [110 + nth], fence: 10 + nth, released: 110 + nth }),
    )
    const workers = { 1: holder, 2: early, 3: late, 4: more.flat() }
    expect(checked('arrival', { workers })).toEqual({ broken: 1, excused: 0 })
    const terms = { ttlMs: 2000, settleMs: 10_000, forgets: false, keepsOrder: true }
    const { checks } = judgeRun(
      { history: written({ workers }), terms },
      { stuckProcesses: 0, leftovers: [] },
    )
    const text = checks.find(({ name }) => name === 'arrival')?.evidence[0]?.text
    expect(text).toMatch(/^process 2 \(place 2\) waited from .+; process 3 \(place 3\) asked at/)
  })

  test('a waiter whose process was stopped may be passed, and redlock promises no order', () => {
    const nemesis = [
      { tag: 'fault', at: 60, nth: 1, kind: 'pause', slot: 1, how: 'SIGSTOP' },
      { tag: 'fault-ended', at: 150, nth: 1 },
    ] as const
    const workers = { 1: holder, 2: early, 3: late }
    expect(checked('arrival', { workers, nemesis })).toEqual({ broken: 0, excused: 1 })
    expect(checked('arrival', { workers }, { keepsOrder: false })).toEqual({ broken: 0, excused: 1 })
  })

  test('many hand-overs that take as long as asking again were not told by a message', () => {
    const slow = Array.from({ length: 12 }, (_, index) =>
      hold({
        ...{ id: `t${index}`, asked: index * 1000 - 1000, queued: index * 1000 - 990, fence: index + 1 },
        ...{ held: [index * 1000, index * 1000 + 20], released: index * 1000 + 20 },
      }),
    ).flat()
    expect(checked('wakes', { workers: { 1: slow } }).broken).toBe(11)
  })

  test('the last of many readers to release hands the key over, whichever of them came first', () => {
    const readers = Array.from({ length: 40 }, (_, index) =>
      hold({
        ...{ id: `r${index}`, asked: index, held: [100 + index, 4000], fence: index + 1, limit: null },
        // The reader that was let in first leaves last.
        released: 5000 - index,
      }),
    ).flat()
    const writer = (granted: number) =>
      hold({ id: 'w', asked: 3000, queued: 3001, held: [granted], fence: 100, released: granted + 10 })
    const judged = (granted: number) => {
      const history = written({ workers: { 1: readers, 2: writer(granted) } })
      const terms = { ttlMs: 2000, settleMs: 10_000, forgets: false, keepsOrder: true }
      return judgeRun({ history, terms }, { stuckProcesses: 0, leftovers: [] }).numbers.handOverMs
    }
    expect(judged(5001)).toMatchObject({ count: 1, longest: 1 })
    expect(judged(5800)).toMatchObject({ count: 1, longest: 800 })
  })

  test('a waiter is left behind if nobody holds the key for longer than the settling time', () => {
    const forgotten: WorkerRecord[] = [
      { tag: 'asked', at: 90, id: 'w', key: 'k', units: 1, limit: 1 },
      { tag: 'queued', at: 91, id: 'w' },
    ]
    expect(checked('waiting', { workers: { 1: holder, 2: forgotten } }).broken).toBe(1)
    const served: WorkerRecord[] = [...forgotten, { tag: 'granted', at: 9000, id: 'w', fence: '9' }]
    expect(checked('waiting', { workers: { 1: holder, 2: served } }).broken).toBe(0)
  })
})

describe('waiters and a server that is away', () => {
  const holder = hold({ id: 'a', asked: 10, held: [20, 100], fence: 1, released: 100 })
  const waiter = (granted: number): WorkerRecord[] => [
    { tag: 'asked', at: 90, id: 'w', key: 'k', units: 1, limit: 1 },
    { tag: 'queued', at: 91, id: 'w' },
    { tag: 'granted', at: granted, id: 'w', fence: '9' },
  ]
  const away = [
    { tag: 'fault', at: 1000, nth: 1, kind: 'server', slot: null, how: 'stopped' },
    { tag: 'fault-ended', at: 30_000, nth: 1 },
  ] as const

  test('a waiter is not left behind while the program of --on-fault has the server', () => {
    const workers = (granted: number) => ({ 1: holder, 2: waiter(granted) })
    expect(checked('waiting', { workers: workers(35_000), nemesis: away }).broken).toBe(0)
    expect(checked('waiting', { workers: workers(35_000) }).broken).toBe(1)
    expect(checked('waiting', { workers: workers(50_000), nemesis: away }).broken).toBe(1)
  })

  test('time in which the after-effects of two faults overlap counts once', () => {
    const twice = [
      ...away,
      { tag: 'fault', at: 30_500, nth: 2, kind: 'server', slot: null, how: 'stopped' },
      { tag: 'fault-ended', at: 31_000, nth: 2 },
    ] as const
    expect(checked('waiting', { workers: { 1: holder, 2: waiter(44_000) }, nemesis: twice }).broken).toBe(0)
    expect(checked('waiting', { workers: { 1: holder, 2: waiter(45_500) }, nemesis: twice }).broken).toBe(1)
  })
})

test('a waiter is left behind although the server is away again and again', () => {
  const holder = hold({ id: 'a', asked: 10, held: [20, 100], fence: 1, released: 100 })
  const left: WorkerRecord[] = [
    { tag: 'asked', at: 90, id: 'w', key: 'k', units: 1, limit: 1 },
    { tag: 'queued', at: 91, id: 'w' },
    { tag: 'gave-up', at: 58_000, id: 'w', why: 'aborted' },
  ]
  const nemesis = Array.from({ length: 16 }, (_, at) => [
    { tag: 'fault', at: 1000 + 3500 * at, nth: at, kind: 'server', slot: null, how: 'stopped' } as const,
    { tag: 'fault-ended', at: 3000 + 3500 * at, nth: at } as const,
  ]).flat()
  expect(checked('waiting', { workers: { 1: holder, 2: left }, nemesis }).broken).toBe(1)
})

describe('losses', () => {
  const lease = (...more: readonly WorkerRecord[]) => [
    ...hold({ id: 'a', asked: 10, held: [20], fence: 1 }),
    ...more,
  ]
  const lost = (at: number, reason: string): WorkerRecord => ({ tag: 'lost', at, id: 'a', reason })

  test('a loss is told by the deadline, and the time in which the process did not run does not count', () => {
    expect(checked('told', { workers: { 1: lease(lost(1020, 'expired')) } }).broken).toBe(0)
    expect(checked('told', { workers: { 1: lease(lost(3000, 'expired')) } }).broken).toBe(1)
    const gap: WorkerRecord = { tag: 'gap', from: 900, at: 2990 }
    expect(checked('told', { workers: { 1: lease(gap, lost(3000, 'expired')) } }).broken).toBe(0)
  })

  test('a store gives up no lease before its time', () => {
    expect(checked('forgotten', { workers: { 1: lease(lost(500, 'store-reset')) } }).broken).toBe(1)
    expect(checked('forgotten', { workers: { 1: lease(lost(1020, 'expired')) } }).broken).toBe(0)
  })

  test('a server that may lose its data excuses the loss of a lease that was asked for before the end of its fault', () => {
    const nemesis = [
      { tag: 'fault', at: 1000, nth: 1, kind: 'server', slot: null, how: 'flush' },
      { tag: 'fault-ended', at: 5000, nth: 1 },
    ] as const
    const asked = (at: number) => ({
      workers: {
        1: [...hold({ id: 'a', asked: at, held: [at + 10], fence: 1 }), lost(at + 1000, 'store-reset')],
      },
      nemesis,
    })
    // The program may take its time before it breaks the server.
    expect(checked('forgotten', asked(3500), { forgets: true })).toEqual({ broken: 0, excused: 1 })
    expect(checked('forgotten', asked(3500)).broken).toBe(1)
    expect(checked('forgotten', asked(5001), { forgets: true }).broken).toBe(1)
  })
})

test('what fails after the faults, does not end, or stays in the store is broken', () => {
  const failed: WorkerRecord = { tag: 'took-last', at: 100, key: 'k', error: 'no answer' }
  expect(checked('recovery', { workers: { 1: [failed] } }, { stuckProcesses: 1 }).broken).toBe(2)
  expect(checked('leftovers', { workers: { 1: [] } }, { leftovers: ['k has 1 holders'] }).broken).toBe(1)
})

test('a line that a kill has cut off is left out', () => {
  const history = written({ workers: { 1: hold({ id: 'a', asked: 10, held: [20], fence: 1 }) } })
  expect(history.tickets).toHaveLength(1)
})

test('a key is named if several asked for it before the last round and nobody got it', () => {
  const held = hold({ id: 'a', asked: 10, held: [20], fence: 1 })
  const inLastRound = hold({ id: 'b', asked: 60_001, held: [60_010], fence: 2 })
  const inVain = ['c', 'd', 'e'].flatMap((id): WorkerRecord[] => [
    ...hold({ id, asked: 30, held: [35], fence: 9 }).slice(0, 1),
    { tag: 'gave-up', at: 40, id, why: 'store' },
  ])
  const terms = { ttlMs: 2000, settleMs: 10_000, forgets: false, keepsOrder: true }
  const refused = (records: readonly WorkerRecord[], calmAt = 60_000) =>
    refusedKeys({ history: written({ workers: { 1: records }, calmAt }), terms }, ['k', 'never'])
  expect(refused([...inVain, ...inLastRound])).toEqual(['k'])
  expect(refused([...held, ...inVain, ...inLastRound])).toEqual([])
  expect(refused([...inVain.slice(2), ...inLastRound])).toEqual([])
  // The end of the faults has withdrawn them.
  expect(refused(inVain, 39)).toEqual([])
  const hangs: WorkerRecord[] = [
    { tag: 'asked', at: 100, id: 'h', key: 'k', units: 1, limit: 1 },
    { tag: 'gave-up', at: 60_005, id: 'h', why: 'aborted' },
  ]
  expect(refused(hangs)).toEqual(['k'])
  expect(refused(hangs, 9000)).toEqual([])
})

test('a run without a lease proves nothing', () => {
  const terms = { ttlMs: 2000, settleMs: 10_000, forgets: false, keepsOrder: true }
  const { holds } = judgeRun(
    { history: written({ workers: { 1: [] } }), terms },
    { stuckProcesses: 0, leftovers: [] },
  )
  expect(holds).toBe(false)
})
