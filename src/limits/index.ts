export { createLimit, type Limit, type LimitOutcome, type LimitWork } from './limit.ts'
export type { LimitOptions, RunOptions, SlidingWindow, TryRunOptions } from './options.ts'
export type { RateLimiter } from './rate-limiter.ts'
