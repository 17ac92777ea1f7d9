import { checkObject, expected } from '../base/arguments.ts'
import { paused, systemClock } from '../base/clock.ts'
import type { JobTables } from './job-tables.ts'
import type { Drained, DrainOptions, Worker } from './jobs.ts'
import type { JobFailure } from './run-settlement.ts'
import { parseHandlers, type WorkOptions } from './work-options.ts'
import type { JobHandler } from './worker.ts'

export interface DrainParts {
  readonly handlers: Readonly<Record<string, JobHandler | undefined>>
  readonly options: DrainOptions
  readonly tables: JobTables
  /** Aborts when the jobs are closed. */
  readonly closing: AbortSignal
  readonly work: (handlers: Readonly<Record<string, JobHandler>>, options: WorkOptions) => Worker
}

/** Runs the jobs that there are, until none is left to run. */
export async function drain({ handlers, options, tables, closing, work }: DrainParts): Promise<Drained> {
  checkObject(options)
  const { skipDelays = false, ...workOptions } = options
  if (typeof skipDelays !== 'boolean') throw expected('skipDelays', 'true or false', skipDelays)
  const parsed = parseHandlers(handlers)
  const failures: JobFailure[] = []
  let attempts = 0
  const counted = [...parsed].map(([name, handler]): [string, JobHandler] => [
    name,
    (job) => {
      attempts += 1
      return handler(job)
    },
  ])
  const worker = work(Object.fromEntries(counted), {
    ...workOptions,
    ...(workOptions.onFailure === undefined ? { onFailure: (failure) => failures.push(failure) } : {}),
  })
  try {
    while (worker.jobCount > 0 || (await tables.areLeft([...parsed.keys()], { skipDelays }))) {
      closing.throwIfAborted()
      await paused(systemClock, LOOK_MS, closing)
    }
  } catch (error) {
    // The close may have ended the connection of a look.
    closing.throwIfAborted()
    throw error
  } finally {
    await worker.stop()
  }
  return { attempts, failures }
}

const LOOK_MS = 20
