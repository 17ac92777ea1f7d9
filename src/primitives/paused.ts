import type { Clock } from '../contract/clock.ts'

/** Resolves after a while, or as soon as the signal aborts. Keeps the process alive: somebody awaits what comes next. */
export function paused(clock: Clock, durationMs: number, signal: AbortSignal | undefined): Promise<void> {
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
