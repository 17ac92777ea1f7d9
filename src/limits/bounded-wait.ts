import { LONGEST_TIMER_MS } from '../base/clock.ts'
import { SignalWatch } from '../base/signal-watch.ts'

/** How long a caller waits, and what ends the wait sooner. */
export interface WaitBounds {
  readonly limitMs: number
  readonly signals: readonly AbortSignal[]
}

/**
 * Settles with the first of these: the work, `late`, or the reason of a signal, as a rejection. Leaves no timer and no
 * listener behind; the signal of a shutdown lives for longer than a million of these.
 */
export async function boundedWait<T>(
  work: Promise<T>,
  { limitMs, signals }: WaitBounds,
): Promise<T | 'late'> {
  const ends: (() => void)[] = []
  const ended = new Promise<'late'>((resolve, reject) => {
    const timer = setTimeout(() => resolve('late'), Math.min(Math.max(limitMs, 0), LONGEST_TIMER_MS))
    ends.push(() => clearTimeout(timer))
    const waiting = { abort: reject }
    for (const signal of signals) {
      if (signal.aborted) reject(signal.reason)
      watch.add(signal, waiting)
      ends.push(() => watch.remove(signal, waiting))
    }
  })
  try {
    return await Promise.race([work, ended])
  } finally {
    for (const end of ends) end()
  }
}

const watch = new SignalWatch()
