import { expect, test } from 'vitest'
import type { InspectedHolder, InspectedRoom } from '../../src/index.ts'
import type { KeyHold } from '../../src/room-watch/hold-record.ts'
import { type HistoryFile, type HistoryLimits, RoomHistory } from '../../src/room-watch/room-history.ts'

const LIMITS: HistoryLimits = {
  ...{ keys: 1000, entries: 1000, total: 10_000, looks: 1000, losses: 1000 },
  keepMs: 3_600_000,
}

const HOLDER: InspectedHolder = {
  ...{ id: 'a', heldMs: 0, units: 1, limit: 1, fence: 1n, owner: {} },
  ...{ state: 'held', remainingMs: 30_000 },
}

function kept(id: string, hold: Partial<KeyHold['hold']> = {}): KeyHold {
  return { key: id, hold: { id, fence: 1n, owner: {}, units: 1, limit: 1, fromAt: 1000, ...hold } }
}

function look(history: RoomHistory, at: number, held: readonly string[]): void {
  const rooms = held.map((key): [string, InspectedRoom] => [
    key,
    { key, holders: [{ ...HOLDER, id: key }], queue: [], closedMs: 0 },
  ])
  history.look(new Map(rooms), { at, begunMs: performance.now() })
}

test('no more losses are read from a file than are kept, and the newest stay', () => {
  const holds = ['a', 'b', 'c', 'd', 'e'].map((id) => kept(id, { untilAt: 2000, end: 'expired' }))
  const file: HistoryFile = { load: () => ({ holds, watched: [] }), save: () => {} }
  const history = new RoomHistory({ ...LIMITS, losses: 2 }, file)
  expect(history.losses.map(({ key }) => key)).toEqual(['d', 'e'])
  look(history, 3000, ['f'])
  history.noteEviction('f', ['f'], { reason: 'stuck', at: 3500 })
  expect(history.losses.map(({ key }) => key)).toEqual(['e', 'f'])
})
