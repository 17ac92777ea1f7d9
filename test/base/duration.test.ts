import { expect, test } from 'vitest'
import { type Duration, HOLD_RANGE, parseDuration } from '../../src/base/duration.ts'

test.each<[Duration, number]>([
  ['250ms', 250],
  ['250 ms', 250],
  ['1.5 h', 5_400_000],
  ['5 m', 300_000],
  ['2d', 172_800_000],
  ['0.5 d', 43_200_000],
  ['24d', 24 * 86_400_000],
  [1500, 1500],
])('%s is %d milliseconds', (text, durationMs) => {
  expect(parseDuration('ttl', text, HOLD_RANGE)).toBe(durationMs)
})
