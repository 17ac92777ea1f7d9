import { setTimeout as sleep } from 'node:timers/promises'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { createLocks, type InspectedHolder, type InspectedRoom, type Locks } from '../../src/index.ts'
import { contentionIn } from '../../src/room-watch/contention.ts'
import type { HistoryFile } from '../../src/room-watch/history-file.ts'
import type { HistoryLimits } from '../../src/room-watch/history-limits.ts'
import { lateMsOf, renewalFacts, roundTtlMs } from '../../src/room-watch/renewal-facts.ts'
import { RoomHistory } from '../../src/room-watch/room-history.ts'
import {
  type RoomWatch,
  type Snapshot,
  type WatchedLocks,
  type WatchOptions,
  watchRooms,
} from '../../src/room-watch/room-watch.ts'
import { electionsIn, isPartOf } from '../../src/room-watch/ticket-facts.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'

const UNLIMITED: HistoryLimits = {
  ...{ keys: 1000, entries: 1000, total: 10_000, looks: 1000, losses: 1000, unsaved: 1000 },
  keepMs: 3_600_000,
}

let store: Store
let locks: Locks
let watches: RoomWatch[]
beforeEach(() => {
  store = memoryStore()
  locks = createLocks(store, { label: 'test' })
  watches = []
})
afterEach(async () => {
  for (const watch of watches) watch.stop()
  await locks.close()
})

function watch(options: WatchOptions = {}, of: WatchedLocks = locks): RoomWatch {
  const started = watchRooms(of, { everyMs: 5, ...options })
  watches.push(started)
  return started
}

function roomOf({ snapshot }: RoomWatch, key: string): InspectedRoom | undefined {
  return snapshot.rooms.find((room) => room.key === key)
}

test('a snapshot has all rooms of a prefix, page after page, sorted by key', async () => {
  await Promise.all(Array.from({ length: 1200 }, (_, n) => locks.acquire(`job:${n}`)))
  await locks.acquire('other')
  const watched = watch({ prefix: 'job:' })
  await until('it has looked', () => watched.snapshot.at > 0)
  const keys = watched.snapshot.rooms.map(({ key }) => key)
  expect(keys).toHaveLength(1200)
  expect(keys).toEqual([...keys].sort())
  expect(watched.snapshot).toMatchObject({ isCut: false, store: { tag: 'present' } })
})

test('no more rooms are read than was asked for, and the snapshot says so', async () => {
  for (let n = 0; n < 6; n += 1) await locks.acquire(`job:${n}`)
  const watched = watch({ maxRooms: 5 })
  await until('it has looked', () => watched.snapshot.at > 0)
  expect([watched.snapshot.rooms.length, watched.snapshot.isCut]).toEqual([5, true])
})

test('a look that is broken off by a stop is not taken for a complete one', async () => {
  const held = await Promise.all(['job:0', 'job:1'].map((key) => locks.acquire(key)))
  let looks = 0
  const reading: WatchedLocks = {
    caveats: () => locks.caveats(),
    async *inspect(request) {
      looks += 1
      for await (const room of locks.inspect(request)) {
        if (looks > 1) watched.stop()
        yield room
      }
    },
  }
  const saved: string[] = []
  const file: HistoryFile = {
    load: () => ({ holds: [], watched: [] }),
    save: (changed) => {
      saved.push(...changed.map(({ key }) => key))
      return true
    },
  }
  const watched = watch({ file }, reading)
  await until('it is stopped', () => looks > 1)
  await sleep(50)
  expect(saved).toEqual([])
  expect(watched.totals).toHaveLength(1)
  await Promise.all(held.map((lease) => lease.release()))
})

