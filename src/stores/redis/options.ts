import { checkOptions, expected, parseCount, parseFlag } from '../../base/arguments.ts'
import type { ClusterOptions } from './cluster/options.ts'
import type { SentinelOptions } from './sentinel/options.ts'

/** How the store uses Redis. All options are optional. */
export interface RedisStoreOptions {
  /**
   * The prefix of every key and channel of the store, after the `keyPrefix` of the client. Stores with different
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
   * How many replicas have to have a grant, and each renewal of it, before it counts. From 0 to 100. Costs a round trip to the
   * replicas. Fewer leases are lost in a fail-over; it is no consensus, see docs/redis-fail-over.md. Default: 0.
   */
  readonly replicas?: number | undefined
  /**
   * Whether the store is only looked at. Then a user with the commands of the category `@read` is enough, and a replica will do.
   * Calls that would change something are refused. See docs/inspect.md. Default: false.
   */
  readonly readOnly?: boolean | undefined
}

/** @throws {InvalidArgumentError} when an option is not what it should be. */
export function settingsOf(options: RedisStoreOptions): {
  readonly prefix: string
  readonly replicas: number
  readonly readOnly: boolean
} {
  checkOptions(options, ['prefix', 'sentinel', 'cluster', 'replicas', 'readOnly'])
  const { prefix = 'holdfast:', replicas = 0 } = options
  if (typeof prefix !== 'string') throw expected('prefix', 'a string', prefix)
  return {
    prefix,
    replicas: parseCount('replicas', replicas, { least: 0, most: 100 }),
    readOnly: parseFlag('readOnly', options.readOnly, false),
  }
}
