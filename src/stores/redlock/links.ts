import { show } from '../../base/duration.ts'
import { InvalidArgumentError } from '../../errors.ts'
import type { RedisLink } from '../redis/server/client-link.ts'
import { serverLinksOf } from '../redis/server/links-of.ts'

/**
 * A link to the server of each client.
 *
 * @throws {InvalidArgumentError} when the clients are not what they should be.
 */
export function linksOfAll(clients: unknown): readonly RedisLink[] {
  if (!Array.isArray(clients) || clients.length === 0 || clients.length > MOST_SERVERS) {
    const got = Array.isArray(clients) ? `${clients.length}` : show(clients)
    throw new InvalidArgumentError(
      `Expected \`clients\` to be an array of 1 to ${MOST_SERVERS} clients, one for each Redis server, got ${got}.`,
    )
  }
  return clients.map(linkOf)
}

/** A set of servers is one number with a bit for each. More servers than this are of no use anyway. */
const MOST_SERVERS = 31

function linkOf(client: unknown): RedisLink {
  const links = serverLinksOf(client)
  if (links !== undefined) return links()
  throw new InvalidArgumentError(
    `Expected each of \`clients\` to be a \`Redis\` of the package ioredis or a client of the package redis, got ${show(client)}.`,
  )
}
