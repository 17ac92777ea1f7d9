import { InvalidArgumentError } from '../errors.ts'
import type { PostgresPool } from '../postgres/connections.ts'
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
  // Without the URL in the message: it may hold a password.
  if (!isPostgresUrl(url)) {
    throw new InvalidArgumentError(
      'Expected `url` to be like postgres://user:password@host:5432/database, got something else.',
    )
  }
  return createJobs<Payloads>(await newClient(url), options)
}

function isPostgresUrl(url: unknown): boolean {
  return typeof url === 'string' && URL.canParse(url) && /^postgres(ql)?:$/.test(new URL(url).protocol)
}

/** Never connected itself: only its configuration is taken. */
async function newClient(url: string): Promise<PostgresPool> {
  const pg = await imported(() => import('pg'))
  if (pg !== undefined) return new pg.default.Client({ connectionString: url })
  const postgres = await imported(() => import('postgres'))
  if (postgres !== undefined) return postgres.default(url)
  throw new InvalidArgumentError(
    'Expected the package `pg` or `postgres` to be installed for a postgres:// url, got neither: npm install pg',
  )
}

async function imported<Package>(load: () => Promise<Package>): Promise<Package | undefined> {
  try {
    return await load()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_MODULE_NOT_FOUND') return undefined
    throw error
  }
}
