/**
 * At most n at once, and at most n per window, for each key. See [Limits](../../docs/limits.md).
 *
 * @module
 */
export { createLimit, type Limit, type LimitOutcome, type LimitWork } from './limit.ts'
export { type LimitEvent, type LimitEvents, limitEvents } from './limit-events.ts'
export type { LimitOptions, RunOptions, SlidingWindow, TryRunOptions } from './options.ts'
export type { RateLimiter } from './rate-limiter.ts'
