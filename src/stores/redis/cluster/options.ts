import { checkOptions, expected, parseFunction } from '../../../base/arguments.ts'
import { InvalidArgumentError } from '../../../errors.ts'
import type { ClusterLink, RedisLink, ServerAddress } from '../server/client-link.ts'
import type { IoredisClient } from '../server/ioredis.ts'
import { type LinkMaker, linksOf } from '../server/links-of.ts'
import type { NodeRedisClient } from '../server/node-redis.ts'
import { parseAddresses } from '../server/server-addresses.ts'

/** The servers of a Redis Cluster, and how to reach them. */
export interface ClusterOptions {
  /** Some of the servers. They tell of the others. Without a port it is 6379. */
  readonly nodes: readonly { readonly host: string; readonly port?: number | undefined }[]
  /**
   * Makes a client of one server, by the address that the servers announce. Use it if addresses have to be translated,
   * or if settings differ between the servers. The client is only asked for its settings. Default: the client that is
   * passed to `redisStore`, with this address.
   */
  readonly createNode?:
    | ((address: { readonly host: string; readonly port: number }) => IoredisClient | NodeRedisClient)
    | undefined
}

/** `links`: of the client that was passed beside these options; undefined if that is none of a single server. */
export function parseCluster(options: unknown, links: LinkMaker | undefined): ClusterLink {
  if (typeof options !== 'object' || options === null) {
    throw expected('cluster', 'an object with `nodes`', options)
  }
  checkOptions(options, ['nodes', 'createNode'])
  const { nodes, createNode } = options as Partial<ClusterOptions>
  const seeds = parseAddresses(nodes, {
    option: 'cluster.nodes',
    noun: 'server',
    example: { host: 'redis-1', port: 6379 },
  })
  const linkTo = createNode === undefined ? links : linksMadeBy(parseFunction('createNode', createNode))
  if (linkTo === undefined) {
    throw new InvalidArgumentError(
      'Expected `client` to be a client of a single server beside the option `cluster`, or `cluster.createNode` to make one, got a client of a cluster.',
    )
  }
  return { keyPrefix: linkTo(seeds[0]).keyPrefix, seeds, linkTo }
}

function linksMadeBy(createNode: NonNullable<ClusterOptions['createNode']>) {
  return ({ host, port }: ServerAddress): RedisLink => linksOf(createNode({ host, port }))()
}
