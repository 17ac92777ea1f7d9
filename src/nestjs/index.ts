/**
 * A module and decorators for NestJS. See [Fastify, Express, NestJS](../../docs/frameworks.md).
 *
 * @module
 */
export { Idempotent } from './idempotent.ts'
export {
  HoldfastModule,
  type HoldfastModuleAsyncOptions,
  type HoldfastModuleOptions,
  LOCKS,
} from './module.ts'
export { OnLeadership, type OnLeadershipDecorator, type OnLeadershipOptions } from './on-leadership.ts'
export { type CurrentLock, currentLock } from './running.ts'
export { Scheduled, type ScheduledDecorator } from './scheduled.ts'
export { WithLock, type WithLockDecorator, type WithLockKey } from './with-lock.ts'
