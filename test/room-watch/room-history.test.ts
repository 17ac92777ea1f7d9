import { expect, test } from 'vitest'
import { UNLIMITED } from '../../src/contract/index.ts'
import type { InspectedHolder, InspectedRoom } from '../../src/index.ts'
import type { HistoryFile } from '../../src/room-watch/history-file.ts'
import type { HistoryLimits } from '../../src/room-watch/history-limits.ts'
import type { KeyHold } from '../../src/room-watch/hold-record.ts'
import { RoomHistory } from '../../src/room-watch/room-history.ts'

const LIMITS: HistoryLimits = {
  ...{ keys: 1000, entries: 1000, total: 10_000, looks: 1000, losses: 1000, unsaved: 1000 },
  keepMs: 3_600_000,
}

const HOLDER: InspectedHolder = {
  ...{ id: 'a', heldMs: 0, units: 1, limit: 1, fence: 1n, owner: {} },
  ...{ state: 'held', remainingMs: 30_000 },
}

function kept(id: string, hold: Partial<KeyHold['hold']> = {}): KeyHold {
  return { key: id, hold: { id, fence: 1n, owner: {}, units: 1, limit: 1, fromAt: 1000, ...hold } }
}

function look(history: RoomHistory, at: number, held: readonly string[], isCut = false): void {
  const rooms = held.map((key): [string, InspectedRoom] => [
    key,
    { key, holders: [{ ...HOLDER, id: key }], queue: [], closedMs: 0 },
  ])
  history.look(new Map(rooms), { at, begunMs: performance.now(), isCut })
}

/** Looks that were cut, which find these holders. */
function cutLooks(history: RoomHistory): (at: number, ids: Readonly<Record<string, string>>) => void {
  return (at, ids) => {
    const rooms = Object.entries(ids).map(([key, id]): [string, InspectedRoom] => [
      key,
      { key, holders: [{ ...HOLDER, id }], queue: [], closedMs: 0 },
    ])
    history.look(new Map(rooms), { at, begunMs: performance.now(), isCut: true })
  }
}

test('no more losses are read from a file than are kept, and the newest stay', () => {
  const holds = ['a', 'b', 'c', 'd', 'e'].map((id) => kept(id, { untilAt: 2000, end: 'expired' }))
  const file: HistoryFile = { load: () => ({ holds, watched: [] }), save: () => true }
  const history = new RoomHistory({ ...LIMITS, losses: 2 }, file)
  expect(history.losses.map(({ key }) => key)).toEqual(['d', 'e'])
  look(history, 3000, ['f'])
  history.noteEviction('f', ['f'], { reason: 'stuck', at: 3500 })
  expect(history.losses.map(({ key }) => key)).toEqual(['e', 'f'])
})

test('what could not be written is written later, the newest changes at least', () => {
  let isWritable = false
  const saved: string[][] = []
  const file: HistoryFile = {
    load: () => ({ holds: [], watched: [] }),
    save: (changed) => {
      saved.push(changed.map(({ key, hold }) => `${key} ${hold.end ?? 'held'}`))
      return isWritable
    },
  }
  const history = new RoomHistory({ ...LIMITS, unsaved: 2 }, file)
  look(history, 1000, [])
  look(history, 2000, ['a'])
  look(history, 3000, [])
  look(history, 4000, ['b', 'c'])
  isWritable = true
  look(history, 5000, ['b', 'c'])
  look(history, 6000, ['b', 'c'])
  expect(saved).toEqual([
    [],
    ['a held'],
    ['a released'],
    ['a released', 'b held', 'c held'],
    ['b held', 'c held'],
    [],
  ])
})

test('a hold that ended while nobody looked lasted as long as somebody looked', () => {
  const file: HistoryFile = {
    load: () => ({
      holds: [kept('gone'), kept('late', { fromAt: 2500 }), kept('there')],
      watched: [{ fromAt: 1000, untilAt: 2000 }],
    }),
    save: () => true,
  }
  const history = new RoomHistory(LIMITS, file)
  look(history, 60_000, ['there'])
  expect(history.of('gone')?.holds).toMatchObject([{ end: 'unclear', untilAt: 2000 }])
  expect(history.of('late')?.holds).toMatchObject([{ end: 'unclear', untilAt: 2500 }])
  expect(history.of('there')?.holds).toEqual([kept('there').hold])
})

