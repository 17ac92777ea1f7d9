import { JOB_STATES, type JobCount } from '../../../jobs/index.ts'
import { type GivenFilter, isFiltered } from '../../job-filter.ts'
import { pausedText } from '../../job-text.ts'
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
  return [
    paint('bold', start(title, room)),
    start(countsLine(seen), room),
    lookLine(seen, { everyMs, room, paint }),
    // Nobody should repair the jobs of a filter that is cut off.
    ...(isFiltered(filter) && width(title) > room ? [start(`${filterText(filter)}${page}`, room)] : []),
  ]
}

function countsLine({ counts, countsProblem, paused, store }: JobsSeen): string {
  if (counts !== undefined)
    return `${countsText(counts)}${paused.length === 0 ? '' : `; ${pausedText(paused)}`}`
  // The line below says it.
  return store.tag === 'refused' ? '' : plain(countsProblem ?? 'counting …')
}

function lookLine(
  { store }: JobsSeen,
  { everyMs, room, paint }: { readonly everyMs: number; readonly room: number; readonly paint: Paint },
): string {
  const problem = (text: string): string => paint(['red', 'bold'], start(text, room))
  switch (store.tag) {
    case 'present':
      return start(`a look takes ${age(store.lookMs)}, every ${age(everyMs)}`, room)
    case 'away':
      return problem(`STORE AWAY since ${timeOf(store.sinceAt)}: ${plain(store.message)}`)
    case 'refused':
      return problem(plain(store.message))
    default:
      return store satisfies never
  }
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
