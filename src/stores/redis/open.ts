import { opened } from '../../base/opened.ts'
import { imported, notInstalled } from '../../base/packages.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError, StoreError } from '../../errors.ts'
import { type RedisStoreOptions, redisStore } from './options.ts'
import type { IoredisClient } from './server/ioredis.ts'
import type { NodeRedisClient } from './server/node-redis.ts'

/**
 * A store on the server that a URL names, by whichever client package is installed: `ioredis`, or else `redis`. Asks the
 * server something before it resolves, so that a wrong password is known at once. `close()` ends all its connections.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 * @throws {StoreError} when the server is not there, says nothing for 5 s, or refuses.
 */
export async function openRedis(url: string, options: RedisStoreOptions = {}): Promise<Store> {
  checkUrl(url)
  return answering(redisStore(await newClient(url), options))
}

/** The store, once it has answered something; else it is closed. */
export function answering(store: Store): Promise<Store> {
  return opened(store, async () => {
    let patience: NodeJS.Timeout | undefined
    const silence = new Promise<never>((_, reject) => {
      patience = setTimeout(() => reject(new StoreError('store-unavailable', SILENT)), PATIENCE_MS)
    })
    try {
      // Needs what every request needs, finds nobody, and changes nothing.
      await Promise.race([store.release({ key: 'is anybody there', id: '?', cancel: false }), silence])
    } finally {
      clearTimeout(patience)
    }
  })
}

/** A server that hangs still takes connections: the kernel does that for it. */
const PATIENCE_MS = 5000
const SILENT =
  'The Redis server did not answer within 5 s. Check that it runs and is not stopped, and the network in between.'

/** The URL itself is in no message: it may hold a password. */
export function checkUrl(url: string): void {
  const expected = 'Expected `url` to be like redis://user:password@host:6379/0 (or rediss:// for TLS)'
  const parsed = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined) throw new InvalidArgumentError(`${expected}, got something that is not a URL.`)
  const { protocol, hostname, username, password } = parsed
  if (protocol !== 'redis:' && protocol !== 'rediss:') {
    throw new InvalidArgumentError(`${expected}, got one that begins with ${protocol}`)
  }
  if (hostname === '') throw new InvalidArgumentError(`${expected}, got one without a host.`)
  if (databaseOf(parsed) === undefined) {
    throw new InvalidArgumentError(
      `${expected}, got one whose path or \`?db=\` is not the number of a database.`,
    )
  }
  if (!isDecodable(username + password)) {
    throw new InvalidArgumentError(
      `${expected}, got one whose user or password has a % that is not written as %25.`,
    )
  }
}

/** The number of the database that a URL names, as its path or as `?db=`. Undefined where that is no number, or not one. */
export function databaseOf({ pathname, searchParams }: URL): number | undefined {
  const named = [pathname.slice(1), ...searchParams.getAll('db')].filter((text) => text !== '')
  const [first = '0'] = named
  const isOne = named.every((text) => /^\d{1,9}$/.test(text) && Number(text) === Number(first))
  return isOne ? Number(first) : undefined
}

export function isDecodable(text: string): boolean {
  try {
    decodeURIComponent(text)
    return true
  } catch {
    return false
  }
}

/** Never connected itself: the store only duplicates it. */
export async function newClient(url: string): Promise<IoredisClient | NodeRedisClient> {
  // The two packages do not take the database from the same parts of a URL.
  const bare = new URL(url)
  const database = databaseOf(bare) ?? 0
  bare.pathname = ''
  bare.searchParams.delete('db')
  const ioredis = await imported(() => import('ioredis'))
  if (ioredis !== undefined) return new ioredis.Redis(bare.href, { lazyConnect: true, db: database })
  const redis = await imported(() => import('redis'))
  if (redis !== undefined) return redis.createClient({ url: bare.href, database })
  throw notInstalled('ioredis', 'redis')
}
