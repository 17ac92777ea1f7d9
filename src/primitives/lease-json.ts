import { expected, parseCount } from '../base/arguments.ts'
import { HOLD_RANGE, parseDuration, TTL_RANGE } from '../base/duration.ts'
import { UNLIMITED } from '../contract/store.ts'
import type { LeaseJson } from '../engine/lease.ts'
import { checkKey } from './options.ts'

/** @throws {InvalidArgumentError} unless it is what a lease says of itself, perhaps read from JSON. */
export function parseLeaseJson(json: unknown): Omit<LeaseJson, 'fence'> & { fence: bigint } {
  const fields = (json ?? {}) as Partial<Record<keyof LeaseJson, unknown>>
  const { key, id, fence, units, limit, ttlMs, minHoldMs, lockDelayMs } = fields
  const isNamed = typeof id === 'string' && id !== '' && id.length <= LONGEST_ID
  if (!isNamed || typeof fence !== 'string' || !/^\d{1,19}$/.test(fence)) {
    throw expected('json', 'what lease.detach() or lease.toJSON() returned', json)
  }
  checkKey(key)
  const most = parseCount('limit', limit, { least: 1, most: UNLIMITED })
  return {
    key,
    id,
    fence: BigInt(fence),
    limit: most,
    units: parseCount('units', units, { least: 1, most }),
    ttlMs: parseDuration('ttlMs', ttlMs, TTL_RANGE),
    minHoldMs: minHoldMs === undefined ? undefined : parseDuration('minHoldMs', minHoldMs, HOLD_RANGE),
    lockDelayMs:
      lockDelayMs === undefined ? undefined : parseDuration('lockDelayMs', lockDelayMs, HOLD_RANGE),
  }
}

const LONGEST_ID = 200
