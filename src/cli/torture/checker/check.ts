import type { RunHistory } from './history.ts'

/** What one check of the history has found. */
export interface Check {
  readonly name: CheckName
  /** How many it has looked at. */
  readonly examined: number
  /** How many of them break a promise. */
  readonly broken: number
  /** How many of them are explained by a fault that excuses them. */
  readonly excused: number
  /** The first findings. */
  readonly evidence: readonly Evidence[]
}

export type CheckName =
  | 'exclusion'
  | 'fences'
  | 'fenced-register'
  | 'plain-register'
  | 'arrival'
  | 'wakes'
  | 'waiting'
  | 'recovery'
  | 'told'
  | 'forgotten'
  | 'leftovers'

export interface Evidence {
  readonly key: string
  readonly from: number
  readonly until: number
  readonly text: string
}

/** What was agreed before the run. */
export interface Terms {
  readonly ttlMs: number
  readonly settleMs: number
  /** The faults of the server may lose its data. */
  readonly forgets: boolean
  /** The store promises the order of arrival, and not best effort. */
  readonly keepsOrder: boolean
}

export interface CheckInput {
  readonly history: RunHistory
  readonly terms: Terms
}

/** Collects findings, and keeps the first ones as evidence. */
export class Findings {
  broken = 0
  excused = 0
  readonly evidence: Evidence[] = []

  add(evidence: Evidence, { excused = false }: { readonly excused?: boolean } = {}): void {
    if (excused) this.excused += 1
    else this.broken += 1
    if (!excused && this.evidence.length < MOST_EVIDENCE) this.evidence.push(evidence)
  }

  as(name: CheckName, examined: number): Check {
    const { broken, excused, evidence } = this
    return { name, examined, broken, excused, evidence }
  }
}

const MOST_EVIDENCE = 20

/** `3.204 s` */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(3)} s`
}
