import type { Surroundings } from './adapter.ts'

/** One row group of the table: a kind of work, done by several candidates. */
export interface Scenario {
  readonly name: string
  /** What is done, for people. */
  readonly title: string
  readonly metrics: readonly Metric[]
  /** The first one is the hand-written limit: the least that could do the job on the same client. */
  readonly candidates: readonly Candidate[]
  /** What the design asks of Holdfast, in terms of the first metric. */
  readonly target: string
}

export interface Metric {
  readonly name: string
  readonly unit: string
  /** `higher`: ratios are candidate / limit, and so for `lower`; it only says which side of 1 is the good one. */
  readonly better: 'lower' | 'higher'
}

export interface Candidate {
  readonly name: string
  /** Runs in a fresh process and returns one number per metric of the scenario. */
  measure(surroundings: Surroundings, options: MeasureOptions): Promise<readonly number[]>
}

export interface MeasureOptions {
  /** About a tenth of the work: for seeing that everything runs, not for quoting. */
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
