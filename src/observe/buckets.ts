import { expected } from '../base/arguments.ts'

/** Upper bounds of histograms in seconds: from a lock in the same machine room to one that was forgotten. */
export const BUCKETS: readonly number[] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300]

/** @throws {InvalidArgumentError} unless `buckets` is an array of rising, finite numbers. */
export function checkBuckets(buckets: unknown): void {
  if (Array.isArray(buckets) && buckets.every(isRising)) return
  throw expected('buckets', 'rising numbers of seconds', buckets)
}

function isRising(bound: unknown, index: number, all: readonly unknown[]): boolean {
  return Number.isFinite(bound) && (index === 0 || Number(bound) > Number(all[index - 1]))
}
