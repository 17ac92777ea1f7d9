import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { UNLIMITED } from '../../src/contract/store.ts'
import { mayStandTogether, type Share, Sum } from '../../src/law/law.ts'
import { Roster } from '../../src/law/roster.ts'

const MUTEX: Share = { units: 1, limit: 1 }
const READER: Share = { units: 1, limit: UNLIMITED }
const LIMITS = [1, 2, 3, 4, UNLIMITED]
const SHARES: readonly Share[] = LIMITS.flatMap((limit) =>
  [1, 2, 3].filter((units) => units <= limit).map((units) => ({ units, limit })),
)

describe('the law', () => {
  test('a mutex and a writer stand alone, readers in any number', () => {
    expect(mayStandTogether([])).toBe(true)
    expect(mayStandTogether([MUTEX])).toBe(true)
    expect(mayStandTogether([MUTEX, MUTEX])).toBe(false)
    expect(mayStandTogether([MUTEX, READER])).toBe(false)
    expect(mayStandTogether(Array<Share>(10_000).fill(READER))).toBe(true)
  })

  test('a semaphore takes as many units as its limit, and not one more', () => {
    const permits = (...units: readonly number[]) => units.map((each) => ({ units: each, limit: 5 }))
    expect(mayStandTogether(permits(2, 3))).toBe(true)
    expect(mayStandTogether(permits(2, 3, 1))).toBe(false)
    expect(mayStandTogether(permits(5))).toBe(true)
    expect(mayStandTogether(permits(6))).toBe(false)
  })

  test('during a change from five permits to two, the smaller number counts for everybody', () => {
    const [old, young] = [
      { units: 1, limit: 5 },
      { units: 1, limit: 2 },
    ]
    expect(mayStandTogether([old, old, old])).toBe(true)
    expect(mayStandTogether([old, young])).toBe(true)
    expect(mayStandTogether([old, old, young])).toBe(false)
  })

  test('holders that stand together still do when one of them leaves, for every set of up to five', () => {
    for (const shares of multisets(SHARES, 5)) {
      if (!mayStandTogether(shares)) continue
      for (const [index] of shares.entries())
        if (!mayStandTogether(shares.toSpliced(index, 1))) expect.fail(JSON.stringify([shares, index]))
    }
  })
})

describe('the running sum', () => {
  test('decides as the law does for every set of up to five holders and one more', () => {
    let sets = 0
    for (const shares of multisets(SHARES, 5)) {
      const [candidate, ...holders] = shares
      if (candidate === undefined) continue
      const sum = new Sum()
      for (const holder of holders) sum.add(holder)
      if (sum.admits(candidate) !== mayStandTogether(shares)) expect.fail(JSON.stringify(shares))
      sets += 1
    }
    expect(sets).toBeGreaterThan(5_000)
  })

  test('keeps nothing of holders that have left, in whatever order they came and went', () => {
    const share = fc.constantFrom(...SHARES)
    const turns = fc.array(fc.oneof(share, fc.nat(20)), { maxLength: 40 })
    fc.assert(
      fc.property(turns, share, (history, candidate) => {
        const sum = new Sum()
        const present: Share[] = []
        for (const turn of history) {
          if (typeof turn !== 'number') {
            sum.add(turn)
            present.push(turn)
          } else {
            const left = present.splice(turn, 1)
            const staying = new Roster<{ readonly ticket: Share }>()
            for (const [index, ticket] of present.entries()) staying.set(String(index), { ticket })
            for (const share of left) sum.subtract(share, staying)
          }
        }
        expect(sum.admits(candidate)).toBe(mayStandTogether([...present, candidate]))
      }),
      { numRuns: 2_000 },
    )
  })
})

/** Every choice of up to `size` of the tickets, regardless of order. */
function* multisets<T>(choices: readonly T[], size: number, from = 0): Generator<readonly T[]> {
  yield []
  if (size === 0) return
  for (let index = from; index < choices.length; index += 1)
    for (const rest of multisets(choices, size - 1, index)) yield [choices[index] as T, ...rest]
}
