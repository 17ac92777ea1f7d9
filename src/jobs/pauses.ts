import { type Backoff, backoffMs } from '../base/backoff.ts'
import { systemClock } from '../base/clock.ts'

/**
 * The pauses of a worker between the tries of a statement. They do not keep the process alive, and can be ended early. There may be
 * thousands at a time, so they share no signal: each would have to search its own listener among all others.
 */
export class Pauses {
  readonly #ends = new Set<() => void>()

  /** Resolves after the pause that follows so many failures in a row, or when all pauses are ended. */
  after(failures: number, backoff: Backoff): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        timer.stop()
        this.#ends.delete(end)
        resolve()
      }
      const timer = systemClock.startTimer(backoffMs(backoff, failures), end)
      this.#ends.add(end)
    })
  }

  endAll(): void {
    for (const end of this.#ends) end()
  }
}

export const RETRYING: Backoff = { firstMs: 100, longestMs: 3000, jitter: 0.5 }

/** A worker that stops has little time left. */
export const STOPPING: Backoff = { ...RETRYING, longestMs: 500 }
