import type { JobTables } from './job-tables.ts'
import { jsonText } from './json-text.ts'
import { type AttemptId, attemptKey, attemptKeys } from './statements.ts'

interface ProgressReport {
  readonly attempt: AttemptId
  progress: string
  /** How often it was skipped, because another transaction had locked the job. */
  skips: number
  readonly stored: Promise<{ readonly isCurrent: boolean }>
  readonly resolve: (answer: { readonly isCurrent: boolean }) => void
  readonly reject: (error: unknown) => void
}

/** Stores the progress of jobs, one statement at a time. While it runs, only the latest value of each job is kept for the next. */
export class ProgressReports {
  readonly #tables: JobTables
  #pending = new Map<string, ProgressReport>()
  #sent: ReadonlyMap<string, ProgressReport> = new Map()
  #isSending = false

  constructor(tables: JobTables) {
    this.#tables = tables
  }

  /** Resolves when this value or a later one is stored. */
  async report(attempt: AttemptId, value: unknown): Promise<{ readonly isCurrent: boolean }> {
    const progress = jsonText('progress', value, { maxBytes: MOST_BYTES })
    const key = attemptKey(attempt)
    let report = this.#pending.get(key)
    if (report === undefined) {
      report = newReport(attempt, progress)
      this.#pending.set(key, report)
    } else report.progress = progress
    if (!this.#isSending) {
      this.#isSending = true
      setImmediate(() => void this.#send())
    }
    return report.stored
  }

  /** Resolves when what was reported of this attempt is stored, or has failed. Undefined if nothing is under way. */
  underWay(attempt: AttemptId): Promise<unknown> | undefined {
    const key = attemptKey(attempt)
    return (this.#pending.get(key) ?? this.#sent.get(key))?.stored.catch(() => {})
  }

  async #send(): Promise<void> {
    while (this.#pending.size > 0) {
      const reports = this.#pending
      this.#sent = reports
      this.#pending = new Map()
      try {
        const entries = [...reports.values()].map(({ attempt: { id, attempt }, progress }) => ({
          id,
          attempt,
          progress,
        }))
        const answer = await this.#tables.report(entries)
        const [gone, skipped] = [attemptKeys(answer.gone), attemptKeys(answer.skipped)]
        for (const [key, report] of reports) {
          if (!skipped.has(key) || !this.#triesAgain(key, report))
            report.resolve({ isCurrent: !gone.has(key) })
        }
        if (skipped.size > 0) await new Promise((resolve) => setTimeout(resolve, LOCKED_MS))
      } catch (error) {
        for (const { reject } of reports.values()) reject(error)
      }
    }
    this.#sent = new Map()
    this.#isSending = false
  }

  /** A statement of ours locks a job for a moment. A transaction of the user's may lock it for long, and is not waited for. */
  #triesAgain(key: string, report: ProgressReport): boolean {
    report.skips += 1
    if (report.skips >= MOST_SKIPS) return false
    const later = this.#pending.get(key)
    if (later === undefined) this.#pending.set(key, report)
    else {
      later.skips = Math.max(later.skips, report.skips)
      later.stored.then(report.resolve, report.reject)
    }
    return true
  }
}

const MOST_BYTES = 8000
const MOST_SKIPS = 10
const LOCKED_MS = 10

function newReport(attempt: AttemptId, progress: string): ProgressReport {
  let resolve: ProgressReport['resolve'] = () => {}
  let reject: ProgressReport['reject'] = () => {}
  const stored = new Promise<{ readonly isCurrent: boolean }>((onStored, onFailed) => {
    resolve = onStored
    reject = onFailed
  })
  return { attempt, progress, skips: 0, stored, resolve, reject }
}
