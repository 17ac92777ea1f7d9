import { given } from '../../base/arguments.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import {
  type IoredisCluster,
  ioredisClusterLink,
  type NodeRedisCluster,
  nodeRedisClusterLink,
} from './cluster/clients.ts'
import { parseCluster } from './cluster/options.ts'
import { type RedisStoreOptions, settingsOf } from './options.ts'
import { storeOf } from './redis-store.ts'
import { sentinelLink } from './sentinel/link.ts'
import { parseSentinel, sentinelOf } from './sentinel/options.ts'
import { answering } from './server/answering.ts'
import type { ClusterLink, RedisLink } from './server/client-link.ts'
import type { IoredisClient } from './server/ioredis.ts'
import { has, isIoredis, linksOf, serverLinksOf } from './server/links-of.ts'
import { newClient } from './server/new-client.ts'
import type { NodeRedisClient } from './server/node-redis.ts'
import { plainServerAt } from './server/plain-server.ts'
import { checkUrl, parametersIn, urlOptionsIn } from './server/server-url.ts'

/**
 * A store on one Redis (6.2 or newer) or Valkey server, or on a cluster of them, over the client you already have. It
 * takes a `Redis` or a `Cluster` of the package ioredis 5 or 6. It also takes the result of `createClient()` of
 * the package redis 4, 5 or 6, or of its `createCluster()` from version 5 on. The client may be connected or not, because it is only asked for its
 * settings. The store's own connections open when they are first needed, reconnect for ever, and end with `close()`.
 *
 * Its calls reject with a `StoreError`: `store-unavailable` if asking again may help, `store-refused` if a person has
 * to change something. That may be credentials, permissions, memory, or a key that something else uses. See
 * docs/redis.md.
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
  return storeOf(linkOf(client, options), settingsOf(options))
}

/**
 * A store on the server that a URL names, by whichever client package is installed: `ioredis`, or else `redis`.
 * `?prefix=app:&replicas=1` are the options of that name. Asks the server something before it resolves, so that a wrong password
 * is known at once. `close()` ends all its connections.
 *
 * @throws {InvalidArgumentError} when the URL or an option is not what it should be, or neither package is installed.
 * @throws {StoreError} when the server is not there, says nothing for 5 s, or refuses.
 */
export async function openRedis(url: string, options: RedisStoreOptions = {}): Promise<Store> {
  checkUrl(url)
  const ofUrl = urlOptionsIn(parametersIn(new URL(url).search))
  const store = redisStore(await newClient(url), { ...ofUrl, ...given(options) })
  return answering(store, { readOnly: options.readOnly, whySilent: () => plainServerAt(url) })
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
