import { basename } from 'node:path'
import type { ParsedArguments } from '../arguments.ts'
import { LEAST_TTL_MS, type TakePlan, takePlanOf } from '../take-plan.ts'
import { expected, UsageError } from '../usage-error.ts'

/** The options of `holdfast run`, checked and with defaults. */
export interface RunPlan extends TakePlan {
  readonly file: string
  readonly args: readonly string[]
  readonly graceMs: number
  readonly label: string
}

export function planOf(given: ParsedArguments): RunPlan {
  const [file, ...args] = given.rest
  if (file === undefined || file === '') {
    throw new UsageError('Expected a command after `--`, as in `holdfast run KEY -- command`, got nothing.')
  }
  const ttlMs = given.duration('ttl', { leastMs: LEAST_TTL_MS }) ?? 30_000
  return {
    ...takePlanOf(given),
    key: given.word('one KEY before `--`'),
    ttlMs,
    file,
    args,
    graceMs: graceOf(given, ttlMs),
    label: given.text('label') ?? basename(file),
  }
}

function graceOf(given: ParsedArguments, ttlMs: number): number {
  const graceMs = given.duration('grace')
  if (graceMs === undefined) return Math.min(5000, ttlMs / 4)
  // A renewal comes at a third of the ttl and may need a second attempt. SIGTERM must not come before that.
  if (graceMs <= ttlMs / 2) return graceMs
  throw expected('--grace', `at most half of the ttl, which is ${ttlMs}ms`, given.text('grace'))
}
