import { checkOptions, expected, parseFlag } from '../../base/arguments.ts'
import { type Duration, parseDuration, show, TTL_RANGE } from '../../base/duration.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import type { IoredisClient } from '../redis/server/ioredis.ts'
import { serverLinksOf } from '../redis/server/links-of.ts'
import type { NodeRedisClient } from '../redis/server/node-redis.ts'
import { type RedlockSettings, RedlockStore } from './redlock-store.ts'

export interface RedlockStoreOptions {
  /** As for `redisStore`: what every key and channel begins with, on each of the servers. Default: `holdfast:`. */
  readonly prefix?: string | undefined
  /**
   * The longest that anybody, in any process, may hold a key without being heard of: `ttl` (or `minHold`) plus `lockDelay`.
   * Longer ones are refused. A server that has started, or lost its data, less than this ago may have forgotten a holder,
   * so its votes do not count yet. The same in every process. Default: 30 s.
   */
  readonly maxTtl?: Duration | undefined
  /**
   * `false`: no fencing tokens, and no request for them where servers do not agree on one at once. `lease.fence` is then 0 for
   * everybody. Default: `true`.
   */
  readonly fences?: boolean | undefined
}

/**
 * A store on several independent Redis (6.2 or newer) or Valkey masters, of which a majority decides: one of three or two of
 * five may be down, hang or be cut off, and nobody notices. Takes clients as `redisStore` does, one for each server, and
 * duplicates them as that does. Fencing tokens rise as on any other store. Semaphores of more than one permit are refused.
 *
 * It is only as safe as its assumptions: clocks of the servers that run at the same rate, and servers that do not
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

export function newRedlockStore(
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

function parseOptions(options: RedlockStoreOptions): RedlockSettings {
  checkOptions(options, ['prefix', 'maxTtl', 'fences'])
  const { prefix = 'holdfast:', maxTtl = 30_000 } = options
  if (typeof prefix !== 'string') {
    throw expected('prefix', 'a string', prefix)
  }
  const fences = parseFlag('fences', options.fences, true)
  return { prefix, fences, maxTtlMs: parseDuration('maxTtl', maxTtl, TTL_RANGE) }
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
