import { Cluster } from 'ioredis'
import { Cluster as Cluster6 } from 'ioredis6'
import { createCluster } from 'redis'
import { createCluster as createCluster6 } from 'redis6'
import type { IoredisCluster, NodeRedisCluster } from '../../../../src/stores/redis/index.ts'
import type { RedisCluster } from '../../../servers/redis-cluster.ts'

/** The clients of a cluster that a user may pass. None of them is connected, and none needs to be. */
export const clusterClients: Readonly<
  Record<string, (cluster: Pick<RedisCluster, 'addresses'>) => IoredisCluster | NodeRedisCluster>
> = {
  'ioredis 5': newClusterClient,
  'ioredis 6': ({ addresses }) => new Cluster6([...addresses], { lazyConnect: true }),
  'redis 5': ({ addresses }) => createCluster({ rootNodes: addresses.map((socket) => ({ socket })) }),
  'redis 6': ({ addresses }) => createCluster6({ rootNodes: addresses.map((socket) => ({ socket })) }),
}

/** A client of any kind, for tests that do not depend on the kind. */
export function newClusterClient({ addresses }: Pick<RedisCluster, 'addresses'>): Cluster {
  return new Cluster([...addresses], { lazyConnect: true })
}
