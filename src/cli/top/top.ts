import type { ParsedArguments } from '../arguments.ts'
import { NO_FILTER } from '../job-filter.ts'
import { openLocks } from '../open-locks.ts'
import { storeName } from '../store-name.ts'
import { placeOf } from '../store-option.ts'
import { UsageError } from '../usage-error.ts'
import { printLooks } from './batch.ts'
import { type Evict, showLive } from './live.ts'
import type { Sort } from './sorts.ts'

export async function showTop(given: ParsedArguments): Promise<number> {
  given.refuseWords(' A prefix goes into --prefix.')
  const everyMs = given.duration('interval', { leastMs: SHORTEST_MS }) ?? 1000
  const count = given.flag('once') ? 1 : given.count('count', { least: 1, most: 1_000_000_000 - 1 })
  const asJson = given.flag('json')
  const isLive = count === undefined && !asJson && !given.flag('batch') && canShowPages()
  refuseOptions(given)
  if (given.flag('jobs')) {
    // Loaded only here, as the jobs load much that the locks do not need.
    const { showTopJobs } = await import('./jobs/top-jobs.ts')
    return await showTopJobs(given, { everyMs, count, asJson, isLive })
  }
  const { url } = await placeOf(given)
  // A connection of its own, as to look takes fewer rights.
  const evict: Evict = async (key, ids, reason) => {
    await using writer = await openLocks(url, { label: 'holdfast top' })
    const evicted = await Promise.all(ids.map((id) => writer.evict(key, id, { reason })))
    return evicted.flat()
  }
  const options = {
    evict,
    store: storeName(url),
    prefix: given.text('prefix') ?? '',
    everyMs,
    order: { sort: given.choice<Sort>('sort') ?? 'waiting', isReversed: given.flag('reverse') },
  }
  await using locks = await openLocks(url, { readOnly: true })
  if (isLive) return await showLive(locks, options)
  return await printLooks(locks, { ...options, count, asJson })
}

/** Of the options of locks and of jobs, only those of what is shown mean something. */
function refuseOptions(given: ParsedArguments): void {
  const isOfJobs = given.flag('jobs')
  for (const name of isOfJobs ? OF_LOCKS : OF_JOBS) {
    if (!given.flag(name) && given.text(name) === undefined) continue
    throw new UsageError(
      isOfJobs
        ? `Expected --${name} without --jobs, got both.`
        : `Expected --${name} together with --jobs, got it alone.`,
    )
  }
}

const OF_LOCKS = ['prefix', 'sort', 'reverse']
const OF_JOBS = [...Object.keys(NO_FILTER), 'schema']

/** Whether input and output are a terminal that can show a changing page. */
function canShowPages(): boolean {
  return process.stdin.isTTY && process.stdout.isTTY && process.env['TERM'] !== 'dumb'
}

const SHORTEST_MS = 100
