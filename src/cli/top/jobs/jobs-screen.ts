import type { JobView } from '../../../jobs/index.ts'
import { isFiltered } from '../../job-filter.ts'
import { historyTable, jobFacts, jobTable } from '../../job-text.ts'
import type { Paint } from '../../terminal.ts'
import { cut, plain, width } from '../../text.ts'
import { type ActionNotice, type Frame, type FrameBody, framed } from '../frame.ts'
import { fill, start, topFor, typingLine, wholeHints } from '../lines.ts'
import type { AskedChange } from './job-actions.ts'
import type { JobsSeen } from './job-looks.ts'
import { jobsHeaderLines } from './jobs-header.ts'
import { jobsHelpLines } from './jobs-help-page.ts'
import type { JobsTyping, JobsView } from './jobs-view.ts'

export interface JobsScreenFacts {
  readonly store: string
  readonly everyMs: number
  readonly view: JobsView
  readonly seen: JobsSeen
  /** What became of the last action. */
  readonly notice: ActionNotice | undefined
  readonly size: { readonly columns: number; readonly rows: number }
  readonly paint: Paint
}

/** The lines that fill the screen. */
export function jobsFrameOf(facts: JobsScreenFacts): Frame {
  const { view, size, paint } = facts
  const { filter, pages } = view
  const header = jobsHeaderLines(
    { ...facts, filter, pageNumber: pages.length + 1 },
    { room: size.columns, paint },
  )
  return framed({
    header,
    body: (space) => (view.page === 'list' ? list(facts, space) : page(facts, space)),
    bottom: () => bottomLine(facts),
    rows: size.rows,
  })
}

function list({ view, seen, size, paint }: JobsScreenFacts, space: number): FrameBody {
  const { columns } = size
  const pageSize = Math.max(1, space - 1)
  const jobs = seen.page?.jobs ?? []
  const at = jobs.findIndex(({ id }) => id === view.selected)
  const top = topFor({ at, top: view.top, count: jobs.length, pageSize })
  const shown = jobs.slice(top, top + pageSize)
  // All jobs of the page decide the widths, so that no column moves while one scrolls.
  const [titles = '', ...rows] = jobTable(jobs, Math.max(0, columns - MARKS))
  const painted = rows.slice(top, top + pageSize).map((row, index) => {
    const isMarked = top + index === at
    const line = `${isMarked ? '>' : ' '}${isTicked(view, shown[index]) ? '*' : ' '} ${row}`
    if (isMarked) return paint('inverse', fill(line, columns))
    const text = cut(line, columns)
    if (seen.store.tag !== 'present') return paint('dim', text)
    return shown[index]?.state === 'dead' ? paint('red', text) : text
  })
  const isEmpty = seen.page !== undefined && jobs.length === 0
  const empty = isEmpty ? [cut(emptiness(view), columns)] : []
  return {
    lines: [
      ...wholeQuestion(view, { columns, space }),
      paint('inverse', fill(`   ${titles}`, columns)),
      ...painted,
      ...empty,
    ].slice(0, space),
    top,
    pageSize,
  }
}

/** What a question at the bottom asks, if that line has no room for it. Nobody should say yes to a filter that is cut off. */
function wholeQuestion(
  { typing }: JobsView,
  { columns, space }: { readonly columns: number; readonly space: number },
): readonly string[] {
  if (typing === undefined || typing.tag === 'filter') return []
  if (fitsBesideAnswer(typing, columns)) return []
  const lines = folded(questionOf(typing), columns)
  const last = lines[space - 1]
  return lines.length <= space || last === undefined
    ? lines
    : [...lines.slice(0, space - 1), start(`${last}…`, columns)]
}

/** How wide the marks before a line are. */
const MARKS = 3

function isTicked({ ticked }: JobsView, job: JobView | undefined): boolean {
  return ticked.tag === 'filter' || (job !== undefined && ticked.ids.has(job.id))
}

function emptiness({ filter, pages }: JobsView): string {
  if (pages.length > 0) return '   There are no older jobs.'
  return isFiltered(filter) ? '   No job fits the filter.' : '   There are no jobs.'
}

function page(facts: JobsScreenFacts, space: number): FrameBody {
  const { view, size } = facts
  const all = pageLines(facts).flatMap((line) => folded(line, size.columns))
  const top = Math.max(0, Math.min(view.top, all.length - space))
  const [title, ...rest] = all.slice(top, top + space)
  // Every page begins with its title.
  const first = title === undefined ? [] : [top === 0 ? facts.paint('bold', title) : title]
  return { lines: [...first, ...rest], top, pageSize: Math.max(1, space - 1) }
}

