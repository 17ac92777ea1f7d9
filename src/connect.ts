import { checkObject, parseFlag } from './base/arguments.ts'
import type { Store } from './contract/store.ts'
import { InvalidArgumentError } from './errors.ts'
import { createLocks } from './primitives/create-locks.ts'
import type { Locks } from './primitives/locks.ts'
import type { LocksOptions } from './primitives/options.ts'
import type { DriverOptions } from './stores/driver.ts'
import { DRIVERS, driverOf } from './stores/drivers.ts'

/**
 * Locks over the store that a URL names. What it opens – the store and its client – is closed by `locks.close()`.
 *
 * | url | store |
 * |---|---|
 * | `memory:` | this process alone |
 * | `sqlite:./locks.db`, `sqlite:/var/lib/app/locks.db` | a file, for all processes of this machine |
 * | `redis://user:password@host:6379/0`, `rediss://…` | a Redis or Valkey server, by the `ioredis` or `redis` package |
 * | `redis+sentinel://user:password@host:26379,host:26379/mymaster/0`, `rediss+sentinel://…` | the Redis server that is the master, as Sentinels know it |
 * | `redis+cluster://user:password@host:7000,host:7001`, `rediss+cluster://…` | a Redis Cluster; a few of its servers are enough |
 * | `redlock:redis://a:6379,redis://b:6379,redis://c:6379` | several independent Redis masters, of which a majority decides |
 * | `postgres://user:password@host:5432/database`, `postgresql://…` | a PostgreSQL database, by the `pg` or `postgres` package |
 * | `etcd://user:password@host:2379,host:2379`, `etcds://…` | the members of an etcd, `etcds` with TLS, by the `@grpc/grpc-js` package |
 *
 * At the end of a URL may stand `?prefix=app:` (redis, redlock, etcd), `?replicas=1` (redis) and `?maxTtl=5m` (redlock), joined
 * by `&`: the options of these stores.
 *
 * ```ts
 * import { connect } from 'holdfast'
 *
 * const locks = await connect('redis://localhost:6379', { label: 'billing' })
 * await locks.withLock('invoice:42', async (lease) => {
 *   console.log('paying under fence', lease.fence)
 * })
 * await locks.close()
 * ```
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or a package that the store needs
 * is not installed.
 * @throws {StoreError} when the store is not there or refuses.
 */
export async function connect(url: string, options: ConnectOptions = {}): Promise<Locks> {
  checkObject(options)
  const { readOnly, ...settings } = options
  const store = await openStore(url, { readOnly: parseFlag('readOnly', readOnly, false) })
  try {
    return createLocks(store, settings)
  } catch (error) {
    await store.close()
    throw error
  }
}

/** What all keys of one `connect` have in common, and how to open their store. */
export interface ConnectOptions extends LocksOptions {
  /**
   * Whether the locks are only looked at, by `inspect`, `peek` or a dashboard. Then a user that may only read is enough on Redis,
   * PostgreSQL and etcd, and a replica or a standby will do. Nothing is written, and calls that would change something are refused.
   * A SQLite file that is empty or not there is refused, too, unless it is the default file. See docs/inspect.md. Default: false.
   */
  readonly readOnly?: boolean | undefined
}

/** What stands before the first colon, in lower case; empty where nothing does. */
export function schemeOf(url: string): string {
  const [, scheme = ''] = /^([a-z][a-z0-9+.-]*):/i.exec(url) ?? []
  return scheme.toLowerCase()
}

/**
 * The URL is in no message, as it may hold a password.
 *
 * @throws as {@link connect} does.
 */
export async function openStore(url: unknown, options: DriverOptions): Promise<Store> {
  if (typeof url !== 'string') {
    throw new InvalidArgumentError(
      `Expected \`url\` to be a string, got ${url === null ? 'null' : typeof url}.`,
    )
  }
  const scheme = schemeOf(url)
  const driver = await driverOf(scheme)
  if (driver === undefined) {
    throw new InvalidArgumentError(
      `Expected \`url\` to begin with ${knownSchemes()}, got ${scheme === '' ? 'no scheme' : `${scheme}:`}.`,
    )
  }
  return driver.open(url, options)
}

function knownSchemes(): string {
  const known = DRIVERS.flatMap(({ schemes }) => schemes.map((scheme) => `${scheme}:`))
  return `${known.slice(0, -1).join(', ')} or ${known.at(-1)}`
}