test('the history of a key has every hold that was seen, and how it ended', async () => {
  const watched = watch({ history: { looks: 10_000 } })
  // A hold that the first look finds has begun before it, and does not count as begun.
  await until('it has looked', () => watched.snapshot.at > 0)
  const first = await locks.acquire('k')
  await until('it is seen', () => roomOf(watched, 'k')?.holders[0]?.id === first.id)
  // Between two looks less than half of this ttl may pass, also on a busy machine. Else nobody could tell how the hold ended.
  const waiting = locks.acquire('k', { ttl: 6000, renew: false })
  await until('the queue is seen', () => roomOf(watched, 'k')?.queue.length === 1)
  await first.release()
  const second = await waiting
  await until('the next is seen', () => roomOf(watched, 'k')?.holders[0]?.id === second.id)
  await until('nobody is seen', () => watched.snapshot.at > 0 && roomOf(watched, 'k') === undefined)
  const third = await locks.acquire('k')
  await until('it is seen', () => roomOf(watched, 'k')?.holders[0]?.id === third.id)
  const evicted = await locks.evictAll('k', { reason: 'stuck' })
  watched.noteEviction('k', evicted, 'stuck')
  await until('nobody is seen', () => roomOf(watched, 'k') === undefined)

  const { holds = [], samples = [] } = watched.historyOf('k') ?? {}
  expect(holds).toMatchObject([
    { id: first.id, fence: first.fence, end: 'released' },
    { id: second.id, fence: second.fence, end: 'expired' },
    { id: third.id, fence: third.fence, end: 'evicted', reason: 'stuck' },
  ])
  for (const { fromAt, untilAt = 0 } of holds) expect(untilAt).toBeGreaterThanOrEqual(fromAt)
  expect(samples).toContainEqual(expect.objectContaining({ holding: 1, waiting: 1 }))
  expect(samples.at(-1)).toMatchObject({ holding: 0, waiting: 0 })
  const sum = (of: 'begun' | 'expired') => watched.totals.reduce((all, each) => all + each[of], 0)
  expect([sum('begun'), sum('expired')]).toEqual([3, 1])
})

test('a hold that may have had its last fraction of a millisecond left does not count as released', () => {
  const history = new RoomHistory(UNLIMITED)
  const at = Date.now()
  const holders = [{ ...HOLDER, id: 'k', heldMs: 394, remainingMs: 6 }]
  const room: InspectedRoom = { key: 'k', holders, queue: [], closedMs: 0 }
  history.look(new Map([['k', room]]), { at, begunMs: performance.now() - 5.2 })
  history.look(new Map(), { at: at + 5, begunMs: performance.now() })
  expect(history.of('k')?.holds).toMatchObject([{ end: 'unclear' }])
})

test('a loss is kept with its key, its ttl and its last renewal, and an election counts once', () => {
  const history = new RoomHistory(UNLIMITED)
  const at = Date.now()
  const room = (key: string, heldMs: number, remainingMs: number): InspectedRoom => ({
    ...{ key, queue: [], closedMs: 0 },
    holders: [{ ...HOLDER, id: key, heldMs, remainingMs }],
  })
  const look = (seconds: number, rooms: readonly InspectedRoom[]) =>
    history.look(new Map(rooms.map((each) => [each.key, each])), {
      at: at + seconds * 1000,
      begunMs: performance.now() - 10,
    })
  look(0, [
    room('mailer', 60_000, 29_000),
    room('mailer#leader', 60_000, 29_000),
    room('calm#leader', 0, 5000),
  ])
  look(1, [
    room('mailer', 61_000, 30_000),
    room('mailer#leader', 61_000, 30_000),
    room('calm#leader', 3000, 2000),
  ])
  expect(history.totals.at(-1)).toMatchObject({ keys: 2, holding: 2 })
  for (const seconds of [10, 20, 30]) {
    const times = [60_000 + seconds * 1000, 31_000 - seconds * 1000] as const
    look(seconds, [room('mailer', ...times), room('mailer#leader', ...times)])
  }
  look(32, [])
  expect(history.losses).toMatchObject([
    { key: 'calm#leader', hold: { end: 'expired', ttlMs: 5000 } },
    { key: 'mailer', hold: { end: 'expired', ttlMs: 30_000, renewedAt: at + 1000, untilAt: at + 32_000 } },
  ])
  expect(history.totals.map(({ expired }) => expired)).toEqual([0, 0, 1, 0, 0, 1])
})

