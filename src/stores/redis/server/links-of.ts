import { expected } from '../../../base/arguments.ts'
import { tooOld } from '../../../base/packages.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import type { OtherServer, RedisLink } from './client-link.ts'
import { type IoredisClient, ioredisLink } from './ioredis.ts'
import { type NodeRedisClient, nodeRedisLink } from './node-redis.ts'

/** Makes links with the settings of a client: to the server that it was made for, or to another one. */
export type LinkMaker = (target?: OtherServer) => RedisLink

/**
 * Undefined for what is no client of one server.
 *
 * @throws {InvalidArgumentError} for a client of a version that is too old.
 */
export function serverLinksOf(client: unknown): LinkMaker | undefined {
  if (isIoredis(client)) {
    // An option of version 4 and before.
    if (has(client.options, 'dropBufferSupport')) throw tooOld('ioredis 5 or newer', 'ioredis')
    return (target) => ioredisLink(client, target)
  }
  if (isNodeRedis(client)) return (target) => nodeRedisLink(client, target)
  return undefined
}

/** @throws {InvalidArgumentError} for what is no client of one server. */
export function linksOf(client: unknown): LinkMaker {
  const links = serverLinksOf(client)
  if (links !== undefined) return links
  if (has(client, 'getSentinelNode')) {
    throw new InvalidArgumentError(
      'Expected `client` to be made with createClient(), and the option `sentinel` to say who knows the master, got a client of createSentinel(), which does not tell how it was made.',
    )
  }
  // Version 3 and before.
  if (has(client, 'send_command')) throw tooOld('redis 4 or newer', 'redis')
  throw expected(
    'client',
    'a `Redis` or a `Cluster` of the package ioredis or a client of the package redis',
    client,
  )
}

/** A `Cluster` of ioredis has all of these, and `nodes` besides. */
export function isIoredis(client: unknown): client is IoredisClient {
  return has(client, 'status', 'call', 'duplicate') && !has(client, 'nodes')
}

function isNodeRedis(client: unknown): client is NodeRedisClient {
  return has(client, 'isReady', 'sendCommand', 'duplicate') && !has(client, 'masters')
}

export function has(client: unknown, ...names: readonly string[]): boolean {
  return typeof client === 'object' && client !== null && names.every((name) => name in client)
}
