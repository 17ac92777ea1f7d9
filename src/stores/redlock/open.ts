import { show } from '../../base/duration.ts'
import { opened } from '../../base/opened.ts'
import { isDecodable } from '../../base/text.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import type { IoredisClient } from '../redis/server/ioredis.ts'
import { serverLinksOf } from '../redis/server/links-of.ts'
import { newClient } from '../redis/server/new-client.ts'
import type { NodeRedisClient } from '../redis/server/node-redis.ts'
import { databaseOf } from '../redis/server/server-url.ts'
import { parseOptions, type RedlockStoreOptions } from './options.ts'
import { RedlockStore } from './redlock-store.ts'

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
 * is installed: `ioredis`, or else `redis`. Asks them who they are before it resolves. One that cannot be reached does not
 * matter as long as a majority can; `close()` ends all connections.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 * @throws {StoreError} when a majority is not there or refuses, when two of them are the same server, or one is a replica.
 */
export async function openRedlock(url: string, options: RedlockStoreOptions = {}): Promise<Store> {
  const clients = await Promise.all(parseUrls(url).map((one) => newClient(one)))
  return opened(newRedlockStore(clients, options), (store) => store.meet())
}

function newRedlockStore(
  clients: readonly (IoredisClient | NodeRedisClient)[],
  options: RedlockStoreOptions,
): RedlockStore {
  const settings = parseOptions(options)
  if (!Array.isArray(clients) || clients.length === 0 || clients.length > MOST_SERVERS) {
    const got = Array.isArray(clients) ? `${clients.length}` : show(clients)
    throw new InvalidArgumentError(
      `Expected \`clients\` to be an array of 1 to ${MOST_SERVERS} clients, one for each Redis server, got ${got}.`,
    )
  }
  const links = clients.map(linkOf)
  if (clients.length % 2 === 0) adviseOdd(clients.length)
  return new RedlockStore(links, settings)
}

/** A set of servers is one number with a bit for each. More servers than this are of no use anyway. */
const MOST_SERVERS = 31

/** The URLs themselves are in no message: they may hold passwords. */
function parseUrls(url: unknown): readonly string[] {
  const expected = 'Expected `url` to be like redlock:redis://a:6379,redis://b:6379,redis://c:6379'
  const [, list] = typeof url === 'string' ? (/^redlock:(.*)$/is.exec(url) ?? []) : []
  if (list === undefined) throw new InvalidArgumentError(`${expected}, got something else.`)
  if (list.trim() === '') throw new InvalidArgumentError(`${expected}, got an empty list.`)
  return list.split(/,(?=\s*(?:rediss?:|$))/i).map((text, index) => {
    const one = text.trim()
    const parsed = URL.canParse(one) ? new URL(one) : undefined
    const isFine =
      (parsed?.protocol === 'redis:' || parsed?.protocol === 'rediss:') &&
      parsed.hostname !== '' &&
      databaseOf(parsed) !== undefined &&
      isDecodable(parsed.username + parsed.password)
    if (isFine) return one
    throw new InvalidArgumentError(
      `${expected}, got a part ${index + 1} that is not the URL of a Redis server, as in redis://user:password@host:6379/0.`,
    )
  })
}

function linkOf(client: unknown): RedisLink {
  const links = serverLinksOf(client)
  if (links !== undefined) return links()
  throw new InvalidArgumentError(
    `Expected each of \`clients\` to be a \`Redis\` of the package ioredis or a client of the package redis, got ${show(client)}.`,
  )
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
