/**
 * Locks that last as long as a request of an HTTP server. See [Fastify, Express, NestJS](../../docs/frameworks.md).
 *
 * @module
 */
export type { HeaderValue } from './answer-recorder.ts'
export { asHttpError, type HttpErrorFields, type StatusCodes } from './http-error.ts'
export {
  type FrameworkReply,
  type IdempotencyMiddleware,
  type IdempotencyOptions,
  type RequestIdempotency,
  requestIdempotency,
} from './idempotency.ts'
export type { IncomingRequest } from './idempotent-request.ts'
export { openServerLocks, type ServerLocks, type ServerLocksOptions } from './open.ts'
export {
  createRequestLocks,
  type During,
  type RequestLocks,
  type RequestLocksOptions,
  type RequestWork,
} from './request-locks.ts'
export { type OutgoingResponse, requestSignal } from './request-signal.ts'
