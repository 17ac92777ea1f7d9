import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { CombinedWakes } from '../../../src/stores/redlock/combined-wakes.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

test('the wakes of three servers for one ticket are one wake, and are forgotten soon after', () => {
  const woken: unknown[] = []
  const wakes = new CombinedWakes(2, (wake) => woken.push(wake))
  for (const place of [0, 1, 2]) wakes.heard('one', { index: place })
  expect(woken).toEqual([{ tag: 'ticket', id: 'one' }])
  vi.advanceTimersByTime(200)
  expect(wakes.size).toBe(0)
  wakes.close()
})

test('a wake that only one server sends is passed on after a moment, and so is what comes of the others after that', () => {
  const woken: unknown[] = []
  const wakes = new CombinedWakes(2, (wake) => woken.push(wake))
  wakes.heard('one', { index: 2 })
  expect(woken.length).toBe(0)
  vi.advanceTimersByTime(30)
  expect(woken.length).toBe(1)
  wakes.heard('one', { index: 0 })
  expect(woken.length).toBe(2)
  vi.advanceTimersByTime(200)
  expect(wakes.size).toBe(0)
  wakes.heard('one', { index: 0 })
  vi.advanceTimersByTime(30)
  expect(woken.length).toBe(3)
  wakes.close()
})
