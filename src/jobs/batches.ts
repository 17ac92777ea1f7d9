import { checkOptions, expected, parseCount, parseFunction } from '../base/arguments.ts'
import { type Duration, parseDuration } from '../base/duration.ts'
import type { RunningJob } from './job.ts'
import { WAIT_RANGE } from './options.ts'
import type { JobHandler } from './worker.ts'

/** How many jobs a batch has. */
export interface JobBatchOptions {
  /** The largest number of jobs, from 1 to 1000. The `concurrency` of the worker must not be smaller. */
  readonly size: number
  /** How long the first job of a batch waits for others, from 0 to 24 days. Default: 0, for those that begin at the same time. */
  readonly wait?: Duration | undefined
}

/** Does the work of several jobs. It may return an array with a result for each of them, in the same order. */
export type JobBatchWork<Payload = unknown> = (jobs: readonly RunningJob<Payload>[]) => unknown

interface BatchMember<Payload> {
  readonly job: RunningJob<Payload>
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

/**
 * A handler that does the work of several jobs of a worker at once. Each job keeps its own lease, signal and attempts.
 *
 * - If `work` returns, all of them are completed. If it throws, the attempt of each has failed.
 * - `job.fail(error)`, `job.complete()` and `job.giveBack()` end one of them in another way.
 *
 * ```ts
 * import { inBatches, openJobs } from 'holdfast/jobs'
 *
 * const jobs = await openJobs<{ index: { id: string } }>('postgres://localhost/shop')
 * jobs.work(
 *   {
 *     index: inBatches({ size: 100, wait: '200ms' }, async (batch) => {
 *       await fetch('https://search.example/documents', {
 *         method: 'POST',
 *         body: JSON.stringify(batch.map((job) => job.payload.id)),
 *       })
 *     }),
 *   },
 *   { concurrency: 200 },
 * )
 * ```
 */
export function inBatches<Payload = unknown>(
  options: JobBatchOptions,
  work: JobBatchWork<Payload>,
): JobHandler<Payload> {
  checkOptions(options, ['size', 'wait'], 'size')
  const size = parseCount('size', options.size, { least: 1, most: 1000 })
  const waitMs = parseDuration('wait', options.wait ?? 0, WAIT_RANGE)
  if (waitMs === Number.POSITIVE_INFINITY) throw expected('wait', 'a duration that ends', options.wait)
  parseFunction('work', work)
  let waiting: BatchMember<Payload>[] = []
  let timer: NodeJS.Timeout | undefined

  function begin(): void {
    clearTimeout(timer)
    timer = undefined
    const members = waiting
    waiting = []
    // A job that was lost or cut off meanwhile is not this worker's any more.
    const held = members.filter(({ job: { signal }, reject }) => {
      if (signal.aborted) reject(signal.reason)
      return !signal.aborted
    })
    if (held.length > 0) void run(held, work)
  }

  return (job) =>
    new Promise((resolve, reject) => {
      waiting.push({ job, resolve, reject })
      if (waiting.length >= size) begin()
      else if (timer === undefined) {
        timer = setTimeout(begin, waitMs)
        // The worker keeps the process alive. After its stop nothing has to.
        timer.unref()
      }
    })
}

async function run<Payload>(
  members: readonly BatchMember<Payload>[],
  work: JobBatchWork<Payload>,
): Promise<void> {
  try {
    const results = await work(members.map(({ job }) => job))
    const isEach = Array.isArray(results)
    if (isEach && results.length !== members.length)
      throw expected(
        'results',
        `one for each of the ${members.length} jobs of the batch, or no array`,
        results,
      )
    for (const [at, { resolve }] of members.entries()) resolve(isEach ? results[at] : undefined)
  } catch (error) {
    for (const { reject } of members) reject(error)
  }
}
