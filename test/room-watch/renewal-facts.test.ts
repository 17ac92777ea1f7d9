import { expect, test } from 'vitest'
import { type RenewalFacts, renewalFacts, roundTtlMs } from '../../src/room-watch/renewal-facts.ts'

const SEEN: readonly [ttlMs: number, looks: readonly (readonly [heldMs: number, remainingMs: number])[]][] = [
  // Renewed after 150 ms, before the first look.
  [
    30_000,
    [
      [400, 29_750],
      [1400, 28_750],
      [12_000, 28_000],
      [60_000, 29_990],
    ],
  ],
  [
    30_000,
    [
      [2, 29_998],
      [11_000, 29_400],
    ],
  ],
  [60_000, [[2500, 57_502]]],
  // After \`extend('5m')\`.
  [
    300_000,
    [
      [400, 29_750],
      [1400, 28_750],
      [2400, 299_400],
      [3400, 298_400],
    ],
  ],
  // After \`extend('10s')\`, which is worth something only when the old time is used up.
  [
    10_000,
    [
      [400, 599_750],
      [598_900, 6000],
      [599_900, 9300],
      [600_900, 8300],
    ],
  ],
  [1000, [[40, 965]]],
  [800, [[10, 795]]],
]

test.each(SEEN)('a ttl of %i ms is found by the looks %j', (ttlMs, looks) => {
  let facts: RenewalFacts | undefined
  for (const [heldMs, remainingMs] of looks) facts = renewalFacts({ heldMs, remainingMs } as never, facts)
  expect(facts?.isKnown).toBe(true)
  expect(roundTtlMs(facts?.ttlMs ?? 0)).toBe(ttlMs)
})