test('how a hold ended while nobody looked is unclear', () => {
  const history = new RoomHistory(UNLIMITED)
  const at = Date.now()
  const look = (seconds: number, holders: readonly InspectedHolder[]) =>
    history.look(
      new Map(holders.map((each) => [each.id, { key: each.id, queue: [], closedMs: 0, holders: [each] }])),
      {
        at: at + seconds * 1000,
        begunMs: performance.now() - 10,
      },
    )
  const short = { ...HOLDER, id: 'short', heldMs: 40_000, remainingMs: 20_000 }
  const long = { ...HOLDER, id: 'long', heldMs: 40_000, remainingMs: 480_000 }
  look(0, [])
  look(1, [short, long])
  look(61, [])
  for (const key of ['short', 'long']) expect(history.of(key)?.holds).toMatchObject([{ end: 'unclear' }])
  expect(history.losses).toEqual([])
})

test.each([2, 10])(
  'the loss of a long hold is listed although others of %i permits change hands',
  (permits) => {
    const history = new RoomHistory({ ...UNLIMITED, entries: 5 })
    const at = Date.now()
    const long = { ...HOLDER, id: 'long' }
    const look = (seconds: number, holders: readonly InspectedHolder[]) =>
      history.look(new Map([['k', { key: 'k', queue: [], closedMs: 0, holders }]]), {
        at: at + seconds * 1000,
        begunMs: performance.now() - 10,
      })
    look(0, [])
    for (let seconds = 1; seconds <= 20; seconds += 1) {
      const others = Array.from({ length: permits - 1 }, (_, n) => ({
        ...{ ...HOLDER, id: `${seconds}:${n}`, heldMs: 10, remainingMs: 9990 },
      }))
      look(seconds, [
        { ...long, heldMs: seconds * 1000, remainingMs: seconds < 20 ? 10_000 : 4000 },
        ...others,
      ])
    }
    look(30, [])
    look(31, [])
    expect(history.losses.filter(({ hold }) => hold.id === 'long')).toMatchObject([
      { hold: { end: 'expired' } },
    ])
  },
)

test('an expiry is a loss also where each look takes five seconds', () => {
  const history = new RoomHistory(UNLIMITED)
  const at = Date.now()
  const look = (seconds: number, holders: readonly InspectedHolder[]) =>
    history.look(new Map([['k', { key: 'k', queue: [], closedMs: 0, holders }]]), {
      at: at + seconds * 1000,
      begunMs: performance.now() - 15_300,
    })
  look(0, [])
  look(10, [{ ...HOLDER, id: 'a', heldMs: 10_000, remainingMs: 20_000 }])
  look(20, [{ ...HOLDER, id: 'a', heldMs: 20_000, remainingMs: 9500 }])
  look(30.2, [])
  expect(history.losses).toMatchObject([{ hold: { id: 'a', end: 'expired' } }])
})

test('the time that was watched goes back no further than what is kept', () => {
  const history = new RoomHistory({ ...UNLIMITED, keepMs: 60_000 })
  const at = Date.now()
  for (let seconds = 0; seconds <= 300; seconds += 10)
    history.look(new Map(), { at: at + seconds * 1000, begunMs: performance.now() - 10 })
  expect(history.watched).toEqual([{ fromAt: at + 240_000, untilAt: at + 300_000 }])
})

