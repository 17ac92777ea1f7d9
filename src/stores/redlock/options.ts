import { checkOptions, expected, parseFlag } from '../../base/arguments.ts'
import { type Duration, parseDuration, TTL_RANGE } from '../../base/duration.ts'
import type { RedlockSettings } from './redlock-store.ts'

/** How the store uses its servers. Every process needs the same `prefix` and `maxTtl`. */
export interface RedlockStoreOptions {
  /** As for `redisStore`: what every key and channel begins with, on each of the servers. Default: `holdfast:`. */
  readonly prefix?: string | undefined
  /**
   * The longest that anybody, in any process, may hold a key without being heard of: `ttl` (or `minHold`) plus `lockDelay`.
   * Longer ones are refused. A server that has started, or lost its data, less than this ago may have forgotten a holder,
   * so its votes do not count yet. From 50 ms to 24 days, the same in every process. Default: 30 s.
   */
  readonly maxTtl?: Duration | undefined
  /**
   * `false`: no fencing tokens, and no request for them where servers do not agree on one at once. `lease.fence` is then 0 for
   * everybody. Default: `true`.
   */
  readonly fences?: boolean | undefined
}

/** @throws {InvalidArgumentError} when an option is not what it should be. */
export function parseOptions(options: RedlockStoreOptions): RedlockSettings {
  checkOptions(options, ['prefix', 'maxTtl', 'fences'])
  const { prefix = 'holdfast:', maxTtl = 30_000 } = options
  if (typeof prefix !== 'string') {
    throw expected('prefix', 'a string', prefix)
  }
  const fences = parseFlag('fences', options.fences, true)
  return { prefix, fences, maxTtlMs: parseDuration('maxTtl', maxTtl, TTL_RANGE) }
}
