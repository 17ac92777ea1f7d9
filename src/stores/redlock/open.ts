import { given } from '../../base/arguments.ts'
import { opened } from '../../base/opened.ts'
import type { Store } from '../../contract/store.ts'
import type { IoredisClient } from '../redis/server/ioredis.ts'
import { newClient } from '../redis/server/new-client.ts'
import type { NodeRedisClient } from '../redis/server/node-redis.ts'
import { linksOfAll } from './links.ts'
import { parseOptions, type RedlockStoreOptions } from './options.ts'
import { RedlockStore } from './redlock-store.ts'
import { parseRedlockUrl } from './url.ts'

/**
 * A store on several independent Redis (6.2 or newer) or Valkey masters, of which a majority decides: one of three or two of
 * five may be down, hang or be cut off, and nobody notices. Takes one client for each server, and uses only its settings, as
 * `redisStore` does. Fencing tokens rise as on any other store. Semaphores of more than one permit are refused.
 *
 * It is safe under three conditions: clocks run at the same rate, the clocks of most servers do not jump, and servers do not
 * forget. See docs/redlock.md.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { redlockStore } from 'holdfast/redlock'
 * import { Redis } from 'ioredis'
 *
 * const locks = createLocks(redlockStore(['a', 'b', 'c'].map((host) => new Redis({ host }))))
 * await locks.withLock('invoice:42', async (lease) => {
 *   console.log('paying under fence', lease.fence)
 * })
 * await locks.close()
 * ```
 *
 * @throws {InvalidArgumentError} when the clients or an option are not what they should be.
 */
export function redlockStore(
  clients: readonly (IoredisClient | NodeRedisClient)[],
  options: RedlockStoreOptions = {},
): Store {
  return newRedlockStore(clients, options)
}

/**
 * A store on the servers that a URL names: `redlock:redis://a:6379,redis://b:6379,redis://c:6379`, by whichever client package
 * is installed: `ioredis`, or else `redis`. Behind the last server, `?maxTtl=5m&prefix=app:` are the options of that name. Asks
 * the servers who they are before it resolves. One that cannot be reached does not matter as long as a majority can; `close()`
 * ends all connections.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 * @throws {StoreError} when a majority is not there or refuses, when two of them are the same server, or one is a replica.
 */
export async function openRedlock(url: string, options: RedlockStoreOptions = {}): Promise<Store> {
  const { servers, options: ofUrl } = parseRedlockUrl(url)
  const clients = await Promise.all(servers.map((one) => newClient(one)))
  return opened(newRedlockStore(clients, { ...ofUrl, ...given(options) }), (store) => store.meet())
}

function newRedlockStore(
  clients: readonly (IoredisClient | NodeRedisClient)[],
  options: RedlockStoreOptions,
): RedlockStore {
  const settings = parseOptions(options)
  const links = linksOfAll(clients)
  if (links.length % 2 === 0) adviseOdd(links.length)
  return new RedlockStore(links, settings)
}

let advised = false

/** Warns once per process: an even number works, but the last server adds nothing except its own faults. */
function adviseOdd(count: number): void {
  if (advised) return
  advised = true
  const survives = Math.ceil(count / 2) - 1
  process.emitWarning(
    `An odd number of Redis servers is advised: ${count} survive the loss of ${survives}, as ${count - 1} do.`,
    'HoldfastWarning',
  )
}
