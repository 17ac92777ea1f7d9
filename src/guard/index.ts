/**
 * The database refuses writes under an older fence. See [Guard](../../docs/guard.md).
 *
 * @module
 */
export type { Fence, FencedLease } from './fence.ts'
export { type GuardOptions, guard } from './guard.ts'
export { type GuardedUpdateOptions, guardedUpdate } from './guarded-update.ts'
export { type MigrateGuardOptions, migrateGuard } from './migrate.ts'
export {
  type IoredisScripting,
  type NodeRedisScripting,
  type RedisGuardOptions,
  redisGuard,
} from './redis-guard.ts'
