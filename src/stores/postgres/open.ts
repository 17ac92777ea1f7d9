import { opened } from '../../base/opened.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import type { PostgresPool } from '../../postgres/connections.ts'
import { type PostgresStoreOptions, postgresStore } from './client.ts'

/**
 * A store in the database that a URL names, by whichever client package is installed: `pg`, or else `postgres`. Asks the
 * server something before it resolves (and makes the schema where it is not there), so that a wrong password is known at
 * once. `close()` ends all its connections.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 * @throws {StoreError} when the server is not there, says nothing, or refuses.
 */
export async function openPostgres(url: string, options: PostgresStoreOptions = {}): Promise<Store> {
  checkUrl(url)
  const store = postgresStore(await newClient(url), options)
  // Needs what every request needs, finds nobody, and changes nothing.
  return opened(store, () => store.release({ key: 'is anybody there', id: '?', cancel: false }))
}

/** The URL itself is in no message: it may hold a password. */
function checkUrl(url: unknown): asserts url is string {
  const expected = 'Expected `url` to be like postgres://user:password@host:5432/database'
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined) throw new InvalidArgumentError(`${expected}, got something that is not a URL.`)
  const { protocol, username, password, pathname } = parsed
  if (protocol !== 'postgres:' && protocol !== 'postgresql:') {
    throw new InvalidArgumentError(`${expected}, got one that begins with ${protocol}`)
  }
  if (!isDecodable(username + password + pathname)) {
    throw new InvalidArgumentError(`${expected}, got one that has a % that is not written as %25.`)
  }
}

function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

/** Never connected itself: the store only takes its configuration. */
export async function newClient(url: string): Promise<PostgresPool> {
  const pg = await imported(() => import('pg'))
  if (pg !== undefined) return new pg.default.Client({ connectionString: url })
  const postgres = await imported(() => import('postgres'))
  if (postgres !== undefined) return postgres.default(url)
  throw new InvalidArgumentError(
    'Expected the package `pg` or `postgres` to be installed, got neither. Add one of them: npm install pg',
  )
}

/** Undefined where the package is not installed. One that is there and broken is another matter. */
async function imported<T>(load: () => Promise<T>): Promise<T | undefined> {
  try {
    return await load()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND') return undefined
    throw error
  }
}
