/**
 * A store on one Redis or Valkey server, a master behind Sentinels, or a Cluster. See [Redis](../../../docs/redis.md), [Sentinel, replicas, Cluster](../../../docs/redis-fail-over.md).
 *
 * @module
 */
export type { IoredisCluster, NodeRedisCluster } from './cluster/clients.ts'
export { openRedisCluster } from './cluster/open.ts'
export type { ClusterOptions } from './cluster/options.ts'
export { openRedis, redisStore } from './open.ts'
export type { RedisStoreOptions } from './options.ts'
export { openRedisSentinel } from './sentinel/open.ts'
export type { SentinelOptions } from './sentinel/options.ts'
export type { IoredisClient, IoredisConnection } from './server/ioredis.ts'
export type { NodeRedisClient, NodeRedisConnection } from './server/node-redis.ts'
