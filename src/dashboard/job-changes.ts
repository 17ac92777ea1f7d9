import { expected } from '../base/arguments.ts'
import type { JobSelection } from '../jobs/index.ts'
import type { DashboardJobs } from './jobs-look.ts'
import { filterTextsOf, jobFilterOf } from './jobs-request.ts'

/**
 * Retries, cancels or removes the jobs that the body of a request names by `ids` or by `filter`. Resolves with how many were
 * changed.
 *
 * @throws {InvalidArgumentError} when the body says something else. Nothing is changed.
 */
export async function changeJobs(
  jobs: DashboardJobs,
  body: Readonly<Record<string, unknown>>,
): Promise<number> {
  const { action, reason } = body
  const selection = selectionIn(body)
  switch (action) {
    case 'retry':
      return (await jobs.retry(selection)).length
    case 'cancel':
      return (await jobs.cancel(selection, { reason: reason as string })).length
    case 'remove':
      return (await jobs.remove(selection)).length
    default:
      throw expected('action', 'retry, cancel or remove', action)
  }
}

/** A filter that lets all jobs through is refused by the library. */
function selectionIn({ ids, filter }: Readonly<Record<string, unknown>>): JobSelection {
  if (Array.isArray(ids)) return ids as readonly string[]
  if (typeof filter !== 'object' || filter === null)
    throw expected('ids', 'an array, or `filter` an object', ids)
  return jobFilterOf(filterTextsOf((name) => (filter as Readonly<Record<string, unknown>>)[name]))
}
