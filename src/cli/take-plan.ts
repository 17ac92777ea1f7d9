import type { Option, ParsedArguments } from './arguments.ts'
import { EXIT } from './exit-codes.ts'
import { UsageError } from './usage-error.ts'

/** The options about taking a key, checked and with defaults. */
export interface TakePlan {
  readonly key: string
  readonly shape: HoldShape
  /** 0: do not wait. */
  readonly waitMs: number
  readonly busyCode: number
  readonly ttlMs: number
  readonly minHoldMs: number
  readonly lockDelayMs: number
}

export type HoldShape =
  | { readonly tag: 'exclusive' }
  | { readonly tag: 'shared' }
  | { readonly tag: 'permits'; readonly permits: number; readonly units: number }

/** How a key is taken, and for how long to wait for it. */
export const takeOptions: Readonly<Record<string, Option>> = {
  shared: { short: 's', help: 'hold it together with others who hold it shared' },
  'no-wait': { short: 'n', help: 'do not wait when it is taken' },
  wait: { short: 'w', value: 'DURATION', help: 'wait for this long; default: until it is free' },
  'busy-code': { short: 'E', value: 'N', help: 'exit code when it was not acquired; default: 75' },
  permits: { value: 'N', help: 'a semaphore: up to N hold it together' },
  units: { value: 'N', help: 'how many of the permits to take; default: 1' },
  'min-hold': { value: 'DURATION', help: 'keep it taken for at least this long' },
  'lock-delay': { value: 'DURATION', help: 'after a crash nobody gets it for this long' },
}

export function takePlanOf(given: ParsedArguments): Omit<TakePlan, 'key' | 'ttlMs'> {
  return {
    shape: shapeOf(given),
    waitMs: waitOf(given),
    busyCode: given.count('busy-code', { least: 0, most: 255 }) ?? EXIT.notAcquired,
    minHoldMs: given.duration('min-hold') ?? 0,
    lockDelayMs: given.duration('lock-delay') ?? 0,
  }
}

/** About half of it passes while the command of `run`, or the next command of a script, starts. */
export const LEAST_TTL_MS = 100

function shapeOf(given: ParsedArguments): HoldShape {
  const permits = given.count('permits', { least: 1, most: 1_000_000 })
  const units = given.count('units', { least: 1, most: permits ?? 1_000_000 })
  if (permits === undefined) {
    if (units !== undefined) throw new UsageError('Expected --units together with --permits.')
    return given.flag('shared') ? { tag: 'shared' } : { tag: 'exclusive' }
  }
  if (given.flag('shared')) throw new UsageError('Expected either --shared or --permits, got both.')
  return { tag: 'permits', permits, units: units ?? 1 }
}

function waitOf(given: ParsedArguments): number {
  const waitMs = given.duration('wait')
  if (!given.flag('no-wait')) return waitMs ?? Number.POSITIVE_INFINITY
  if (waitMs !== undefined) throw new UsageError('Expected either --no-wait or --wait, got both.')
  return 0
}
