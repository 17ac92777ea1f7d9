import { type Backoff, backoffMs } from '../../../base/backoff.ts'
import type { Clock } from '../../../contract/clock.ts'

/** Tries `work` until it succeeds, however long that takes, or until `isOver`. */
export async function retryUntil(
  clock: Clock,
  isOver: () => boolean,
  work: () => Promise<void>,
): Promise<void> {
  for (let tries = 1; !isOver(); tries += 1) {
    try {
      return await work()
    } catch {
      const pauseMs = backoffMs(PAUSES, tries)
      await new Promise<void>((resolve) => clock.startTimer(pauseMs, resolve))
    }
  }
}

const PAUSES: Backoff = { firstMs: 200, longestMs: 2000, jitter: 0.5 }
