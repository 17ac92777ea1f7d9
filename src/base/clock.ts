// The global is a getter. To call it takes a quarter as long as to read the clock.
import { performance } from 'node:perf_hooks'
import type { Clock, Timer } from '../contract/clock.ts'
import { outsideOfCallers } from './async-context.ts'

/** The machine's clocks. The engine and the schedule touch no others. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  startTimer(delayMs: number, fire: () => void): Timer {
    // The timer takes along the context that it is started in.
    const timeout = outsideOfCallers(() => setTimeout(fire, Math.min(delayMs, LONGEST_TIMER_MS)))
    timeout.unref()
    return {
      stop: () => clearTimeout(timeout),
      keepAlive: (yes) => {
        if (yes) timeout.ref()
        else timeout.unref()
      },
    }
  },
}

/** A longer timer of Node.js fires at once. To wait for longer, look at the clock when the timer fires, and start it again. */
export const LONGEST_TIMER_MS: number = 2 ** 31 - 1

/** Both clocks, read at the same moment. */
export interface Instant {
  readonly monotonicMs: number
  readonly wallMs: number
}

export function now(clock: Clock): Instant {
  return { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() }
}

/**
 * The time between two instants: the larger of what the two clocks say. The monotonic clock stands still while a
 * machine is suspended (golang/go#24595), and the wall clock may be set back. A lease is over as soon as either clock
 * says so. A wall clock set forward ends leases too early, which is the safe side.
 */
export function elapsedMs(from: Instant, to: Instant): number {
  return Math.max(to.monotonicMs - from.monotonicMs, to.wallMs - from.wallMs)
}

/**
 * Resolves after a while, or as soon as one of the signals aborts; the caller then looks at its signals. Keeps the process
 * alive: the caller awaits it.
 */
export function paused(
  clock: Clock,
  durationMs: number,
  ...signals: readonly (AbortSignal | undefined)[]
): Promise<void> {
  return new Promise((resolve) => {
    if (signals.some((signal) => signal?.aborted === true)) return resolve()
    const end = () => {
      timer.stop()
      for (const signal of signals) signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = clock.startTimer(durationMs, end)
    timer.keepAlive(true)
    for (const signal of signals) signal?.addEventListener('abort', end)
  })
}
