import { setImmediate } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { type History, playHistory, seedOf } from './history.ts'
import { type Family, familyNames } from './plan.ts'

const SEED = process.env['SIMULATION_SEED']
const SHARE = Math.ceil(Number(process.env['SIMULATION_HISTORIES'] ?? 4200) / familyNames.length)
/** From this number of histories on, everything has happened that chance can bring. */
const ENOUGH = 300

if (SEED === undefined) {
  describe('every promise is kept under', () => {
    test.for(familyNames)('%s', { timeout: 180_000 + SHARE * 200 }, playFamily)
  })
  describe('a seed', () => {
    test.for(familyNames)('gives the same history, to the last letter, under %s', repeatHistories)
    test('of another number gives another history', compareNumbers)
  })
} else {
  test(`every promise is kept under ${SEED}`, async () => {
    const history = await playHistory(SEED)
    if (history.violation !== undefined) throw report(history, Number.POSITIVE_INFINITY)
  })
}

async function playFamily(family: Family): Promise<void> {
  const counts = new Set<string>()
  for (let number = 1; number <= SHARE; number += 1) {
    const history = await playHistory(seedOf(family, number))
    if (history.violation !== undefined) throw report(history, 60)
    for (const what of history.world.counts.keys()) counts.add(what)
    // Lets the test runner do its work between two histories.
    await setImmediate()
  }
  const missing = [...always, ...reached[family]].filter((what) => !counts.has(what))
  if (SHARE >= ENOUGH) expect(missing).toEqual([])
}

async function repeatHistories(family: Family): Promise<void> {
  for (const number of [1, 2, 3]) {
    const [first, second] = [await textOf(family, number), await textOf(family, number)]
    expect(second).toBe(first)
    expect(first.length).toBeGreaterThan(1000)
  }
}

async function compareNumbers(): Promise<void> {
  expect(await textOf('contention alone', 1)).not.toBe(await textOf('contention alone', 2))
}

async function textOf(family: Family, number: number): Promise<string> {
  const { world } = await playHistory(seedOf(family, number))
  return world.trace.text()
}

/**
 * The events that must have happened. Without them the histories would show nothing: verbs with the store's answer,
 * calls with their end.
 */
const always: readonly string[] = [
  ...['acquire held', 'acquire queued', 'acquire busy', 'renew held', 'renew queued', 'renew gone'],
  ...['release held', 'release queued', 'release unknown', 'register written', 'register refused'],
  ...['acquire done', 'acquire acquire-timeout', 'acquire own error', 'acquire lease-lost', 'probe done'],
  ...['withLock done', 'withLock lease-lost', 'withLock own error', 'withLock deadlock', 'withLocks done'],
  ...[
    'tryAcquire done',
    'tryWithLock done',
    'read done',
    'write done',
    'acquireRead done',
    'acquireWrite done',
  ],
  ...['extend done', 'detach done', 'adopt done', 'evict done', 'close done'],
  // Messages that are leases; see granted-messages.ts.
  ...['granted in time, taken', 'granted in time, gives up', 'granted after an eviction, taken'],
]
const standstill = ['granted in a frozen process, taken', 'granted after a standstill, asks']
const badNetwork = ['granted late, ignored', 'granted again, ignored', 'granted lost']
const unavailable = ['acquire store-unavailable', 'withLock store-unavailable', 'adopt store-unavailable']
const reached: Readonly<Record<Family, readonly string[]>> = {
  'contention alone': [],
  'a network that loses, delays and repeats': [
    ...[...unavailable, 'acquire gone', 'extend store-unavailable'],
    ...[...badNetwork, 'granted late, asks'],
  ],
  'processes that pause, sleep and die': [
    ...['acquire closed', 'withLock closed', 'extend store-unavailable'],
    ...standstill,
  ],
  'clocks that disagree': [...unavailable, 'acquire gone', 'granted late, asks'],
  'a store that hangs and restarts': [...unavailable, 'withLock store-refused', 'evict store-refused'],
  'a store that forgets and whose clock jumps': [
    ...['extend lease-lost', 'extend store-unavailable'],
    ...['granted after a flush, taken', 'granted after a flush, asks'],
    ...['granted after a clock jump, taken', 'granted after a clock jump, asks'],
    ...standstill,
  ],
  'everything at once': [
    ...[...unavailable, 'acquire closed', 'acquire gone', 'withLock store-refused'],
    ...badNetwork,
  ],
}

function report({ seed, world, violation }: History, events: number): Error {
  return new Error(
    [
      violation?.message,
      `Replay with: SIMULATION_SEED='${seed}' npx vitest run test/simulation/histories.test.ts`,
      `Faults: ${[...world.plan.faults].join(', ')}`,
      'The last events (milliseconds since the start, who, what):',
      world.trace.text(events),
    ].join('\n'),
  )
}