test('the observers of an election that nobody leads count neither as holders nor as losses, also in a file', () => {
  const saved: string[] = []
  const file: HistoryFile = {
    load: () => ({ holds: [], watched: [] }),
    save: (changed) => {
      saved.push(...changed.map(({ key }) => key))
      return true
    },
  }
  const history = new RoomHistory(LIMITS, file)
  const lookAt = (at: number, keys: readonly string[], remainingMs: number): void => {
    const rooms = keys.map((key): [string, InspectedRoom] => {
      const limit = key.endsWith('#vacant') ? UNLIMITED : 1
      const holder = { ...HOLDER, id: key, limit, remainingMs, heldMs: at - 2000 }
      return [key, { key, holders: [holder], queue: [], closedMs: 0 }]
    })
    history.look(new Map(rooms), { at, begunMs: performance.now() })
  }
  lookAt(1000, [], 0)
  lookAt(2000, ['e#vacant', 'k'], 3000)
  lookAt(4500, ['e#vacant', 'k'], 500)
  lookAt(7000, [], 0)
  expect(history.totals.slice(1)).toMatchObject([
    { keys: 2, holding: 1, begun: 1, expired: 0 },
    { keys: 2, holding: 1, begun: 0, expired: 0 },
    { keys: 0, holding: 0, begun: 0, expired: 1 },
  ])
  expect(history.losses.map(({ key }) => key)).toEqual(['k'])
  expect(saved).toEqual(['k', 'k'])
})

test('a look that was cut tells nothing of the keys that it left out', () => {
  const history = new RoomHistory(LIMITS)
  const sums = () => history.totals.map(({ keys, begun, expired }) => [keys, begun, expired])
  look(history, 1000, ['a', 'b', 'c'])
  look(history, 2000, ['a', 'b'], true)
  look(history, 3000, ['b', 'c'], true)
  look(history, 4000, ['a', 'b'], true)
  expect(sums()).toEqual([
    [3, 0, 0],
    [2, 0, 0],
    [2, 0, 0],
    [2, 0, 0],
  ])
  expect([...history.changed]).toEqual([])
  expect(history.losses).toEqual([])
})

test('after looks that were cut, a complete one ends the holds that are gone', () => {
  const history = new RoomHistory(LIMITS)
  look(history, 1000, [])
  look(history, 2000, ['a', 'b', 'c'])
  look(history, 3000, ['a', 'b'], true)
  look(history, 4000, ['b', 'd'])
  const ends = ['a', 'b', 'c', 'd'].map((key) => history.of(key)?.holds.map(({ end }) => end ?? 'held'))
  expect(ends).toEqual([['released'], ['held'], ['unclear'], ['held']])
  look(history, 5000, ['b'])
  expect(history.of('d')?.holds).toMatchObject([{ end: 'released' }])
  expect(history.totals.at(-1)).toMatchObject({ keys: 1, begun: 0, expired: 0 })
})

test('a key that comes back into a look that was cut has its present holder', () => {
  const history = new RoomHistory(LIMITS)
  const lookAt = cutLooks(history)
  lookAt(1000, { a: 'first' })
  lookAt(2000, { a: 'second' })
  lookAt(3000, { b: 'other' })
  lookAt(4000, { a: 'third' })
  expect(history.of('a')?.holds.map(({ id, end = 'held' }) => [id, end])).toEqual([
    ['first', 'released'],
    ['second', 'unclear'],
    ['third', 'held'],
  ])
})

test('a hold that ended while looks were cut lasted until the last look that saw its key or was complete', () => {
  const history = new RoomHistory(LIMITS)
  look(history, 1000, [])
  look(history, 2000, ['a', 'b'])
  look(history, 3000, ['b', 'c'], true)
  look(history, 4000, ['c'], true)
  look(history, 5000, ['c'], true)
  look(history, 6000, ['c'])
  expect(history.of('a')?.holds).toMatchObject([{ end: 'unclear', untilAt: 2000 }])
  expect(history.of('b')?.holds).toMatchObject([{ end: 'unclear', untilAt: 3000 }])
})

test('looks that were cut and saw no change push no history out', () => {
  const history = new RoomHistory({ ...LIMITS, entries: 4 })
  look(history, 1000, [])
  look(history, 2000, ['a'])
  const samplesBefore = history.of('a')?.samples.map(({ at }) => at)
  for (let at = 3000; at < 20_000; at += 1000) look(history, at, at % 2000 === 0 ? ['a'] : ['b'], true)
  look(history, 20_000, ['a', 'b'])
  expect(history.of('a')?.samples.map(({ at }) => at)).toEqual(samplesBefore)
})

