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
  const cleanUps = new CleanUps(cleanUp)
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
