import type { JobState } from '../jobs/index.ts'
import type { ParsedArguments } from './arguments.ts'
import { expected } from './usage-error.ts'

/** Written down here, because the entry point of the jobs loads much that the help does not need. */
export const JOB_STATE_NAMES: readonly string[] = Object.keys({
  pending: true,
  ready: true,
  blocked: true,
  delayed: true,
  running: true,
  completed: true,
  dead: true,
  cancelled: true,
  superseded: true,
} satisfies Record<JobState, true>)

/** A `JobFilter` with one state and one name at most. */
export interface GivenFilter {
  readonly state: JobState | undefined
  readonly name: string | undefined
  readonly since: Date | undefined
  readonly before: Date | undefined
}

/** The jobs that the options choose. */
export function filterOf(given: ParsedArguments): GivenFilter {
  return {
    state: given.choice<JobState>('state'),
    name: given.text('name'),
    since: timeOf(given, 'since'),
    before: timeOf(given, 'before'),
  }
}

/** A time as ISO 8601 has it, or how long ago it was. */
function timeOf(given: ParsedArguments, option: 'since' | 'before'): Date | undefined {
  const text = given.text(option)
  if (text === undefined) return undefined
  if (!/^\d{4}-/.test(text)) return new Date(Date.now() - (given.duration(option) ?? 0))
  const time = new Date(text)
  if (Number.isFinite(time.getTime())) return time
  throw expected(`--${option}`, 'a time such as 2026-11-23T05:00Z, or how long ago it was, such as 1h', text)
}