test('a mark that is kept for a time and not renewed is no loss when its time is over', () => {
  const history = new RoomHistory(LIMITS)
  const keys = ['work', 'work#done', ':limit:ada', 'order:7']
  const seen = (at: number, remainingMs: number): void => {
    const rooms = keys.map((key): [string, InspectedRoom] => [
      key,
      { key, holders: [{ ...HOLDER, id: key, heldMs: at, remainingMs }], queue: [], closedMs: 0 },
    ])
    history.look(new Map(rooms), { at, begunMs: performance.now() })
  }
  seen(1000, 30_000)
  seen(30_000, 1000)
  expect(keys.filter((key) => history.renewalsOf(key) !== undefined)).toEqual(['work', 'order:7'])
  look(history, 32_000, [])
  expect(history.losses.map(({ key }) => key).sort()).toEqual(['order:7', 'work'])
})

test('keys of an earlier run stay for as long as they are kept, also if no look reaches them', () => {
  const over = (id: string, untilAt: number) => kept(id, { untilAt, end: 'released' })
  const two = { key: 'open', hold: over('later', 2000).hold }
  const holds = [over('new', 3_000_000), kept('open'), two, over('old', 2000)]
  const file: HistoryFile = { load: () => ({ holds, watched: [] }), save: () => true }
  const history = new RoomHistory(LIMITS, file)
  const isCut = true
  look(history, 3_500_000, ['seen'], isCut)
  expect([...history.changed]).toEqual(['new', 'open', 'old'])
  look(history, 3_610_000, ['seen'], isCut)
  expect([...history.changed]).toEqual(['new', 'open'])
  look(history, 6_700_000, ['seen'], isCut)
  expect([...history.changed]).toEqual(['open'])
})

test('an eviction is a loss also if there were too many holders to remember all of them', () => {
  const history = new RoomHistory({ ...LIMITS, entries: 3 })
  const lookAt = (at: number, ids: readonly string[]) => {
    const holders = ids.map((id) => ({ ...HOLDER, id, limit: 10 }))
    history.look(new Map([['k', { key: 'k', holders, queue: [], closedMs: 0 }]]), { at, begunMs: 0 })
  }
  const ids = ['a', 'b', 'c', 'd', 'e']
  lookAt(1000, ids)
  history.noteEviction('k', ['waiter', ...ids.slice(0, 4)], { reason: 'stuck', at: 1500 })
  lookAt(2000, ['e'])
  expect(history.losses.map(({ hold: { id, end } }) => [id, end])).toEqual(
    ids.slice(0, 4).map((id) => [id, 'evicted']),
  )
  const ends = history.of('k')?.holds.map(({ end }) => end) ?? []
  expect(new Set(ends)).toEqual(new Set(['evicted', undefined]))
})

test('a key with too many entries says since when all of them are there', () => {
  const history = new RoomHistory({ ...LIMITS, entries: 2 })
  const lookAt = (at: number, ids: readonly string[]) => {
    const holders = ids.map((id) => ({ ...HOLDER, id, limit: 2 }))
    history.look(new Map([['k', { key: 'k', holders, queue: [], closedMs: 0 }]]), { at, begunMs: 0 })
  }
  const reach = () => {
    const { holdsFromAt, samplesFromAt } = history.of('k') ?? {}
    return [holdsFromAt, samplesFromAt]
  }
  lookAt(1000, ['long'])
  lookAt(2000, ['long', 'a'])
  expect(reach()).toEqual([undefined, undefined])
  lookAt(3000, ['long', 'b'])
  lookAt(4000, ['long'])
  expect(reach()).toEqual([3000, 3000])
})

test('the counts of a key are known since somebody looks, also if its holds come from a file', () => {
  const holds = [kept('k', { untilAt: 2000, end: 'released' })]
  const file: HistoryFile = {
    load: () => ({ holds, watched: [{ fromAt: 1000, untilAt: 3000 }] }),
    save: () => true,
  }
  const history = new RoomHistory(LIMITS, file)
  look(history, 4000, [])
  expect(history.of('k')).toMatchObject({ samplesFromAt: 4000 })
  expect(history.of('k')?.holdsFromAt).toBeUndefined()
})

