import type { Held } from './library.ts'

export interface Outcome {
  readonly held: Held | null
  readonly what: string
}

/** What the caller of an acquire sees. */
export async function outcomeOf(acquire: () => Promise<Held | null>): Promise<Outcome> {
  const startedAt = performance.now()
  try {
    const held = await acquire()
    const after = `after ${sinceMs(startedAt)}`
    return { held, what: held === null ? `“not free” ${after}` : `takes the key ${after}` }
  } catch (error) {
    return { held: null, what: `${(error as Error).name} after ${sinceMs(startedAt)}` }
  }
}

/** `12 ms` or `3.4 s`. */
export function sinceMs(startedAt: number): string {
  const passedMs = performance.now() - startedAt
  return passedMs < 1000 ? `${Math.round(passedMs)} ms` : `${(passedMs / 1000).toFixed(1)} s`
}

/** Resolves with `undefined` if the promise is pending after this time. */
export function within<T>(promise: Promise<T>, limitMs: number): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(undefined), limitMs)
    promise.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
