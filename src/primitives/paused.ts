import type { Clock } from '../contract/clock.ts'

/** Resolves after a while, or as soon as one of the signals aborts. Keeps the process alive: somebody awaits what comes next. */
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
