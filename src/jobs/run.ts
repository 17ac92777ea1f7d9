import { LeaseLostError } from '../errors.ts'
import { claimedJob, type Settling } from './claimed-job.ts'
import type { JobFacts, RunningJob } from './job.ts'
import { elapsedMs, type Instant, usableMs } from './lease-time.ts'

/** One job in one worker, from its claim until it is settled: its lease, its signal, and whether somebody has settled it. */
export class Run {
  readonly facts: JobFacts
  readonly job: RunningJob
  /** Rejects when the handler is no longer waited for. */
  readonly cutOff: Promise<never>
  /** `handler`: it has settled the job itself. Where that was in a transaction, nobody knows yet whether it commits. */
  settledBy: 'nobody' | 'handler' = 'nobody'
  isLost = false
  isCutOff = false
  readonly #ttlMs: number
  readonly #startedAt = performance.now()
  readonly #controller = new AbortController()
  #askedAt: Instant
  #cutOff: (error: unknown) => void = () => {}

  constructor(
    facts: JobFacts,
    { askedAt, ttlMs, settling }: { askedAt: Instant; ttlMs: number; settling: Settling },
  ) {
    this.facts = facts
    this.#askedAt = askedAt
    this.#ttlMs = ttlMs
    this.cutOff = new Promise((_, reject) => {
      this.#cutOff = reject
    })
    // It may come when nobody waits any more.
    this.cutOff.catch(() => {})
    const claimed = claimedJob(facts, settling)
    const settledBy = <Arguments extends unknown[], Result>(
      settle: (...given: Arguments) => Promise<Result>,
    ) => {
      return async (...given: Arguments): Promise<Result> => {
        const result = await settle(...given)
        this.settledBy = 'handler'
        return result
      }
    }
    this.job = {
      ...claimed,
      signal: this.#controller.signal,
      complete: settledBy(claimed.complete),
      fail: settledBy(claimed.fail),
      giveBack: settledBy(claimed.giveBack),
    }
  }

  get runsForMs(): number {
    return performance.now() - this.#startedAt
  }

  /** How long the lease may still be believed in; not positive when it is over. */
  get remainingMs(): number {
    return usableMs(this.#ttlMs) - elapsedMs(this.#askedAt)
  }

  /** The database has confirmed it, asked at that instant. */
  renewed(askedAt: Instant): void {
    if (askedAt.monotonicMs > this.#askedAt.monotonicMs) this.#askedAt = askedAt
  }

  /** Another worker may have the job from now on, or has it. */
  lose(reason: 'expired' | 'evicted'): void {
    if (this.isLost || this.settledBy === 'handler') return
    this.isLost = true
    this.#controller.abort(
      new LeaseLostError(
        reason === 'expired'
          ? `The lease of the job ${this.facts.id} (${this.facts.name}) ran out: the database has not confirmed it within ${this.#ttlMs} ms (\`ttl\`). Another worker may run the job now.`
          : `The job ${this.facts.id} (${this.facts.name}) is no longer this worker's: it was cancelled, or its lease ran out and another worker has it.`,
        { key: this.facts.id, reason },
      ),
    )
  }

  /** Asks the handler to end, and waits for it no longer. */
  cut(error: Error): void {
    this.isCutOff = true
    this.#controller.abort(error)
    this.#cutOff(error)
  }
}