test('the ttl is known from a new hold or from a renewal, and less than half of it left means late', () => {
  const held = (heldMs: number, remainingMs: number): InspectedHolder => ({
    ...{ ...HOLDER, id: 'a', heldMs, remainingMs },
  })
  const fresh = renewalFacts(held(1200, 28_830), undefined)
  expect(fresh).toMatchObject({ ttlMs: 30_000, isKnown: true })
  // Renewed early, together with another hold of the process.
  expect(renewalFacts(held(7400, 29_900), fresh)).toMatchObject({ ttlMs: 30_000, isKnown: true })
  expect(renewalFacts(held(7400, 29_900), undefined)).toMatchObject({ ttlMs: 29_900, isKnown: false })
  expect(roundTtlMs(fresh.ttlMs)).toBe(30_000)
  const stuck = renewalFacts(held(90_000, 8000), undefined)
  expect(stuck).toMatchObject({ ttlMs: 8000, isKnown: false })
  expect(lateMsOf(held(91_000, 7000), stuck)).toBeUndefined()
  // It has not renewed for at least so long.
  expect(lateMsOf(held(95_000, 3000), stuck)).toBe(5000)
  const renewed = renewalFacts(held(96_000, 29_300), stuck)
  expect(renewed).toMatchObject({ isKnown: true })
  expect(roundTtlMs(renewed.ttlMs)).toBe(30_000)
  expect(lateMsOf({ ...held(120_000, 1000), state: 'leaving' }, renewed)).toBeUndefined()
})

test('an eviction is a loss, once, also when a look has missed the ticket before', () => {
  const history = new RoomHistory(UNLIMITED)
  const holder = { ...HOLDER, id: 'a', remainingMs: 30_000 }
  history.look(new Map([['k', roomWith(holder)]]), { at: 1000, begunMs: performance.now() })
  history.look(new Map(), { at: 2000, begunMs: performance.now() })
  expect(history.losses).toEqual([])
  for (const at of [2100, 2200]) history.noteEviction('k', ['a'], { reason: 'stuck', at })
  expect(history.losses).toMatchObject([
    { key: 'k', hold: { end: 'evicted', reason: 'stuck', untilAt: 2000 } },
  ])
})

test('what is older than the history goes back is forgotten, and times without a look are known', () => {
  const history = new RoomHistory({ ...UNLIMITED, keepMs: 60_000 })
  const look = (seconds: number, ...ids: readonly string[]) =>
    history.look(new Map(ids.map((id) => [id, roomWith({ ...HOLDER, id, remainingMs: 10 })])), {
      at: seconds * 1000,
      begunMs: performance.now(),
    })
  look(100, 'a')
  look(101, 'b')
  look(110)
  look(140, 'c')
  look(141, 'c')
  expect(history.watched).toEqual([
    { fromAt: 100_000, untilAt: 110_000 },
    { fromAt: 140_000, untilAt: 141_000 },
  ])
  expect([...history.changed]).toEqual(['a', 'b', 'c'])
  look(165, 'c')
  expect([...history.changed]).toEqual(['b', 'c'])
  look(171, 'c')
  expect([...history.changed]).toEqual(['c'])
  expect(history.watched.map(({ fromAt }) => fromAt)).toEqual([140_000, 165_000])
  expect(history.of('c')?.holds).toMatchObject([{ id: 'c' }])
})

test('an end is not taken for a release where the time may have run down while the looks took long', () => {
  const history = new RoomHistory({ ...UNLIMITED, keys: 10 })
  const holder = { id: 'a', units: 1, limit: 1, fence: 1n, owner: {}, heldMs: 0, state: 'held' } as const
  const seen = (remainingMs: number) => new Map([['k', roomWith({ ...holder, remainingMs })]])
  const at = Date.now()
  const now = performance.now()
  history.look(seen(300), { at, begunMs: now - 2000 })
  // The room was read at the beginning of a look that took 500 ms. So the hold may be over 400 ms later.
  history.look(seen(300), { at: at + 500, begunMs: now - 500 })
  history.look(new Map(), { at: at + 501, begunMs: now })
  expect(history.of('k')?.holds).toMatchObject([{ id: 'a', end: 'unclear' }])
})

const HOLDER: Omit<InspectedHolder, 'id' | 'remainingMs'> = {
  ...{ units: 1, limit: 1, fence: 1n, owner: { host: 'h', pid: 1 }, heldMs: 0, state: 'held' },
}

