/** A summary of durations, in milliseconds. */
export interface Durations {
  readonly count: number
  readonly median: number
  readonly p99: number
  readonly longest: number
}

export function durationsOf(values: readonly number[]): Durations {
  const sorted = [...values].sort((one, other) => one - other)
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0
  return { count: sorted.length, median: at(0.5), p99: at(0.99), longest: sorted.at(-1) ?? 0 }
}
