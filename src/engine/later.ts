import type { Answer } from '../contract/store.ts'

/** Whether an answer is still to come. Looks at the shape: a promise may be of another realm or library. */
export function isLater<T>(answer: Answer<T>): answer is Promise<T> {
  return typeof (answer as { then?: unknown } | undefined)?.then === 'function'
}
