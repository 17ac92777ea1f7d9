import { now, systemClock } from '../base/clock.ts'
import { TaskFailedError } from '../errors.ts'
import type { JobRun } from './job-run.ts'
import type { JobTables } from './job-tables.ts'
import { attemptKey, attemptKeys } from './statements.ts'

export interface LeaseWatchOptions {
  readonly runs: ReadonlySet<JobRun>
  /** On a connection of its own, so that claims and settlements cannot delay a renewal. */
  readonly tables: JobTables
  readonly ttlMs: number
  readonly maxRunMs: number
  /** Called at each look, which comes about once in {@link LOOK_MS}, or more often if `ttl` is short. */
  readonly onLook: () => void
  readonly onError: (error: unknown) => void
}

/** Renews the leases of a worker's jobs, all in one statement, and ends jobs whose lease or time has ended. */
export class LeaseWatch {
  readonly #options: LeaseWatchOptions
  #timer: NodeJS.Timeout | undefined
  #renewAt = 0
  /** Of a renewal that does not wait for the next look. */
  #soon: NodeJS.Timeout | undefined
  /** How many renewals are on their way. */
  #renewing = 0

  constructor(options: LeaseWatchOptions) {
    this.#options = options
  }

  /** Looks at the leases from now on, until no job runs. */
  start(): void {
    if (this.#timer !== undefined) return
    const { ttlMs } = this.#options
    this.#renewAt = Math.max(this.#renewAt, performance.now() + ttlMs / 6)
    this.#lookIn(Math.min(LOOK_MS, ttlMs / 10))
  }

  stop(): void {
    clearTimeout(this.#timer)
    clearTimeout(this.#soon)
  }

  /** The answer tells which jobs were cancelled. All cancellations of a moment share it. */
  renewSoon(): void {
    if (this.#timer === undefined || this.#soon !== undefined) return
    this.#soon = setTimeout(() => {
      this.#soon = undefined
      void this.#renew()
    }, SOON_MS)
    this.#soon.unref()
  }

  #lookIn(delayMs: number): void {
    this.#timer = setTimeout(() => this.#look(), delayMs)
    this.#timer.unref()
  }

  #look(): void {
    const { runs, ttlMs, maxRunMs, onLook } = this.#options
    this.#timer = undefined
    onLook()
    let nextMs = Math.min(LOOK_MS, ttlMs / 10)
    for (const run of runs) {
      if (run.isCutOff) continue
      if (run.remainingMs <= 0) run.lose('expired')
      else nextMs = Math.min(nextMs, run.remainingMs)
      if (isTooLong(run, maxRunMs)) run.cutOff(tookTooLong(run, maxRunMs))
    }
    if (performance.now() >= this.#renewAt) void this.#renew()
    if (runs.size > 0) this.#lookIn(Math.max(1, nextMs))
  }

  async #renew(): Promise<void> {
    const { tables, ttlMs, onError } = this.#options
    const runs = [...this.#options.runs].filter((run) => !run.isLost && !run.isCutOff)
    this.#renewAt = performance.now() + (ttlMs / 3) * (0.9 + Math.random() / 5)
    // A second renewal beside the first, in case the first hangs. More would only queue.
    if (runs.length === 0 || this.#renewing >= 2) return
    this.#renewing += 1
    const askedAt = now(systemClock)
    try {
      const answer = await tables.renew(
        runs.map(({ facts: { id, attempt }, isBegun: begun }) => ({ id, attempt, begun })),
        ttlMs,
      )
      const gone = attemptKeys(answer.gone)
      const skipped = attemptKeys(answer.skipped)
      // One that is settled meanwhile may be gone for that reason.
      const isOpen = (run: JobRun): boolean => this.#options.runs.has(run)
      const isIn = (keys: ReadonlySet<string>, run: JobRun): boolean => keys.has(attemptKey(run.facts))
      // Losses come last, because a handler that hears of one may look at another job, whose old deadline may be over.
      for (const run of runs) if (isOpen(run) && !isIn(gone, run) && !isIn(skipped, run)) run.renewed(askedAt)
      for (const run of runs) if (isOpen(run) && isIn(gone, run)) run.lose('evicted')
      // Another transaction was just changing the skipped ones: ask again well before the next turn.
      if (skipped.size > 0) this.#renewAt = performance.now() + ttlMs / 20
    } catch (error) {
      onError(error)
      this.#renewAt = Math.min(this.#renewAt, performance.now() + Math.min(1000, ttlMs / 10))
    } finally {
      this.#renewing -= 1
    }
  }
}

/**
 * Another transaction may hold up the settlement. Meanwhile the lease is renewed, so that no other worker has the job. But a
 * settlement that the database refuses again and again must not keep the job for ever.
 */
function isTooLong(run: JobRun, maxRunMs: number): boolean {
  if (!run.isEnded) return run.runsForMs >= maxRunMs
  return !run.isHeldUp && run.settlesForMs >= Math.max(maxRunMs, LEAST_SETTLEMENT_MS)
}

/** How long a settlement is tried at least. */
const LEAST_SETTLEMENT_MS = 60_000
const LOOK_MS = 250
const SOON_MS = 5

function tookTooLong({ facts: { id, name } }: JobRun, maxRunMs: number): TaskFailedError {
  return new TaskFailedError(
    `The job ${id} (${name}) did not end within ${maxRunMs} ms (\`maxRun\`). Its signal was aborted and its place given to the next job, although its handler may still run: make it listen to \`signal\`, or allow it more time.`,
    { key: id },
  )
}
