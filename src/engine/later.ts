import type { Answer } from '../contract/store.ts'

/** Whether the answer is a promise. Checked by its shape, because it may be a promise of another realm or library. */
export function isLater<T>(answer: Answer<T>): answer is Promise<T> {
  return typeof (answer as { then?: unknown } | undefined)?.then === 'function'
}
