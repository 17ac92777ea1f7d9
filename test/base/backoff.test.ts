import fc from 'fast-check'
import { expect, test } from 'vitest'
import { backoffMs } from '../../src/base/backoff.ts'

test('doubles with each failure in a row, up to the longest pause', () => {
  const pauses = [1, 2, 3, 4, 5, 100, 5000].map((failures) =>
    backoffMs({ firstMs: 100, longestMs: 1000, jitter: 0 }, failures),
  )
  expect(pauses).toEqual([100, 200, 400, 800, 1000, 1000, 1000])
})

test('is random in the part that is jitter, and in no more than that', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2000 }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      fc.double({ min: 0, max: 1, noNaN: true }),
      (failures, jitter, chance) => {
        const wholeMs = Math.min(1000, 10 * 2 ** (failures - 1))
        const pauseMs = backoffMs({ firstMs: 10, longestMs: 1000, jitter }, failures, () => chance)
        expect(pauseMs).toBeCloseTo(wholeMs * (1 - jitter) + wholeMs * jitter * chance)
      },
    ),
  )
})
