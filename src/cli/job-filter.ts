import type { JobState } from '../jobs/index.ts'
import { type Option, type ParsedArguments, typedMs } from './arguments.ts'
import { expected } from './usage-error.ts'

/** Written down here, because the entry point of the jobs loads much that the help does not need. */
const JOB_STATE_NAMES: readonly string[] = Object.keys({
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
  readonly id: readonly string[] | undefined
  readonly since: Date | undefined
  readonly before: Date | undefined
}

/** The options that choose jobs. `when` is said before the help of each, such as `with --jobs: `. */
export function jobFilterOptions({
  when = '',
}: {
  readonly when?: string
} = {}): Readonly<Record<keyof GivenFilter, Option>> {
  return {
    state: {
      value: 'STATE',
      isOnce: true,
      choices: JOB_STATE_NAMES,
      help: `${when}only jobs in this state: ${JOB_STATE_NAMES.join(', ')}`,
    },
    name: { value: 'NAME', isOnce: true, help: `${when}only jobs of this name` },
    id: { value: 'ID', isOnce: true, help: `${when}only this job, or several with commas between them` },
    since: {
      value: 'TIME',
      isOnce: true,
      help: `${when}only jobs enqueued at this time or later: 2026-11-23T05:00Z, or 1h ago as 1h`,
    },
    before: { value: 'TIME', isOnce: true, help: `${when}only jobs enqueued before this time` },
  }
}

/** The jobs that the options choose. */
export function filterOf(given: ParsedArguments): GivenFilter {
  const state = given.choice<JobState>('state')
  return TYPED_PARTS.reduce((filter, part) => filterWith(filter, part, given.text(part) ?? ''), {
    ...NO_FILTER,
    state,
  })
}

export const NO_FILTER: GivenFilter = {
  state: undefined,
  name: undefined,
  id: undefined,
  since: undefined,
  before: undefined,
}

/** The parts of a filter that are texts. */
export type TypedPart = Exclude<keyof GivenFilter, 'state'>

const TYPED_PARTS: readonly TypedPart[] = ['name', 'id', 'since', 'before']

/**
 * The filter with one part as it was typed. An empty text lets all jobs through.
 *
 * @throws {UsageError} when the text is no id or no time.
 */
export function filterWith(filter: GivenFilter, part: TypedPart, text: string): GivenFilter {
  if (text === '') return { ...filter, [part]: undefined }
  switch (part) {
    case 'name':
      return { ...filter, name: text }
    case 'id':
      return { ...filter, id: idsIn(text) }
    case 'since':
    case 'before':
      return { ...filter, [part]: timeIn(`--${part}`, text) }
    default:
      return part satisfies never
  }
}

export function isFiltered(filter: GivenFilter): boolean {
  return Object.values(filter).some((value) => value !== undefined)
}

function idsIn(text: string): readonly string[] {
  const ids = text.split(/[\s,]+/).filter((id) => id !== '')
  if (ids.length > 0 && ids.every(isJobId)) return ids
  throw expected('--id', 'the id of a job, or several with commas between them', text)
}

export function isJobId(text: string): boolean {
  return /^[1-9]\d{0,17}$/.test(text)
}

/** A time as ISO 8601 has it, or how long ago it was. */
function timeIn(name: string, text: string): Date {
  const isIso = /^\d{4}-/.test(text)
  // A year alone, or 20261123, would be a number of seconds.
  if (/^[\d.]+$/.test(text)) throw expected(name, AS_TIME, text)
  const time = new Date(isIso ? text : Date.now() - typedMs(text))
  const isValid = time.getTime() >= FIRST_MS && time.getTime() < END_MS
  if (isValid && (!isIso || hasSuchDay(text))) return time
  throw expected(name, AS_TIME, text)
}

const AS_TIME = 'a time such as 2026-11-23T05:00Z, or how long ago it was with its unit, such as 1h'

/** The years 1 to 9999, which the jobs take. */
const FIRST_MS = Date.parse('0001-01-01T00:00Z')
const END_MS = Date.parse('+010000-01-01T00:00Z')

/** `Date` reads February 30 as March 2, and with it come jobs that nobody meant. */
function hasSuchDay(text: string): boolean {
  const [day] = /^\d{4}-\d\d-\d\d(?=$|[T ])/.exec(text) ?? []
  if (day === undefined) return false
  const midnight = new Date(day)
  return Number.isFinite(midnight.getTime()) && midnight.toISOString().startsWith(day)
}