function roomWith(holder: InspectedHolder): InspectedRoom {
  return { key: 'k', holders: [holder], queue: [], closedMs: 0 }
}

test('a holder from before the watch began has not begun then, and has held for as long as the store says', async () => {
  const lease = await locks.acquire('k')
  await sleep(30)
  const watched = watch()
  await until('it has looked', () => watched.totals.length > 1)
  expect(watched.totals.map(({ begun }) => begun)).not.toContain(1)
  const [hold] = watched.historyOf('k')?.holds ?? []
  expect(hold).toMatchObject({ id: lease.id, fence: lease.fence })
  expect(watched.snapshot.at - (hold?.fromAt ?? Number.NaN)).toBeGreaterThanOrEqual(29)
})

test('history is kept for so many keys, holds and looks, and not for more', async () => {
  const watched = watch({ everyMs: 1, history: { keys: 3, entries: 2, looks: 4 } })
  await until('it has looked', () => watched.snapshot.at > 0)
  const turn = async (key: string) => {
    const lease = await locks.acquire(key)
    await until('it is seen', () => roomOf(watched, key)?.holders[0]?.id === lease.id)
    await lease.release()
    await until('it is seen to be gone', () => roomOf(watched, key) === undefined)
  }
  for (let n = 0; n < 5; n += 1) await turn('busy')
  expect(watched.historyOf('busy')?.holds).toHaveLength(2)
  expect(watched.historyOf('busy')?.samples).toHaveLength(2)
  const keys = Array.from({ length: 9 }, (_, n) => `other:${n}`)
  for (const key of keys) await turn(key)
  expect([...keys, 'busy'].filter((key) => watched.historyOf(key))).toEqual(keys.slice(-3))
  await until('it has looked often', () => watched.totals.length === 4)
})

describe('the history', () => {
  const holder = (id: string, heldMs = 0): InspectedHolder => ({
    ...{ id, heldMs, units: 1, limit: 1, fence: 1n, owner: {} },
    ...{ state: 'held', remainingMs: 30_000 },
  })
  const rooms = (held: Readonly<Record<string, InspectedHolder>>): ReadonlyMap<string, InspectedRoom> =>
    new Map(
      Object.entries(held).map(([key, each]) => [key, { key, holders: [each], queue: [], closedMs: 0 }]),
    )
  const limits = { ...UNLIMITED, keys: 3, entries: 4 }

  test('of those that change is not pushed out by those that do not, however many', () => {
    const history = new RoomHistory(limits)
    const calm = Object.fromEntries(Array.from({ length: 100 }, (_, n) => [`calm:${n}`, holder(`c${n}`)]))
    for (let look = 0; look < 6; look += 1) {
      const at = 1000 * (look + 1)
      history.look(rooms({ ...calm, busy: holder(`b${look}`) }), { at, begunMs: performance.now() })
    }
    expect(history.of('busy')?.holds.map(({ id }) => id)).toEqual(['b2', 'b3', 'b4', 'b5'])
    // A key that has not changed keeps the beginning of its history.
    for (let n = 0; n < 100; n += 1) {
      expect(history.of(`calm:${n}`)).toMatchObject({
        holds: [{ id: `c${n}` }],
        samples: [{ at: 1000, holding: 1, waiting: 0 }],
      })
    }
    expect(history.of('free')).toBeUndefined()
  })

  test('of all keys together is bounded, and of one that was forgotten nothing is made up', () => {
    const history = new RoomHistory({ ...limits, keys: 1000, total: 40 })
    const keys = Array.from({ length: 50 }, (_, n) => `k${n}`)
    const turn = (changed: number, at: number) =>
      history.look(
        rooms(Object.fromEntries(keys.map((key, n) => [key, holder(`${key}:${n < changed ? at : 0}`)]))),
        { at, begunMs: performance.now() },
      )
    turn(0, 1000)
    turn(50, 2000)
    turn(50, 3000)
    const sizes = keys.map((key) => {
      const { holds = [], samples = [] } = history.of(key) ?? {}
      return holds.length + samples.length
    })
    // A key that is remembered has three holds and samples, or two if it was forgotten before. A forgotten key has one
    // of each.
    expect(sizes.filter((size) => size > 2).reduce((sum, size) => sum + size, 0)).toBeLessThanOrEqual(40)
    expect(sizes.every((size) => size >= 2)).toBe(true)
    expect(history.of('k0')).toMatchObject({ holds: [{ id: 'k0:3000' }], samples: [{ at: 3000 }] })
  })

  test('knows an eviction of one that has not changed before', () => {
    const history = new RoomHistory(limits)
    history.look(rooms({ k: holder('a') }), { at: 1000, begunMs: performance.now() })
    history.noteEviction('k', ['a'], { reason: 'stuck', at: 1500 })
    history.noteEviction('nobody', ['b'], { reason: 'stuck', at: 1500 })
    history.look(rooms({}), { at: 2000, begunMs: performance.now() })
    expect(history.of('k')?.holds).toMatchObject([
      { id: 'a', end: 'evicted', reason: 'stuck', untilAt: 1500 },
    ])
    expect(history.of('nobody')).toBeUndefined()
  })
})

