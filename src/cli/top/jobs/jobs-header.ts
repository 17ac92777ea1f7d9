import { JOB_STATES, type JobCount } from '../../../jobs/index.ts'
import { type GivenFilter, isFiltered } from '../../job-filter.ts'
import type { Paint } from '../../terminal.ts'
import { age, plain, width } from '../../text.ts'
import { timeOf, zoneName } from '../header.ts'
import { start } from '../lines.ts'
import type { JobsSeen } from './job-looks.ts'
import { filterText } from './jobs-view.ts'

export interface JobsHeaderFacts {
  readonly store: string
  readonly everyMs: number
  readonly filter: GivenFilter
  /** 1: the first page of the list. */
  readonly pageNumber: number
  readonly seen: JobsSeen
}

/** Three lines: store, time and filter; how many jobs there are; how the looks go. A filter that is too long gets a line of its own. */
export function jobsHeaderLines(
  { store, everyMs, filter, pageNumber, seen }: JobsHeaderFacts,
  { room, paint }: { readonly room: number; readonly paint: Paint },
): readonly string[] {
  const page = pageNumber === 1 ? '' : `  page ${pageNumber}`
  const title = `${jobsTitle({ at: seen.at, store, filter })}${page}`
  const counts =
    seen.counts === undefined ? plain(seen.countsProblem ?? 'counting …') : countsText(seen.counts)
  const state = seen.store
  const last =
    state.tag === 'present'
      ? start(`a look takes ${age(state.lookMs)}, every ${age(everyMs)}`, room)
      : paint(
          ['red', 'bold'],
          start(`STORE AWAY since ${timeOf(state.sinceAt)}: ${plain(state.message)}`, room),
        )
  return [
    paint('bold', start(title, room)),
    start(counts, room),
    last,
    // Nobody should repair the jobs of a filter that is cut off.
    ...(isFiltered(filter) && width(title) > room ? [start(`${filterText(filter)}${page}`, room)] : []),
  ]
}

export function jobsTitle({
  at,
  store,
  filter,
}: {
  readonly at: number
  readonly store: string
  readonly filter: GivenFilter
}): string {
  const time = at === 0 ? 'looking …' : `${timeOf(at)} ${zoneName()}`
  const chosen = filterText(filter)
  return `holdfast top --jobs  ${time}  ${store}${chosen === '' ? '' : `  ${chosen}`}`
}

/** `12 ready, 2 running, 7 dead`: of all names together. */
function countsText(counts: readonly JobCount[]): string {
  const parts = JOB_STATES.flatMap((state) => {
    const sum = counts.reduce((total, each) => total + (each.state === state ? each.count : 0), 0)
    return sum === 0 ? [] : [`${sum.toLocaleString('en-US')} ${state}`]
  })
  return parts.length === 0 ? 'no jobs' : parts.join(', ')
}
