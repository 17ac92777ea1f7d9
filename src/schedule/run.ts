import { paused } from '../base/clock.ts'
import { TaskFailedError } from '../errors.ts'
import type { Clock, Lease } from '../index.ts'

/** The argument of a job's work. */
export interface ScheduledRun {
  /** The name of the job. */
  readonly name: string
  /** The tick: when the run should have begun. For `runNow()` the time of that call. */
  readonly scheduledAt: Date
  /** Larger than that of every run of this job before: pass it along with what is written. */
  readonly fence: bigint
  /** Aborts when the lease is lost, when `maxRun` is over, and when the schedule is stopped and has waited long enough. */
  readonly signal: AbortSignal
  /** What holds the job meanwhile. For reading and `assertHeld()`; the schedule releases it. */
  readonly lease: Lease
  /** 1, or how often this tick has begun: other processes died, were stopped, or lost their lease in the middle of it. At most 3. */
  readonly attempt: number
}

/** A run that ended in this process. */
export interface FinishedRun {
  /** The name of the job. */
  readonly name: string
  /** The tick: when the run should have begun. */
  readonly scheduledAt: Date
  /** When the run began, by this machine's clock. */
  readonly startedAt: Date
  /** How long the run took. */
  readonly durationMs: number
  /** `interrupted`: it did not end well before the schedule was stopped; another process takes the tick over. */
  readonly result: 'ok' | 'failed' | 'interrupted'
  /** Why it failed or was interrupted. */
  readonly error?: unknown
}

/** How a run ended, and what its tick needs now. */
export type RunEnd =
  | { readonly result: 'ok' }
  | { readonly result: 'failed'; readonly error: unknown; readonly isLost: boolean }
  | { readonly result: 'interrupted'; readonly error: unknown }

export interface RunParts {
  readonly clock: Clock
  readonly maxRunMs: number | undefined
}

/** One call of the work under a lease, and everything that may end it. */
export class Run {
  readonly scheduledAt: Date
  readonly fence: bigint
  readonly #lease: Lease
  readonly #options: RunParts
  readonly #ending = new AbortController()
  readonly #over = new AbortController()
  #isStopped = false
  #overdue: TaskFailedError | undefined
  #grace: ReturnType<Clock['startTimer']> | undefined

  constructor(scheduledAt: Date, lease: Lease, options: RunParts) {
    this.scheduledAt = scheduledAt
    this.fence = lease.fence
    this.#lease = lease
    this.#options = options
  }

  /** Resolves when the work has ended, or is given up. Never rejects. */
  async end(work: (run: ScheduledRun) => unknown, name: string, attempt: number): Promise<RunEnd> {
    const { clock, maxRunMs } = this.#options
    const lease = this.#lease
    const onLoss = () => {
      this.#ending.abort(lease.signal.reason)
      // Work that has had its time is not awaited: other processes go on, and so does this one.
      if (this.#overdue !== undefined) this.#over.abort()
    }
    lease.signal.addEventListener('abort', onLoss)
    if (lease.signal.aborted) onLoss()
    const timer =
      maxRunMs === undefined ? undefined : clock.startTimer(maxRunMs, () => this.#tooLong(maxRunMs))
    const { scheduledAt, fence } = this
    const settled = outcomeOf(() =>
      work({ name, scheduledAt, fence, signal: this.#ending.signal, lease, attempt }),
    )
    const outcome = await Promise.race([settled, abortOf(this.#over.signal)])
    timer?.stop()
    this.#grace?.stop()
    lease.signal.removeEventListener('abort', onLoss)
    return this.#judge(outcome)
  }

  /** For `stop()`: aborts the signal. If the work has not ended soon after, the lease is no longer renewed. */
  async stop(reason: unknown): Promise<void> {
    this.#isStopped = true
    this.#ending.abort(reason)
    await paused(this.#options.clock, GRACE_MS, this.#over.signal)
    if (this.#over.signal.aborted) return
    // The work may still run, so the key is not released.
    if (this.#lease.state === 'held' || this.#lease.state === 'jeopardy') this.#lease.detach()
    this.#over.abort()
  }

  /** Ends the wait for the run. */
  close(): void {
    this.#over.abort()
  }

  #tooLong(maxRunMs: number): void {
    this.#overdue = new TaskFailedError(
      `The run of ${JSON.stringify(this.#lease.key)} took longer than \`maxRun\` (${maxRunMs} ms). Its signal is aborted; work that goes on all the same is not waited for.`,
      { key: this.#lease.key },
    )
    this.#ending.abort(this.#overdue)
    if (this.#lease.signal.aborted) this.#over.abort()
    else this.#grace = this.#options.clock.startTimer(GRACE_MS, () => this.#over.abort())
  }

  #judge(outcome: WorkEnd | undefined): RunEnd {
    const failure = outcome?.tag === 'failed' ? outcome.error : undefined
    if (this.#overdue !== undefined) return { result: 'failed', error: this.#overdue, isLost: false }
    // Reads the clocks: if the work blocked the event loop, the signal has not aborted yet.
    if (this.#lease.state === 'lost') {
      const { reason } = this.#lease.signal
      return outcome?.tag === 'done'
        ? { result: 'failed', error: reason, isLost: false }
        : { result: 'failed', error: failure ?? reason, isLost: true }
    }
    if (outcome?.tag === 'done') return { result: 'ok' }
    if (this.#isStopped) return { result: 'interrupted', error: failure ?? this.#ending.signal.reason }
    return { result: 'failed', error: failure, isLost: false }
  }
}

/** How long work has to end once its signal was aborted, before it is not waited for any more. */
export const GRACE_MS = 5000

type WorkEnd = { readonly tag: 'done' } | { readonly tag: 'failed'; readonly error: unknown }

async function outcomeOf(work: () => unknown): Promise<WorkEnd> {
  try {
    await work()
    return { tag: 'done' }
  } catch (error) {
    return { tag: 'failed', error }
  }
}

function abortOf(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined)
    else signal.addEventListener('abort', () => resolve(undefined), { once: true })
  })
}
