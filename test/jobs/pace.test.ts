import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Pace } from '../../src/jobs/pace.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

function ran(pace: Pace, jobs: number, eachMs: number): void {
  for (let n = 0; n < jobs; n += 1) {
    pace.begun()
    vi.advanceTimersByTime(eachMs)
    pace.ended()
  }
}

test('nothing is known of a worker whose first jobs run, and little after a few that ended at once', () => {
  const pace = new Pace()
  expect(pace.endWithin(50)).toBe(0)
  pace.begun()
  expect(pace.endWithin(50)).toBe(0)
  pace.ended()
  ran(pace, 7, 0)
  expect(pace.endWithin(50)).toBe(40)
})

test('the pace is that of the latest jobs, and idle times do not count', () => {
  const pace = new Pace()
  ran(pace, 1000, 1)
  expect(Math.round(pace.endWithin(50))).toBe(50)
  vi.advanceTimersByTime(3_600_000)
  expect(Math.round(pace.endWithin(50))).toBe(50)
  ran(pace, 30, 100)
  expect(pace.endWithin(50)).toBeLessThan(1)
  ran(pace, 1000, 1)
  expect(pace.endWithin(50)).toBeGreaterThan(45)
})

test('jobs side by side count together', () => {
  const pace = new Pace()
  for (let turn = 0; turn < 50; turn += 1) {
    for (let n = 0; n < 8; n += 1) pace.begun()
    vi.advanceTimersByTime(10)
    for (let n = 0; n < 8; n += 1) pace.ended()
  }
  expect(Math.round(pace.endWithin(50))).toBe(40)
})

test('jobs that run on and on bring it down before they end', () => {
  const pace = new Pace()
  ran(pace, 1000, 0.1)
  pace.begun()
  vi.advanceTimersByTime(60_000)
  expect(pace.endWithin(50)).toBeLessThan(1)
})