describe('contention', () => {
  const seen = (holders: readonly string[], waiting: number, heldMs = 0): Omit<InspectedRoom, 'key'> => ({
    holders: holders.map((id) => ({
      ...{ id, units: 1, limit: 1, fence: 1n, owner: {} },
      ...{ heldMs, remainingMs: 30_000, state: 'held' as const },
    })),
    queue: Array.from({ length: waiting }, (_, n) => ({
      ...{ id: `w${n}`, units: 1, limit: 1, owner: {}, waitedMs: 0 },
    })),
    closedMs: 0,
  })
  const contentionAfter = (
    looks: readonly Readonly<Record<string, Omit<InspectedRoom, 'key'>>>[],
    most = 20,
  ) => {
    const history = new RoomHistory(UNLIMITED)
    let rooms: readonly InspectedRoom[] = []
    const at = (look: number) => 1_000_000 + look * 10_000
    for (const [look, held] of looks.entries()) {
      rooms = Object.entries(held).map(([key, room]) => ({ key, ...room }))
      const byKey = new Map(rooms.map((room) => [room.key, room]))
      history.look(byKey, { at: at(look), begunMs: performance.now() })
    }
    const snapshot = {
      ...{ at: at(looks.length - 1), rooms, isCut: false, caveats: [] },
      store: { tag: 'present', lookMs: 1 } as const,
    }
    return contentionIn({ snapshot, changed: history.changed, historyOf: (key) => history.of(key) }, most)
  }

  test('is how many tickets waited on average over the last minute, also for a key that is free by now', () => {
    const always = (look: number) => ({
      stuck: seen(['s'], 1, look * 10_000),
      calm: seen(['c'], 0, look * 10_000),
    })
    const looks = [
      // This hold was over before the last minute.
      { ...always(0), early: seen(['e'], 9) },
      ...[4, 4, 4, 2, 2, 2].map((waiting, n) => ({ ...always(n + 1), busy: seen([`b${n}`], waiting) })),
      always(7),
    ]
    const found = contentionAfter(looks)
    expect(found).toEqual([
      { key: 'busy', averageWaiting: 3, mostWaiting: 4, handOvers: 5 },
      { key: 'stuck', averageWaiting: 1, mostWaiting: 1, handOvers: 0 },
    ])
    expect(contentionAfter(looks, 1)).toEqual(found.slice(0, 1))
  })

  test('is not that of elections, whose candidates wait for as long as one leads', () => {
    const looks = [{ mailer: seen(['a'], 2), 'mailer#leader': seen(['a'], 3), other: seen(['o'], 1) }]
    expect(contentionAfter(looks).map(({ key }) => key)).toEqual(['other'])
  })
})

