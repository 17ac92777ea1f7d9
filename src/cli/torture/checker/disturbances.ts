import type { Gap, RecordedTicket, RecordedWorker, RunHistory } from './history.ts'

/** What was in the way of a process at a time: faults of the nemesis, and a machine that had no processor for it. */
export class Disturbances {
  readonly #history: RunHistory
  /** A fault is noticed late: connections are replaced, and dead waiters are passed within the acceptance term. */
  readonly #aftermathMs: number

  constructor(history: RunHistory, ttlMs: number) {
    this.#history = history
    this.#aftermathMs = aftermathOf(ttlMs)
  }

  /** Whether a fault struck the process, or its after-effects may last. */
  struck({ slot }: RecordedWorker, from: number, until: number): boolean {
    return this.#history.faults.some(
      (fault) =>
        (fault.slot === null || fault.slot === slot) &&
        fault.from <= until &&
        fault.until + this.#aftermathMs >= from,
    )
  }

  /** How long one of the processes, or the one of the proxies, did not run. Simultaneous gaps count more than once. */
  idleMs(workers: readonly RecordedWorker[], from: number, until: number): number {
    const distinct = [...new Set(workers)]
    return [...distinct.map(({ gaps }) => gaps), this.#history.gaps].reduce(
      (sum, gaps) => sum + overlapOf(gaps, from, until),
      0,
    )
  }

  /**
   * For how long the program of `--on-fault` had the server, and once for how long its after-effects may have lasted. Otherwise
   * the short pauses between faults would never count.
   */
  serverAwayMs(from: number, until: number): number {
    const { faults } = this.#history
    const together = faults.filter(
      (fault) => fault.kind === 'server' && fault.from < until && fault.until + this.#aftermathMs > from,
    )
    if (together.length === 0) return 0
    return overlapOf(together, from, until) + this.#aftermathMs
  }

  /** Whether nothing was in the way of anybody who had to do with the key. */
  areCalm(tickets: readonly RecordedTicket[], from: number, until: number): boolean {
    return tickets.every(({ worker }) => !this.struck(worker, from, until))
  }
}

/** How long a fault may show after its end. The nemesis leaves longer lulls. */
export function aftermathOf(ttlMs: number): number {
  return Math.min(ttlMs, 3000) + 2500
}

function overlapOf(gaps: readonly Gap[], from: number, until: number): number {
  let sum = 0
  for (const gap of gaps) sum += Math.max(0, Math.min(gap.until, until) - Math.max(gap.from, from))
  return sum
}
