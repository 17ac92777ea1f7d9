import { basename } from 'node:path'
import type { Option, ParsedArguments } from '../arguments.ts'
import { EXIT } from '../exit-codes.ts'
import { expected, UsageError } from '../usage-error.ts'

/** The options of `holdfast run`, checked and with defaults. */
export interface RunPlan {
  readonly key: string
  readonly file: string
  readonly args: readonly string[]
  readonly shape: HoldShape
  /** 0: do not wait. */
  readonly waitMs: number
  readonly busyCode: number
  readonly ttlMs: number
  readonly graceMs: number
  readonly minHoldMs: number
  readonly lockDelayMs: number
  readonly label: string
}

export type HoldShape =
  | { readonly tag: 'exclusive' }
  | { readonly tag: 'shared' }
  | { readonly tag: 'permits'; readonly permits: number; readonly units: number }

export const planOptions: Readonly<Record<string, Option>> = {
  shared: { short: 's', help: 'hold it together with others who hold it shared' },
  'no-wait': { short: 'n', help: 'do not wait when it is taken' },
  wait: { short: 'w', value: 'DURATION', help: 'wait for this long; default: until it is free' },
  'busy-code': { short: 'E', value: 'N', help: 'exit code when it was not acquired; default: 75' },
  permits: { value: 'N', help: 'a semaphore: up to N hold it together' },
  units: { value: 'N', help: 'how many of the permits to take; default: 1' },
  ttl: {
    value: 'DURATION',
    help: 'how long it stays taken when this machine dies; renewed at a third of it; default: 30s',
  },
  grace: {
    value: 'DURATION',
    help: 'when it is about to be lost, the command gets SIGTERM this long before SIGKILL; default: 5s, or a quarter of the ttl if that is less',
  },
  'min-hold': { value: 'DURATION', help: 'keep it taken for at least this long' },
  'lock-delay': { value: 'DURATION', help: 'after a crash nobody gets it for this long' },
  label: {
    value: 'TEXT',
    help: 'what `holdfast ls` shows next to host and pid; default: the name of the command',
  },
}

export function planOf(given: ParsedArguments): RunPlan {
  const [file, ...args] = given.rest
  if (file === undefined || file === '') {
    throw new UsageError('Expected a command after `--`, as in `holdfast run KEY -- command`, got nothing.')
  }
  const ttlMs = given.duration('ttl', { leastMs: 50 }) ?? 30_000
  return {
    key: given.word('one KEY before `--`'),
    file,
    args,
    shape: shapeOf(given),
    waitMs: waitOf(given),
    busyCode: given.count('busy-code', { least: 0, most: 255 }) ?? EXIT.notAcquired,
    ttlMs,
    graceMs: graceOf(given, ttlMs),
    minHoldMs: given.duration('min-hold') ?? 0,
    lockDelayMs: given.duration('lock-delay') ?? 0,
    label: given.text('label') ?? basename(file),
  }
}

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

function graceOf(given: ParsedArguments, ttlMs: number): number {
  const graceMs = given.duration('grace')
  if (graceMs === undefined) return Math.min(5000, ttlMs / 4)
  // A renewal comes at a third of the ttl and may need a second attempt. SIGTERM must not come before that.
  if (graceMs <= ttlMs / 2) return graceMs
  throw expected('--grace', `at most half of the ttl, which is ${ttlMs}ms`, given.text('grace'))
}