describe('while the store is away', () => {
  test('the last rooms stay, with a message, until it is back', async () => {
    let isAway = false
    const inspect = store.inspect.bind(store)
    store.inspect = (request) => {
      if (isAway) throw new Error('connect ECONNREFUSED')
      return inspect(request)
    }
    await locks.acquire('k')
    const watched = watch()
    await until('it has looked', () => watched.snapshot.rooms.length === 1)
    isAway = true
    await until('it says so', () => watched.snapshot.store.tag === 'away')
    const { sinceAt } = watched.snapshot.store as Extract<Snapshot['store'], { tag: 'away' }>
    expect(watched.snapshot).toMatchObject({ rooms: [{ key: 'k' }], store: { message: expect.any(String) } })
    await until('it has said so again', () => watched.snapshot.store !== undefined)
    expect(watched.snapshot.store).toMatchObject({ tag: 'away', sinceAt })
    isAway = false
    await until('it is back', () => watched.snapshot.store.tag === 'present')
  })

  test('silence is told before the request is given up, and no second look is begun meanwhile', async () => {
    let looks = 0
    const silent = new Promise<never>(() => {})
    const watched = watch(
      {},
      {
        caveats: async () => [],
        async *inspect() {
          looks += 1
          yield await silent
        },
      },
    )
    await until('it says so', () => watched.snapshot.store.tag === 'away')
    const { sinceAt, message } = watched.snapshot.store as Extract<Snapshot['store'], { tag: 'away' }>
    expect(message).toBe('There is no answer.')
    expect(Date.now() - sinceAt).toBeGreaterThanOrEqual(2900)
    expect(looks).toBe(1)
  })

  test('a store that answers is not away, also if it finds no key for long', async () => {
    const inspect = store.inspect.bind(store)
    let pages = 0
    store.inspect = async (request) => {
      pages += 1
      await sleep(50)
      return pages < 50 ? { rooms: [], next: String(pages) } : inspect({ ...request, cursor: undefined })
    }
    await locks.acquire('k')
    const seen: Snapshot[] = []
    watch({ silentMs: 1900, onSnapshot: (snapshot) => seen.push(snapshot) })
    await until('it has looked', () => seen.length > 0)
    expect(seen[0]).toMatchObject({ rooms: [{ key: 'k' }], store: { tag: 'present' } })
  })

  test('a look that is silent in its middle, and succeeds, has its caveats', async () => {
    const seen: Snapshot[] = []
    let asked = 0
    watch(
      { silentMs: 100, onSnapshot: (snapshot) => seen.push(snapshot) },
      {
        caveats: async () => [`asked ${++asked} times`],
        async *inspect() {
          yield roomWith({ ...HOLDER, id: 'a', remainingMs: 1000 })
          if (asked === 1) await until('the silence is told', () => seen.length > 0)
        },
      },
    )
    await until('there was another look', () => seen.length > 2)
    expect(seen.slice(0, 3).map(({ store: { tag }, caveats }) => [tag, caveats])).toEqual([
      ['away', []],
      ['present', ['asked 1 times']],
      ['present', ['asked 2 times']],
    ])
  })
})

test('a look that takes long is followed by a pause as long as that', async () => {
  const looks: { from: number; to: number }[] = []
  watch(
    { everyMs: 1 },
    {
      caveats: async () => [],
      async *inspect() {
        const look = { from: performance.now(), to: 0 }
        looks.push(look)
        await sleep(40)
        yield* []
        look.to = performance.now()
      },
    },
  )
  await until('there were some', () => looks.length > 3)
  for (const [index, { from, to }] of looks.slice(0, 3).entries()) {
    expect((looks[index + 1]?.from ?? 0) - to).toBeGreaterThanOrEqual((to - from) * 0.9)
  }
})

