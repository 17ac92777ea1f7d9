import { elapsedMs, type Instant, usableMs } from '../base/instant.ts'
import { LeaseLostError } from '../errors.ts'
import { claimedJob, type Settling } from './claimed-job.ts'
import type { FailOutcome, JobFacts, RunningJob } from './job.ts'
import { now } from './lease-time.ts'

/**
 * One job in one worker, from its claim until it is settled: its lease, its signal, and whether somebody has settled
 * it.
 */
export class Run {
  readonly facts: JobFacts
  readonly job: RunningJob
  /**
   * What the handler itself has made of the job. Where that was in a transaction, nobody knows yet whether it commits.
   */
  settledAs: 'completed' | FailOutcome | undefined
  isLost = false
  isCutOff = false
  readonly #ttlMs: number
  readonly #startedAt = performance.now()
  /** Made when it is first asked for: most handlers never look at it. */
  #controller: AbortController | undefined
  #askedAt: Instant
  #settlements = 0
  #cutOff: (error: unknown) => void = () => {}

  constructor(
    facts: JobFacts,
    { askedAt, ttlMs, settling }: { askedAt: Instant; ttlMs: number; settling: Settling },
  ) {
    this.facts = facts
    this.#askedAt = askedAt
    this.#ttlMs = ttlMs
    const claimed = claimedJob(facts, settling)
    const signal = () => this.#signal()
    this.job = {
      ...claimed,
      get signal() {
        return signal()
      },
      complete: (options) =>
        this.settling(async () => {
          await claimed.complete(options)
          this.settledAs = 'completed'
        }),
      fail: (error, options) =>
        this.settling(async () => {
          const outcome = await claimed.fail(error, options)
          this.settledAs = outcome
          return outcome
        }),
      giveBack: (options) =>
        this.settling(async () => {
          await claimed.giveBack(options)
          this.settledAs = 'ready'
        }),
    }
  }

  /** Until its answer is there, a renewal that no longer finds the attempt has learned nothing: it may have been settled. */
  async settling<Outcome>(settle: () => Promise<Outcome>): Promise<Outcome> {
    this.#settlements += 1
    try {
      return await settle()
    } finally {
      this.#settlements -= 1
    }
  }

  /** Resolves and rejects as the handler does, and rejects when that is no longer waited for. */
  async until(handled: unknown): Promise<void> {
    if (typeof (handled as { then?: unknown } | null | undefined)?.then !== 'function') return
    await new Promise<unknown>((resolve, reject) => {
      this.#cutOff = reject
      ;(handled as PromiseLike<unknown>).then(resolve, reject)
      if (this.isCutOff) reject(this.#signal().reason)
    })
  }

  get runsForMs(): number {
    return performance.now() - this.#startedAt
  }

  /** How long the lease may still be believed in; not positive when it is over. */
  get remainingMs(): number {
    return usableMs(this.#ttlMs) - elapsedMs(this.#askedAt, now())
  }

  /** The database has confirmed it, asked at that instant. */
  renewed(askedAt: Instant): void {
    if (askedAt.monotonicMs > this.#askedAt.monotonicMs) this.#askedAt = askedAt
  }

  /** Another worker may have the job from now on, or has it. */
  lose(reason: 'expired' | 'evicted'): void {
    if (this.isLost || this.settledAs !== undefined) return
    if (reason === 'evicted' && this.#settlements > 0) return
    this.isLost = true
    this.#abort(
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
    this.#abort(error)
    this.#cutOff(error)
  }

  #abort(reason: Error): void {
    this.#controller ??= new AbortController()
    this.#controller.abort(reason)
  }

  #signal(): AbortSignal {
    this.#controller ??= new AbortController()
    return this.#controller.signal
  }
}