test('a key whose record was dropped says that its history may begin later', () => {
  const history = new RoomHistory({ ...LIMITS, keys: 1 })
  look(history, 1000, [])
  look(history, 2000, ['one'])
  look(history, 3000, ['one', 'two'])
  expect(history.of('one')).toMatchObject({ holdsFromAt: 3000, samplesFromAt: 3000 })
  look(history, 4000, ['one', 'two', 'other'])
  expect(history.of('other')).toMatchObject({ holdsFromAt: 3000, samplesFromAt: 3000 })
})

test('a present hold that is left out for want of room leaves the history complete once it has ended', () => {
  const history = new RoomHistory({ ...LIMITS, entries: 2 })
  const lookAt = (at: number, ids: readonly string[]) => {
    const holders = ids.map((id) => ({ ...HOLDER, id, limit: 3, heldMs: at - 1000 }))
    history.look(new Map([['k', { key: 'k', holders, queue: [], closedMs: 0 }]]), {
      at,
      begunMs: performance.now(),
    })
  }
  lookAt(1000, ['a', 'b', 'c'])
  expect(history.of('k')?.holdsFromAt).toBeUndefined()
  lookAt(2000, ['a', 'b'])
  expect(history.of('k')?.holdsFromAt).toBeUndefined()
  lookAt(3000, ['a'])
  expect(history.of('k')?.holdsFromAt).toBeUndefined()
  lookAt(4000, [])
  expect(history.of('k')).toMatchObject({ holdsFromAt: 3000 })
})

test('after the clock was set back, the time that was watched ends now', () => {
  const history = new RoomHistory(LIMITS)
  for (const at of [1000, 2000, 60_000, 61_000, 1500]) look(history, at, [])
  expect(history.watched).toEqual([{ fromAt: 1000, untilAt: 1500 }])
})

test('what is known of a key begins anew when a look reads it that others have left out', () => {
  const history = new RoomHistory(LIMITS)
  const lookAt = cutLooks(history)
  lookAt(1000, { a: 'one' })
  lookAt(2000, { b: 'one' })
  expect(history.of('b')?.samples).toMatchObject([{ at: 2000 }])
  lookAt(3000, { b: 'other' })
  expect(history.of('b')).toMatchObject({ holdsFromAt: undefined, samples: [{ at: 2000 }, { at: 3000 }] })
  lookAt(4000, { a: 'one' })
  lookAt(5000, { b: 'other' })
  // The same holder has it still.
  expect(history.of('b')?.holdsFromAt).toBeUndefined()
  lookAt(6000, { a: 'one' })
  lookAt(7000, { b: 'third' })
  expect(history.of('b')).toMatchObject({ holdsFromAt: 7000, samplesFromAt: 7000 })
})

test('after the clock was set back, a history is complete since now at the latest', () => {
  const history = new RoomHistory({ ...LIMITS, entries: 1 })
  look(history, 1000, [])
  for (let at = 61_000; at <= 65_000; at += 1000) look(history, at, at % 2000 === 1000 ? ['k'] : [])
  expect(history.of('k')?.samplesFromAt).toBeGreaterThan(60_000)
  look(history, 2000, ['k'])
  expect(history.of('k')).toMatchObject({ samplesFromAt: 2000 })
})

test('an eviction of a hold that has not changed for longer than the history goes back is not forgotten', () => {
  const history = new RoomHistory({ ...LIMITS, keepMs: 60_000 })
  const holders = [{ ...HOLDER, id: 'a' }]
  const seen = (at: number, isThere: boolean) =>
    history.look(new Map(isThere ? [['k', { key: 'k', holders, queue: [], closedMs: 0 }]] : []), {
      at,
      begunMs: performance.now(),
    })
  for (let at = 1000; at < 100_000; at += 10_000) seen(at, true)
  history.noteEviction('k', ['a'], { reason: 'stuck', at: 95_000 })
  // This look has read the holder before the eviction.
  seen(96_000, true)
  seen(97_000, false)
  expect(history.of('k')?.holds).toMatchObject([{ id: 'a', end: 'evicted', untilAt: 95_000 }])
})

test('keys of a file that had no room for all holds are known since the first of these', () => {
  const holds = [kept('k', { fromAt: 5000, untilAt: 6000, end: 'released' })]
  const file: HistoryFile = {
    load: () => ({ holds, watched: [{ fromAt: 1000, untilAt: 7000 }], completeFromAt: 5000 }),
    save: () => true,
  }
  const history = new RoomHistory(LIMITS, file)
  look(history, 8000, ['other'])
  look(history, 9000, [])
  for (const key of ['k', 'other']) expect(history.of(key)).toMatchObject({ holdsFromAt: 5000 })
})
