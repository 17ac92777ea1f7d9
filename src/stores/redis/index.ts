export { type RedisStoreOptions, redisStore } from './client.ts'
export type { IoredisClient, IoredisConnection } from './ioredis.ts'
export type { NodeRedisClient, NodeRedisConnection } from './node-redis.ts'
export { openRedis } from './open.ts'
