import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { CleanUps } from '../../src/jobs/clean-ups.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const MINUTE_MS = 60_000

test('a start while a clean-up from before the last stop runs does not make clean-ups more frequent', async () => {
  let end: () => void = () => {}
  const cleanUp = vi.fn(
    () =>
      new Promise<void>((resolve) => {
        end = resolve
      }),
  )
  const cleanUps = new CleanUps(cleanUp, () => {})
  cleanUps.start()
  await vi.advanceTimersByTimeAsync(MINUTE_MS)
  expect(cleanUp).toHaveBeenCalledTimes(1)
  cleanUps.stop()
  cleanUps.start()
  cleanUp.mockClear()
  cleanUp.mockResolvedValue()
  end()
  await vi.advanceTimersByTimeAsync(10 * MINUTE_MS)
  // Each clean-up comes 27 to 33 s after the one before.
  expect(cleanUp.mock.calls.length).toBeGreaterThanOrEqual(17)
  expect(cleanUp.mock.calls.length).toBeLessThanOrEqual(23)
  cleanUps.stop()
  cleanUp.mockClear()
  await vi.advanceTimersByTimeAsync(MINUTE_MS)
  expect(cleanUp).not.toHaveBeenCalled()
})

test('a clean-up that fails is told each time, and the next one comes all the same', async () => {
  const errors: unknown[] = []
  const cleanUp = vi.fn(() => Promise.reject(new Error('no right')))
  const cleanUps = new CleanUps(cleanUp, (error) => errors.push(error))
  cleanUps.start()
  await vi.advanceTimersByTimeAsync(2 * MINUTE_MS)
  expect(errors.length).toBe(cleanUp.mock.calls.length)
  expect(errors.length).toBeGreaterThanOrEqual(3)
  expect(errors[0]).toMatchObject({ message: 'no right' })
  cleanUps.stop()
})
