import { expect } from 'vitest'
import { type LawComparisonOptions, lawComparison } from '../../src/testing/index.ts'

const EVERY_ANSWER = [
  'acquire busy',
  'acquire evicted',
  'acquire gone',
  'acquire held',
  'acquire queued',
  'evict removed',
  'release held',
  'release queued',
  'release unknown',
  'renew evicted',
  'renew gone',
  'renew held',
  'renew queued',
]

/** Compares a store with the law. Every answer of the law has to come more than `timesEach` times. */
export async function followsTheLaw(options: LawComparisonOptions, { timesEach = 0 } = {}): Promise<void> {
  const { answers } = await lawComparison(options)
  const counts = Object.entries(answers).filter(([name]) => !name.includes(' wakes '))
  expect(counts.map(([name]) => name).sort()).toEqual(EVERY_ANSWER)
  expect((answers['release wakes granted'] ?? 0) > timesEach).toBe(options.grants === true)
  expect(Math.min(...counts.map(([, count]) => count))).toBeGreaterThan(timesEach)
}
