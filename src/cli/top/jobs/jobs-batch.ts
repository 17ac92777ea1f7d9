import { setTimeout as sleep } from 'node:timers/promises'
import { explained } from '../../../base/explained.ts'
import { StoreError } from '../../../errors.ts'
import type { JobCount, Jobs, JobView } from '../../../jobs/index.ts'
import { EXIT } from '../../exit-codes.ts'
import { countLines, jobLines, pausedNames, pausedText } from '../../job-text.ts'
import { complain, paintFor, print } from '../../terminal.ts'
import { json } from '../../text.ts'
import { PAGE_JOBS } from './job-looks.ts'
import { jobsTitle } from './jobs-header.ts'
import type { JobsTopOptions } from './jobs-live.ts'

export interface JobsBatchOptions extends JobsTopOptions {
  /** How many looks; `undefined`: until the process is ended. */
  readonly count: number | undefined
  readonly asJson: boolean
}

interface JobsLookTaken {
  readonly at: number
  readonly counts: readonly JobCount[]
  readonly paused: readonly string[]
  readonly jobs: readonly JobView[]
}

/** Prints one look after another. Resolves with the exit code. */
export async function printJobLooks(jobs: Jobs, options: JobsBatchOptions): Promise<number> {
  const { count = Number.POSITIVE_INFINITY, everyMs, filter } = options
  let isAway = false
  for (let printed = 0; printed < count; ) {
    if (printed > 0 || isAway) await sleep(everyMs)
    try {
      const [counts, limits, page] = await Promise.all([
        jobs.count(),
        jobs.limits(),
        jobs.list({ ...filter, limit: PAGE_JOBS }),
      ])
      const look = { at: Date.now(), counts, paused: pausedNames(limits), jobs: page.jobs }
      printLook(look, { ...options, isFirst: printed === 0 })
      isAway = false
      printed += 1
    } catch (error) {
      if (!(error instanceof StoreError)) throw error
      if (!isAway) complain(explained(error))
      isAway = true
      // With a number of looks the command ends instead of waiting for the store.
      if (options.count !== undefined) return EXIT.storeUnavailable
    }
  }
  return EXIT.ok
}

function printLook(
  look: JobsLookTaken,
  { asJson, isFirst, store, filter }: JobsBatchOptions & { readonly isFirst: boolean },
): void {
  if (asJson) {
    print(json(look))
    return
  }
  if (!isFirst) print('')
  print(paintFor(process.stdout)('bold', jobsTitle({ at: look.at, store, filter })))
  const tables = [
    look.counts.length === 0 ? ['there are no jobs'] : countLines(look.counts),
    look.paused.length === 0 ? [] : [pausedText(look.paused)],
    look.jobs.length === 0 ? [] : jobLines(look.jobs),
  ]
  for (const lines of tables) if (lines.length > 0) for (const line of ['', ...lines]) print(line)
}
