import { checkOptions, expected, parseCount } from '../base/arguments.ts'
import { backoffMs } from '../base/backoff.ts'
import { paused, systemClock } from '../base/clock.ts'
import { StoreError } from '../errors.ts'
import { JOB_STATES, type JobState } from './job.ts'
import type { Chosen, Repaired } from './job-tables.ts'
import type { JobViews, ListQuery } from './job-views.ts'
import type { JobFilter, JobSelection, ListOptions } from './jobs.ts'
import { parseDate, parseId, parseIds, parseNames } from './options.ts'
import { HELD_UP, HELD_UP_MS } from './settlement-queue.ts'

/** What people do to jobs. */
export interface Repair {
  readonly selection: JobSelection
  /** The states of jobs that can be changed so. */
  readonly from: readonly JobState[]
  /** Changes the oldest jobs first, so children before their parents. Default: the newest first, or ids in the order that was given. */
  readonly isOldestFirst?: boolean
  /** "cancelled" */
  readonly done: string
  /** Changes up to {@link PORTION} jobs. */
  change(chosen: Chosen): Promise<Repaired>
}

/** A page of a list, and what is changed in one transaction. */
export const PORTION = 1000

/** Changes the jobs of a selection, a portion at a time. Resolves with the ids of those that were changed. */
export async function repair(
  views: JobViews,
  { selection, from, isOldestFirst = false, done, change }: Repair,
): Promise<readonly string[]> {
  const changed: string[] = []
  const busy: string[] = []
  const all = portions(views, selection, from)
  for await (const chosen of isOldestFirst ? oldestFirst(all) : all) {
    const repaired = await changeInTries(chosen, change)
    changed.push(...repaired.changed)
    busy.push(...repaired.busy)
  }
  if (busy.length > 0) throw lockedError(busy, done)
  return changed
}

async function* portions(
  views: JobViews,
  selection: JobSelection,
  from: readonly JobState[],
): AsyncGenerator<Chosen> {
  if (typeof selection === 'string' || Array.isArray(selection)) {
    const ids = parseIds('ids', selection)
    for (let at = 0; at < ids.length; at += PORTION) yield { ids: ids.slice(at, at + PORTION), states: from }
    return
  }
  const { states: asked, ...query } = parseFilter(selection as JobFilter)
  if (Object.values(selection).every((value) => value === undefined))
    throw expected('selection', 'ids, or a filter with at least one property', selection)
  const states = from.filter((state) => asked.includes(state))
  let after: string | undefined
  do {
    const page = await views.list({ ...query, states, after, limit: PORTION })
    if (page.length > 0) yield { ids: page.map(({ id }) => id), states }
    after = page.length < PORTION ? undefined : page.at(-1)?.id
  } while (after !== undefined)
}

/** The same jobs, in the order in which they were enqueued: each has a larger id than the one before. */
async function* oldestFirst(portionsOfIds: AsyncIterable<Chosen>): AsyncGenerator<Chosen> {
  const all: Chosen[] = []
  for await (const chosen of portionsOfIds) all.push(chosen)
  const [first] = all
  if (first === undefined) return
  const ids = all.flatMap((chosen) => chosen.ids).sort((one, other) => (BigInt(one) < BigInt(other) ? -1 : 1))
  for (let at = 0; at < ids.length; at += PORTION) yield { ...first, ids: ids.slice(at, at + PORTION) }
}

/** Another open transaction may have locked some of the jobs for a moment. */
async function changeInTries(chosen: Chosen, change: Repair['change']): Promise<Repaired> {
  const changed: string[] = []
  let until = performance.now() + HELD_UP_MS
  let ids = chosen.ids
  for (let round = 1; ; round += 1) {
    const repaired = await change({ ...chosen, ids })
    changed.push(...repaired.changed)
    ids = repaired.busy
    // While jobs are changed, only time was lacking for the others.
    if (repaired.changed.length > 0) until = performance.now() + HELD_UP_MS
    if (ids.length === 0 || performance.now() > until) return { changed, busy: ids }
    await paused(systemClock, backoffMs(HELD_UP, round))
  }
}

function lockedError(busy: readonly string[], done: string): StoreError {
  const shown = busy.length > 5 ? `${busy.slice(0, 5).join(', ')}, …` : busy.join(', ')
  return new StoreError(
    'store-unavailable',
    `Other open transactions have locked ${busy.length} of the jobs (${shown}), their groups or their keys, so these were not ${done}. All others were. Call it again.`,
  )
}

export function parseFilter(
  filter: JobFilter,
  more: readonly string[] = [],
): Omit<ListQuery, 'limit' | 'after'> {
  checkOptions(filter, ['state', 'name', 'id', 'since', 'before', ...more])
  const { state, name, id, since, before } = filter
  return {
    states: parseStates(state),
    names: name === undefined ? undefined : parseNames('name', name),
    ids: id === undefined ? undefined : parseIds('id', id),
    since: since === undefined ? undefined : parseDate('since', since),
    before: before === undefined ? undefined : parseDate('before', before),
  }
}

export function parseListOptions(options: ListOptions): ListQuery {
  const { after, limit = 50 } = options
  return {
    ...parseFilter(options, ['after', 'limit']),
    after: after === undefined ? undefined : parseId('after', after),
    limit: parseCount('limit', limit, { least: 1, most: PORTION }),
  }
}

function parseStates(state: JobFilter['state']): readonly JobState[] {
  if (state === undefined) return JOB_STATES
  const states = Array.isArray(state) ? (state as readonly JobState[]) : [state as JobState]
  const wrongAt = states.findIndex((each) => !JOB_STATES.includes(each))
  if (wrongAt === -1) return states
  throw expected('state', `one of ${JOB_STATES.join(', ')}`, states[wrongAt])
}
