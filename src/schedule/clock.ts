import type { Clock, Timer } from '../index.ts'

/** The clocks of this machine. */
export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  startTimer(delayMs: number, fire: () => void): Timer {
    const timeout = setTimeout(fire, delayMs)
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

/** Resolves after a while, or as soon as a signal aborts. Keeps the process alive: somebody awaits what comes next. */
export function paused(clock: Clock, durationMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) return resolve()
    const end = () => {
      timer.stop()
      signal?.removeEventListener('abort', end)
      resolve()
    }
    const timer = clock.startTimer(durationMs, end)
    timer.keepAlive(true)
    signal?.addEventListener('abort', end)
  })
}
