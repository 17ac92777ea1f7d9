import { show } from '../../base/duration.ts'
import type { Store } from '../../contract/store.ts'
import { InvalidArgumentError } from '../../errors.ts'
import type { RedisLink } from './connection.ts'
import { type IoredisClient, ioredisLink } from './ioredis.ts'
import { type NodeRedisClient, nodeRedisLink } from './node-redis.ts'
import { RedisStore } from './redis-store.ts'

export interface RedisStoreOptions {
  /**
   * What every key and channel of the store begins with, after the `keyPrefix` of the client. Stores with different
   * prefixes do not see each other. Default: `holdfast:`.
   */
  readonly prefix?: string | undefined
}

export function redisStore(client: IoredisClient | NodeRedisClient, options: RedisStoreOptions = {}): Store {
  return new RedisStore(linkOf(client), parsePrefix(options))
}

function parsePrefix(options: RedisStoreOptions): string {
  for (const name of Object.keys(options)) {
    if (name !== 'prefix') {
      throw new InvalidArgumentError(`Expected the options to be among \`prefix\`, got \`${name}\`.`)
    }
  }
  const { prefix = 'holdfast:' } = options
  if (typeof prefix === 'string') return prefix
  throw new InvalidArgumentError(`Expected \`prefix\` to be a string, got ${show(prefix)}.`)
}

function linkOf(client: IoredisClient | NodeRedisClient): RedisLink {
  if (isIoredis(client)) return ioredisLink(client)
  if (isNodeRedis(client)) return nodeRedisLink(client)
  throw new InvalidArgumentError(
    `Expected \`client\` to be a \`Redis\` of the package ioredis or a client of the package redis, got ${show(client)}.`,
  )
}

function isIoredis(client: object): client is IoredisClient {
  return 'status' in client && 'call' in client && !('nodes' in client)
}

function isNodeRedis(client: object): client is NodeRedisClient {
  return 'isReady' in client && 'sendCommand' in client && 'duplicate' in client
}
