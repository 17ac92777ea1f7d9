import { InvalidArgumentError } from '../errors.ts'
import { shortened } from './text.ts'

/**
 * Milliseconds, or a number with a unit: `'250ms'`, `'30s'`, `'5m'`, `'1h'`, `'2d'`. There may be one space before the unit,
 * and the number may have a fraction: `'1.5 h'`. A day is 24 hours.
 */
export type Duration = number | `${number}${'' | ' '}${'ms' | 's' | 'm' | 'h' | 'd'}` | (string & {})

export interface DurationRange {
  readonly leastMs: number
  readonly mostMs: number
  /** Whether `Infinity` is meaningful: a wait without an end. */
  readonly endless: boolean
}

/** No store keeps a key for longer without a renewal. Node.js timers end at 24.8 days; a lease that long is a mistake anyway. */
export const LONGEST_MS: number = 24 * 86_400_000

/** Below 50 ms a lease is over before an answer from another machine is in. */
export const TTL_RANGE: DurationRange = { leastMs: 50, mostMs: LONGEST_MS, endless: false }
export const WAIT_RANGE: DurationRange = { leastMs: 0, mostMs: LONGEST_MS, endless: true }
export const HOLD_RANGE: DurationRange = { leastMs: 0, mostMs: LONGEST_MS, endless: false }

/** @throws {InvalidArgumentError} in the words *Expected `name` to be …, got …*. */
export function parseDuration(name: string, value: unknown, range: DurationRange): number {
  // Whole milliseconds: what every store can keep. Away from zero, so that a little less than nothing is refused.
  const exactMs = toMilliseconds(value)
  const durationMs = exactMs < 0 ? Math.floor(exactMs) : Math.ceil(exactMs)
  const inRange = durationMs >= range.leastMs && durationMs <= range.mostMs
  if (inRange || (range.endless && durationMs === Number.POSITIVE_INFINITY)) return durationMs
  const endless = range.endless ? ', or Infinity' : ''
  const longest = range.mostMs === LONGEST_MS ? '24 days' : `${range.mostMs} ms`
  throw new InvalidArgumentError(
    `Expected \`${name}\` to be a duration from ${range.leastMs} ms to ${longest} (milliseconds, or '250ms', '30s', '5m', '1h', '2d')${endless}, got ${show(value)}.`,
  )
}

/** A value as it may stand in a message: short, on one line, with its type visible. Never throws. */
export function show(value: unknown): string {
  if (typeof value === 'string') {
    const isLong = value.length > LONGEST_SHOWN
    const text = isLong ? `${value.slice(0, LONGEST_SHOWN)}…` : value
    return `${JSON.stringify(text)}${isLong ? ` (${value.length} characters)` : ''}`
  }
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'object' && value !== null) return showObject(value)
  return shortened(typeof value === 'bigint' ? `${value}n` : String(value), LONGEST_SHOWN)
}

const LONGEST_SHOWN = 60

function showObject(value: object): string {
  try {
    if (Array.isArray(value)) return `an array of ${value.length}`
    const name: unknown = value.constructor?.name
    const shown = typeof name === 'string' && name !== '' ? shortened(name, LONGEST_SHOWN) : 'no class'
    return `an object (${shown})`
  } catch {
    // A getter threw, or it is a Proxy that was revoked.
    return 'an object that cannot be looked at'
  }
}

function toMilliseconds(value: unknown): number {
  if (typeof value === 'number') return value
  return typeof value === 'string' ? millisecondsIn(value) : Number.NaN
}

const PATTERN = /^(\d+(?:\.\d+)?) ?(ms|s|m|h|d)$/
const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** NaN unless the text is a number with a unit. */
export function millisecondsIn(text: string): number {
  const match = PATTERN.exec(text)
  return Number(match?.[1]) * (UNIT_MS[match?.[2] ?? ''] ?? Number.NaN)
}
