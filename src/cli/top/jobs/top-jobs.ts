import { openJobs } from '../../../jobs/index.ts'
import type { ParsedArguments } from '../../arguments.ts'
import { filterOf } from '../../job-filter.ts'
import { givenPostgresUrl } from '../../postgres-url.ts'
import { storeName } from '../../store-name.ts'
import { printJobLooks } from './jobs-batch.ts'
import { showLiveJobs } from './jobs-live.ts'

export interface TopLooks {
  readonly everyMs: number
  readonly count: number | undefined
  readonly asJson: boolean
  /** Whether to show a screen that changes, and not to print. */
  readonly isLive: boolean
}

export async function showTopJobs(
  given: ParsedArguments,
  { everyMs, count, asJson, isLive }: TopLooks,
): Promise<number> {
  const url = givenPostgresUrl(given)
  const options = { store: storeName(url), everyMs, filter: filterOf(given) }
  const jobs = await openJobs(url, { schema: given.text('schema') ?? 'holdfast' })
  try {
    return isLive
      ? await showLiveJobs(jobs, options)
      : await printJobLooks(jobs, { ...options, count, asJson })
  } finally {
    await jobs.close()
  }
}
