export type { IoredisClient, IoredisConnection } from '../redis/server/ioredis.ts'
export type { NodeRedisClient, NodeRedisConnection } from '../redis/server/node-redis.ts'
export { openRedlock } from './open.ts'
export { type RedlockStoreOptions, redlockStore } from './options.ts'
