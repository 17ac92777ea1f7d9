import type { Surroundings } from './adapter.ts'

/** One group of rows in the table: a kind of work, measured for several candidates. */
export interface Scenario {
  readonly name: string
  /** A description of the work, for people. */
  readonly title: string
  readonly metrics: readonly Metric[]
  /** The first one is the hand-written baseline: the least code that does the work on the same client. */
  readonly candidates: readonly Candidate[]
  /** The goal of the design for Holdfast, as a ratio of the first metric. */
  readonly target: string
  /** Whether the client runs on the server's processor. Default: each has its own, if there are two. */
  readonly oneCore?: boolean
  /** Its first metric is a point of this plot. */
  readonly plot?: { readonly of: PlotName; readonly size: number }
}

/** The plots, each a file in `bench/plots`. */
export type PlotName = keyof typeof PLOTS

export const PLOTS = {
  'memory-waiters': {
    title: 'In process: a hand-over, by the number of waiters',
    sizes: 'waiters on one key',
    costs: 'µs of processor per hand-over',
  },
  'memory-leases': {
    title: 'In process: a lease, by the number of leases',
    sizes: 'held leases',
    costs: 'µs of processor to take one',
  },
  'redis-waiters': {
    title: 'Redis: a hand-over, by the number of waiters',
    sizes: 'waiters of one process on one key',
    costs: 'µs per hand-over',
  },
} as const

export interface Metric {
  readonly name: string
  readonly unit: string
  /** Whether a ratio above or below 1 is good. The ratio is always candidate / baseline. */
  readonly better: 'lower' | 'higher'
}

export interface Candidate {
  readonly name: string
  /** Runs in a fresh process and returns one number per metric of the scenario. */
  measure(surroundings: Surroundings, options: MeasureOptions): Promise<readonly number[]>
}

export interface MeasureOptions {
  /** About a tenth of the work: shows that everything runs, and gives no numbers to quote. */
  readonly quick: boolean
}

export function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((one, other) => one - other)
  const middle = sorted.length >> 1
  const upper = sorted[middle] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2
}

export function percentile(numbers: readonly number[], share: number): number {
  const sorted = [...numbers].sort((one, other) => one - other)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}