function pageLines({ view, seen, size }: JobsScreenFacts): readonly string[] {
  const room = size.columns
  switch (view.page) {
    case 'help':
      // Its title is painted with all the others.
      return jobsHelpLines({ room, paint: (_, text) => text })
    case 'history': {
      const { name } = view.filter
      const ofName = name === undefined ? '' : `, of the name ${plain(name)}`
      const unknown = plain(seen.historyProblem ?? 'counting …')
      const steps = seen.history === undefined ? [unknown] : historyTable(seen.history, room)
      return [`The jobs of the last hour${ofName}`, '', ...steps.map((line) => cut(line, room))]
    }
    default: {
      const { job } = seen
      if (job === undefined) return [`${view.selected ?? ''}  looking …`]
      return job === null ? [`${view.selected ?? ''}  There is no such job any more.`] : jobFacts(job)
    }
  }
}

/** A line in pieces that fit. A text of a megabyte would hold up every key. */
function folded(line: string, room: number): readonly string[] {
  const text =
    line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)} … and more: holdfast jobs show` : line
  const pieces: string[] = []
  let piece = ''
  let left = room
  for (const character of text) {
    const columns = width(character)
    if (columns > left && piece !== '') {
      pieces.push(piece)
      piece = ''
      left = room
    }
    // A wide character does not fit into one column.
    piece += columns > room ? '…' : character
    left -= columns
  }
  return [...pieces, piece]
}

const LONGEST_LINE = 20_000

function bottomLine({ view, seen, notice, size, paint }: JobsScreenFacts): string {
  const room = size.columns
  if (view.typing !== undefined) return questionLine(view.typing, { room, paint })
  if (notice !== undefined) return paint(notice.isBad ? 'red' : 'green', cut(notice.text, room))
  const older = seen.page?.next == null ? '' : '  ] older'
  const newer = view.pages.length === 0 ? '' : '  [ newer'
  const hints = {
    list: `${tickedText(view)}q quit  h help  Enter job  s / i S B filter${older}${newer}  t tick  R retry  C cancel  D remove  Z pause  H history`,
    job: 'q back  h help  R retry  C cancel  D remove  Z pause  c copy  up down scroll',
    history: 'q back  h help  up down scroll',
    help: 'q back  up down scroll',
  }
  return paint('dim', wholeHints(hints[view.page], room))
}

function tickedText({ ticked }: JobsView): string {
  if (ticked.tag === 'filter') return 'ticked: all that fit the filter  '
  return ticked.ids.size === 0 ? '' : `ticked: ${ticked.ids.size}  `
}

function questionLine(
  typing: JobsTyping,
  { room, paint }: { readonly room: number; readonly paint: Paint },
): string {
  if (typing.tag === 'filter') {
    if (typing.problem !== undefined) return paint('red', start(plain(typing.problem), room))
    return typingLine(QUESTIONS[typing.part], { typed: plain(typing.text), room })
  }
  // The list shows what is too long for this line.
  const question = fitsBesideAnswer(typing, room) ? questionOf(typing) : shortQuestionOf(typing)
  if (typing.tag === 'pause' || typing.action !== 'cancel')
    return cut(`${question} Enter: yes. Esc: no.`, room)
  return typingLine(`${question} Esc: no. Enter: yes. Reason: `, { typed: plain(typing.text), room })
}

/** Half of the line is for the answer. */
function fitsBesideAnswer(typing: AskedChange, room: number): boolean {
  return width(questionOf(typing)) <= room / 2
}

function questionOf(typing: AskedChange): string {
  if (typing.tag === 'pause') return `${VERBS[typing.verb]} all jobs of the name ${plain(typing.name)}?`
  return `${VERBS[typing.action]} ${typing.chosen}?`
}

function shortQuestionOf(typing: AskedChange): string {
  return typing.tag === 'pause' ? `${VERBS[typing.verb]} this name?` : `${VERBS[typing.action]} these?`
}

const QUESTIONS = {
  name: 'Name: ',
  id: 'Ids: ',
  since: 'Enqueued since (a time, or 1h ago as 1h): ',
  before: 'Enqueued before (a time, or 1h ago as 1h): ',
} as const

const VERBS = {
  retry: 'Retry',
  cancel: 'Cancel',
  remove: 'Remove',
  pause: 'Pause',
  resume: 'Resume',
} as const
