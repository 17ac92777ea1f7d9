import { expect, test } from 'vitest'
import { viewOf } from '../../src/dashboard/view.ts'
import type { KeyJson } from '../../src/dashboard/view-json.ts'
import type { InspectedHolder } from '../../src/index.ts'
import type { HoldRecord, KeyHistory } from '../../src/room-watch/hold-record.ts'
import type { RoomWatch } from '../../src/room-watch/room-watch.ts'

const HOLD: HoldRecord = { id: 'a', fence: 1n, owner: {}, units: 1, limit: 2, fromAt: 1000 }

function keyOf(history: KeyHistory, holders: readonly InspectedHolder[] = []): KeyJson {
  const rooms = [{ key: 'k', holders, queue: [], closedMs: 0 }]
  const watch: RoomWatch = {
    snapshot: { at: 1e6, rooms, isCut: false, caveats: [], store: { tag: 'present', lookMs: 1 } },
    ...{ totals: [], losses: [], watched: [], changed: [] },
    processes: { view: () => [], heardAt: () => undefined },
    historyOf: () => history,
    renewalsOf: () => undefined,
    ...{ noteEviction() {}, lookNow() {}, lookUnlessLooking() {}, stop() {} },
  }
  return viewOf(watch, { view: 'key', key: 'k' }) as KeyJson & ReturnType<typeof viewOf>
}

function overAt(count: number): readonly HoldRecord[] {
  return Array.from({ length: count }, (_, n) => ({
    ...{ ...HOLD, id: `${n}`, fromAt: 2000 + n, untilAt: 2001 + n },
    end: 'released' as const,
  }))
}

test('a key shows a hold that lasts beside any number of later ones', () => {
  const { holds } = keyOf({ holds: [{ ...HOLD, id: 'long' }, ...overAt(500)], samples: [] })
  expect(holds.map(({ id }) => id)).toEqual(['long', ...Array.from({ length: 200 }, (_, n) => `${n + 300}`)])
})

test('a key says since when its history is complete', () => {
  const samples = Array.from({ length: 300 }, (_, n) => ({ at: 3000 + n, holding: 1, waiting: n % 2 }))
  expect(keyOf({ holds: overAt(200), samples: samples.slice(0, 200) })).toMatchObject({
    ...{ holdsFromAt: undefined, samplesFromAt: undefined },
  })
  expect(keyOf({ holds: overAt(300), samples })).toMatchObject({ holdsFromAt: 2100, samplesFromAt: 3100 })
  const dropped = { holdsFromAt: 1500, samplesFromAt: 1600 }
  expect(keyOf({ holds: overAt(10), samples: samples.slice(0, 10), ...dropped })).toMatchObject(dropped)
})

test('the history of a key is not complete where a present holder is not among the holds', () => {
  const present = Array.from({ length: 500 }, (_, n) => ({ ...HOLD, id: `${n}` }))
  const holders = present.map((hold) => ({ ...hold, heldMs: 10, state: 'held' as const, remainingMs: 100 }))
  expect(keyOf({ holds: present, samples: [] }, holders)).toMatchObject({ holdsFromAt: 1e6 })
  expect(keyOf({ holds: present.slice(0, 400), samples: [] }, holders.slice(0, 400))).toMatchObject({
    holdsFromAt: undefined,
  })
})
