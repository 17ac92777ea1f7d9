import { clientOfUrl } from '../postgres/client-of-url.ts'
import { createJobs } from './create-jobs.ts'
import type { Jobs, JobsOptions } from './jobs.ts'

/**
 * The jobs in the database that a URL names, by the package `pg` or `postgres`, whichever is installed. Everything it
 * opens is closed by `jobs.close()`.
 *
 * ```ts
 * import { openJobs } from 'holdfast/jobs'
 *
 * const jobs = await openJobs('postgres://localhost/shop')
 * console.log(await jobs.count())
 * await jobs.close()
 * ```
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 */
export async function openJobs<Payloads extends object = Record<string, unknown>>(
  url: string,
  options: JobsOptions = {},
): Promise<Jobs<Payloads>> {
  return createJobs<Payloads>(await clientOfUrl(url), options)
}
