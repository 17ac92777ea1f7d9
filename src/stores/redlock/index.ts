export type { IoredisClient, IoredisConnection } from '../redis/ioredis.ts'
export type { NodeRedisClient, NodeRedisConnection } from '../redis/node-redis.ts'
export { type RedlockStoreOptions, redlockStore } from './client.ts'
export { openRedlock } from './open.ts'
