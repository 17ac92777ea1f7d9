import { expected } from '../base/arguments.ts'
import { HOLD_RANGE, parseDuration } from '../base/duration.ts'
import { JOB_STATES, type JobFilter, type JobState } from '../jobs/index.ts'

/** A view of jobs, as plain texts: equal requests share a look. */
export type JobsRequest =
  | {
      readonly view: 'jobs'
      readonly filter: JobFilterTexts
      readonly after: string | undefined
      readonly span: JobSpan
    }
  | { readonly view: 'job'; readonly id: string }

/** A filter as the page sends it. A text that is empty or missing lets all jobs through. */
export type JobFilterTexts = Readonly<Partial<Record<(typeof FILTER_NAMES)[number], string>>>

/** How far back the counts over time go. */
export type JobSpan = '1h' | '6h' | '24h' | '7d'

export const JOB_SPANS: Readonly<Record<JobSpan, { readonly span: string; readonly step: string }>> = {
  '1h': { span: '1h', step: '1m' },
  '6h': { span: '6h', step: '5m' },
  '24h': { span: '24h', step: '15m' },
  '7d': { span: '168h', step: '2h' },
}

export function jobsRequestIn(query: URLSearchParams): JobsRequest | undefined {
  switch (query.get('view')) {
    case 'job':
      return { view: 'job', id: query.get('id') ?? '' }
    case 'jobs': {
      const span = query.get('span') ?? ''
      return {
        view: 'jobs',
        filter: filterTextsOf((name) => query.get(name)),
        after: query.get('after') || undefined,
        span: Object.hasOwn(JOB_SPANS, span) ? (span as JobSpan) : '1h',
      }
    }
    default:
      return undefined
  }
}

/** Of a query or a body. What is not a text is left out. */
export function filterTextsOf(read: (name: string) => unknown): JobFilterTexts {
  const given = FILTER_NAMES.map((name) => [name, read(name)] as const)
  return Object.fromEntries(given.filter(([, value]) => typeof value === 'string' && value !== ''))
}

/**
 * The filter as the library takes it. "Since an hour ago" is counted from now.
 *
 * @throws {InvalidArgumentError} when a state, an id or a time cannot be read.
 */
export function jobFilterOf({ state, name, id, since, before }: JobFilterTexts): JobFilter {
  return {
    state: state === undefined ? undefined : stateOf(state),
    name,
    id: id === undefined ? undefined : id.split(/[\s,]+/).filter((each) => each !== ''),
    since: since === undefined ? undefined : timeOf('since', since),
    before: before === undefined ? undefined : timeOf('before', before),
  }
}

function stateOf(text: string): JobState {
  const state = JOB_STATES.find((each) => each === text)
  if (state === undefined) throw expected('state', `one of ${JOB_STATES.join(', ')}`, text)
  return state
}

/** A time in ISO 8601, or how long ago it was. */
function timeOf(name: string, text: string): Date {
  if (/^\d{4}-/.test(text)) return new Date(text)
  return new Date(Date.now() - parseDuration(name, text, HOLD_RANGE))
}

const FILTER_NAMES = ['state', 'name', 'id', 'since', 'before'] as const
