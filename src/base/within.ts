import { paused, systemClock } from './clock.ts'

/** The result of the work. Rejects if there is none within the limit. The limit keeps the process alive, for whoever awaits it. */
export async function within<T>(limitMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`No answer within ${limitMs} ms.`)), limitMs)
  })
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}

/** Waits until all of the promises are settled, and no longer than the limit in milliseconds. Keeps the process alive. */
export async function settledWithin(limitMs: number, promises: readonly Promise<unknown>[]): Promise<void> {
  const ended = new AbortController()
  void Promise.allSettled(promises).then(() => ended.abort())
  await paused(systemClock, limitMs, ended.signal)
}