test('looking now does not wait for the next look, and after stop there is none', async () => {
  const snapshots: Snapshot[] = []
  const watched = watch({ everyMs: 3_600_000, onSnapshot: (snapshot) => snapshots.push(snapshot) })
  await until('it has looked', () => snapshots.length === 1)
  await locks.acquire('k')
  watched.lookNow()
  await until('it has looked again', () => snapshots.length === 2)
  expect(snapshots.at(-1)?.rooms).toMatchObject([{ key: 'k' }])
  watched.lookNow()
  watched.stop()
  await locks.acquire('k2')
  expect(watched.snapshot).toBe(snapshots.at(-1))
})

test('a caller that wants a fresh look waits for the one that is under way, and needs no other', async () => {
  let looks = 0
  let end = () => {}
  const watched = watch(
    { everyMs: 3_600_000 },
    {
      caveats: async () => [],
      async *inspect() {
        looks += 1
        await new Promise<void>((resolve) => {
          end = resolve
        })
        yield* []
      },
    },
  )
  await until('it looks', () => looks === 1)
  watched.lookUnlessLooking()
  end()
  await until('it has looked', () => watched.snapshot.at > 0)
  await sleep(100)
  expect(looks).toBe(1)
  watched.lookUnlessLooking()
  await until('it looks again', () => looks === 2)
  end()
})

test('it ends by itself when the locks are closed', async () => {
  let asked = 0
  const watched = watch(
    {},
    {
      caveats: async () => [],
      inspect: (options) => {
        asked += 1
        return locks.inspect(options)
      },
    },
  )
  await until('it has looked', () => watched.snapshot.at > 0)
  await locks.close()
  const before = asked
  await until('it has found out', () => asked > before)
  watched.lookNow()
  await new Promise(setImmediate)
  expect(asked).toBe(before + 1)
})

test('a key that ends like the mark of a leader, and is none, is a key like any other', async () => {
  const [other, mark] = ['job', 'job#leader'].map((key, pid) => ({
    ...{ key, queue: [], closedMs: 0 },
    holders: [{ ...HOLDER, id: key, remainingMs: 1000, owner: { host: 'h', pid } }],
  }))
  if (other === undefined || mark === undefined) throw new Error('Expected two rooms, got fewer.')
  expect([...electionsIn([mark])]).toEqual([])
  expect([...electionsIn([other, mark])]).toEqual([])
  expect([...electionsIn([{ ...other, holders: mark.holders }, mark])]).toEqual([['job', 0]])
})

test('the vacancy that observers hold is part of its election, or stands for one without candidates', () => {
  const shared = { ...HOLDER, id: 'o', remainingMs: 1000, owner: {}, limit: Number.MAX_SAFE_INTEGER }
  const vacancy = { key: 'job#vacant', holders: [shared, { ...shared, id: 'p' }], queue: [], closedMs: 0 }
  const won = { key: 'job', holders: [{ ...shared, id: 'c', limit: 1 }], queue: [], closedMs: 0 }
  const alone = electionsIn([vacancy])
  expect([...alone]).toEqual([['job#vacant', 2]])
  expect(isPartOf(alone, 'job#vacant')).toBe(false)
  const led = electionsIn([won, vacancy])
  expect([...led]).toEqual([['job', 2]])
  expect(isPartOf(led, 'job#vacant')).toBe(true)
  const taken = { ...vacancy, holders: [{ ...shared, limit: 1 }] }
  expect([...electionsIn([won, taken])]).toEqual([])
})

test('elections are told from other keys by the mark of their leader', async () => {
  let leave = () => {}
  const leading = locks.election('mailer').campaign(
    () =>
      new Promise<void>((resolve) => {
        leave = resolve
      }),
  )
  await locks.acquire('plain')
  const watched = watch()
  await until('its mark is seen', () => electionsIn(watched.snapshot.rooms).has('mailer'))
  expect([...electionsIn(watched.snapshot.rooms)]).toEqual([['mailer', 0]])
  leave()
  await leading
})
