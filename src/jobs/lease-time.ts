import type { Instant } from '../base/instant.ts'

export function now(): Instant {
  return { monotonicMs: performance.now(), wallMs: Date.now() }
}
