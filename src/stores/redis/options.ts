import { checkOptions, expected, parseCount } from '../../base/arguments.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import {
  type IoredisCluster,
  ioredisClusterLink,
  type NodeRedisCluster,
  nodeRedisClusterLink,
} from './cluster/clients.ts'
import { type ClusterOptions, parseCluster } from './cluster/options.ts'
import { RedisStore } from './redis-store.ts'
import { sentinelLink } from './sentinel/link.ts'
import { parseSentinel, type SentinelOptions, sentinelOf } from './sentinel/options.ts'
import type { ClusterLink, RedisLink } from './server/client-link.ts'
import type { IoredisClient } from './server/ioredis.ts'
import { has, isIoredis, linksOf, serverLinksOf } from './server/links-of.ts'
import type { NodeRedisClient } from './server/node-redis.ts'

export interface RedisStoreOptions {
  /**
   * What every key and channel of the store begins with, after the `keyPrefix` of the client. Stores with different
   * prefixes do not see each other. Default: `holdfast:`.
   */
  readonly prefix?: string | undefined
  /**
   * Asks these Sentinels for the master, and follows it when there is another one. The client is then only asked for its
   * settings, such as user and password, and not for its address. A `Redis` of ioredis that was made with `sentinels` needs
   * no such option.
   */
  readonly sentinel?: SentinelOptions | undefined
  /**
   * These servers are a Redis Cluster. The client is then one of a single server, and only asked for its settings, such as user
   * and password, and not for its address. A client of a cluster needs no such option, see docs/redis-fail-over.md.
   */
  readonly cluster?: ClusterOptions | undefined
  /**
   * How many replicas have to have a grant, and each renewal of it, before it counts. Costs a round trip of the replica.
   * Fewer leases are lost in a fail-over; it is no consensus, see docs/redis-fail-over.md. Default: 0.
   */
  readonly replicas?: number | undefined
}

/**
 * A store on one Redis (6.2 or newer) or Valkey server, or on a cluster of them, over the client you already have: a `Redis`
 * or a `Cluster` of the package ioredis 5 or 6, or what createClient() or createCluster() of the package redis 5 or 6 made,
 * connected or not. The client is only asked for its settings: the store's own connections open when they are first needed,
 * reconnect for ever, and end with `close()`.
 *
 * Its calls reject with a `StoreError`: `store-unavailable` where asking again may help, `store-refused` where a person has
 * to change something (credentials, permissions, memory, a key that is used by something else). See docs/redis.md.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { redisStore } from 'holdfast/redis'
 * import { Redis } from 'ioredis'
 *
 * const locks = createLocks(redisStore(new Redis('redis://localhost:6379')))
 * await locks.withLock('invoice:42', async (lease) => {
 *   console.log('paying under fence', lease.fence)
 * })
 * await locks.close()
 * ```
 *
 * @throws {InvalidArgumentError} when the client or an option is not what it should be.
 */
export function redisStore(
  client: IoredisClient | NodeRedisClient | IoredisCluster | NodeRedisCluster,
  options: RedisStoreOptions = {},
): Store {
  const settings = settingsOf(options)
  return new RedisStore(linkOf(client, options), settings)
}

/** @throws {InvalidArgumentError} when an option is not what it should be. */
export function settingsOf(options: RedisStoreOptions): {
  readonly prefix: string
  readonly replicas: number
} {
  checkOptions(options, ['prefix', 'sentinel', 'cluster', 'replicas'])
  const { prefix = 'holdfast:', replicas = 0 } = options
  if (typeof prefix !== 'string') throw expected('prefix', 'a string', prefix)
  return { prefix, replicas: parseCount('replicas', replicas, { least: 0, most: 100 }) }
}

function linkOf(client: unknown, options: RedisStoreOptions): RedisLink | ClusterLink {
  const { sentinel } = options
  const cluster =
    options.cluster === undefined
      ? clusterLinkOf(client)
      : parseCluster(options.cluster, serverLinksOf(client))
  if (cluster !== undefined && sentinel !== undefined) {
    throw new InvalidArgumentError('Expected no option `sentinel` for a client of a cluster, got one.')
  }
  if (cluster !== undefined) return cluster
  const linkTo = linksOf(client)
  const own = isIoredis(client) ? sentinelOf(client) : undefined
  const settings = sentinel === undefined ? own : parseSentinel(sentinel)
  return settings === undefined ? linkTo() : sentinelLink(linkTo, settings)
}

function clusterLinkOf(client: unknown): ClusterLink | undefined {
  if (has(client, 'status', 'call', 'duplicate', 'nodes')) return ioredisClusterLink(client as IoredisCluster)
  if (has(client, 'sendCommand', 'duplicate', 'masters', 'nodeClient')) {
    return nodeRedisClusterLink(client as unknown as NodeRedisCluster)
  }
  return undefined
}
