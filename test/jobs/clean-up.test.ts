import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { CleanUps } from '../../src/jobs/clean-ups.ts'

beforeEach(() => {
  vi.useFakeTimers()
})
afterEach(() => {
  vi.useRealTimers()
})

const MINUTE_MS = 60_000

function cleanUpsWith(tidy: () => Promise<boolean>, onError: (error: unknown) => void): CleanUps {
  return new CleanUps({ tidy, unblockStuck: async () => null }, { completedMs: 1, endedMs: 1, onError })
}

test('a start while a clean-up from before the last stop runs does not make clean-ups more frequent', async () => {
  let end: (isMore: boolean) => void = () => {}
  const tidy = vi.fn(
    () =>
      new Promise<boolean>((resolve) => {
        end = resolve
      }),
  )
  const cleanUps = cleanUpsWith(tidy, () => {})
  cleanUps.start()
  await vi.advanceTimersByTimeAsync(MINUTE_MS)
  expect(tidy).toHaveBeenCalledTimes(1)
  cleanUps.stop()
  cleanUps.start()
  tidy.mockClear()
  tidy.mockResolvedValue(false)
  end(false)
  await vi.advanceTimersByTimeAsync(10 * MINUTE_MS)
  // Each clean-up comes 27 to 33 s after the one before.
  expect(tidy.mock.calls.length).toBeGreaterThanOrEqual(17)
  expect(tidy.mock.calls.length).toBeLessThanOrEqual(23)
  cleanUps.stop()
  tidy.mockClear()
  await vi.advanceTimersByTimeAsync(MINUTE_MS)
  expect(tidy).not.toHaveBeenCalled()
})

test('a clean-up that fails is told each time, and the next one comes all the same', async () => {
  const errors: unknown[] = []
  const tidy = vi.fn(() => Promise.reject(new Error('no right')))
  const cleanUps = cleanUpsWith(tidy, (error) => errors.push(error))
  cleanUps.start()
  await vi.advanceTimersByTimeAsync(2 * MINUTE_MS)
  expect(errors.length).toBe(tidy.mock.calls.length)
  expect(errors.length).toBeGreaterThanOrEqual(3)
  expect(errors[0]).toMatchObject({ message: 'no right' })
  cleanUps.stop()
})
