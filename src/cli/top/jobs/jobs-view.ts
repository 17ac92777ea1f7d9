import type { JobFilter, JobState, JobView } from '../../../jobs/index.ts'
import { filterWith, type GivenFilter, isFiltered, NO_FILTER, type TypedPart } from '../../job-filter.ts'
import { plain } from '../../text.ts'
import { UsageError } from '../../usage-error.ts'
import { clickOf, type Key } from '../keys.ts'
import { BACK, edited, HELP, MOVES } from '../view.ts'

/** What the user has chosen to see of the jobs. */
export interface JobsView {
  readonly page: JobsPageName
  /** What the help goes back to. */
  readonly behindHelp: Exclude<JobsPageName, 'help'>
  readonly filter: GivenFilter
  /** The `after` of this page of the list and of the pages before it. Empty: the first page. */
  readonly pages: readonly string[]
  readonly typing: JobsTyping | undefined
  /** The job whose line is marked, or whose page is open. */
  readonly selected: string | undefined
  readonly ticked: Ticked
  /** The first line on the screen, of the list or of a page. */
  readonly top: number
  /** Whether clicks and the wheel come here, and select no text in the terminal. */
  readonly hasMouse: boolean
}

type JobsPageName = 'list' | 'job' | 'history' | 'help'

/** The jobs to change: these, or all that fit the filter. */
export type Ticked = { readonly tag: 'ids'; readonly ids: ReadonlySet<string> } | { readonly tag: 'filter' }

export type JobRepair = 'retry' | 'cancel' | 'remove'

/** What is being typed: a part of the filter, or the answer to a question. */
export type JobsTyping =
  | {
      readonly tag: 'filter'
      readonly part: TypedPart
      readonly text: string
      /** Why the text was refused. The next key takes it away. */
      readonly problem: string | undefined
    }
  | {
      readonly tag: 'action'
      readonly action: JobRepair
      /** The jobs as they were chosen when the question was asked. */
      readonly selection: readonly string[] | JobFilter
      /** The selection in words. */
      readonly chosen: string
      /** Why, for a cancel. */
      readonly text: string
    }
  | {
      /** To pause all jobs of a name, or to resume them. */
      readonly tag: 'pause'
      readonly verb: 'pause' | 'resume'
      readonly name: string
    }

/** What the screen shows when a key is pressed. */
export interface JobsOnScreen {
  readonly jobs: readonly Pick<JobView, 'id' | 'name'>[]
  /** The name of the job whose page is open. `undefined`: there is none, or it was not seen yet. */
  readonly openName: string | undefined
  /** The names that are paused. */
  readonly paused: readonly string[]
  /** The `after` of the next page. `null`: this page is the last one. */
  readonly next: string | null
  /** How many lines fit on the screen. */
  readonly pageSize: number
  /** The line of the screen with the titles. The jobs follow it. */
  readonly titlesLine: number
}

const NONE: Ticked = { tag: 'ids', ids: new Set() }

export function firstJobsView(filter: GivenFilter): JobsView {
  return {
    page: 'list',
    behindHelp: 'list',
    filter,
    pages: [],
    typing: undefined,
    selected: undefined,
    ticked: NONE,
    top: 0,
    hasMouse: true,
  }
}

/** The view after a key was pressed. A key without meaning there changes nothing. */
export function pressed(view: JobsView, key: Key, facts: JobsOnScreen): JobsView {
  if (view.typing !== undefined) return typed({ ...view, typing: view.typing }, key)
  if (key === 'm') return { ...view, hasMouse: !view.hasMouse }
  if (view.page === 'help') {
    const isBack = BACK.includes(key) || HELP.includes(key)
    return isBack ? { ...view, page: view.behindHelp, top: 0 } : scrolled(view, key, facts)
  }
  if (HELP.includes(key)) return { ...view, page: 'help', behindHelp: view.page, top: 0 }
  const action = JOB_ACTION_KEYS[key]
  if (action !== undefined) return asked(view, action, facts)
  if (key === PAUSE_KEY) return askedToPause(view, facts)
  if (view.page !== 'list')
    return BACK.includes(key) ? { ...view, page: 'list', top: 0 } : scrolled(view, key, facts)
  return onList(view, key, facts)
}

function onList(view: JobsView, key: Key, facts: JobsOnScreen): JobsView {
  const click = clickOf(key)
  if (click !== undefined) return clicked(view, click.line, facts)
  const moved = MOVES[key]
  if (moved !== undefined) return marked(view, moved, facts)
  const part = FILTER_KEYS[key]
  if (part !== undefined)
    return { ...view, typing: { tag: 'filter', part, text: partText(view.filter, part), problem: undefined } }
  switch (key) {
    case ']':
    case 'N':
      return facts.next === null ? view : turned(view, [...view.pages, facts.next])
    case '[':
    case 'P':
      return turned(view, view.pages.slice(0, -1))
    case 's':
      return filteredBy(view, { ...view.filter, state: stateAfter(view.filter.state) })
    case 'escape':
      return filteredBy(view, NO_FILTER)
    case 't':
      return tickedWith(view, facts)
    case '*':
      if (view.ticked.tag === 'filter') return { ...view, ticked: NONE }
      return isFiltered(view.filter) ? { ...view, ticked: { tag: 'filter' } } : view
    case 'H':
      return { ...view, page: 'history', top: 0 }
    case 'enter': {
      const selected = markedJob(view, facts) ?? facts.jobs[0]?.id
      return selected === undefined ? view : { ...view, selected, page: 'job', top: 0 }
    }
    default:
      return view
  }
}

/** Capital letters, so that no slip of a finger asks. */
const JOB_ACTION_KEYS: Readonly<Record<string, JobRepair>> = {
  R: 'retry',
  C: 'cancel',
  D: 'remove',
}

/** Pauses the name of the marked job, or resumes it. */
const PAUSE_KEY = 'Z'

/** Whether a key asks before it changes jobs. */
export function isActionKey(key: Key): boolean {
  return JOB_ACTION_KEYS[key] !== undefined || key === PAUSE_KEY
}

/** What of the filter a key asks for. */
const FILTER_KEYS: Readonly<Record<string, TypedPart>> = {
  '/': 'name',
  f3: 'name',
  f4: 'name',
  i: 'id',
  S: 'since',
  B: 'before',
}

/** In the order of how often somebody looks for them. */
const STATES_IN_TURN: readonly (JobState | undefined)[] = [
  undefined,
  'ready',
  'running',
  'delayed',
  'blocked',
  'pending',
  'dead',
  'cancelled',
  'completed',
  'superseded',
]

function stateAfter(state: JobState | undefined): JobState | undefined {
  return STATES_IN_TURN[(STATES_IN_TURN.indexOf(state) + 1) % STATES_IN_TURN.length]
}

/** The marked job, if this page of the list still has it. */
export function markedJob(view: JobsView, { jobs }: Pick<JobsOnScreen, 'jobs'>): string | undefined {
  return jobs.find(({ id }) => id === view.selected)?.id
}

/** The filter in words, for a person. Empty: there is none. */
export function filterText(filter: GivenFilter): string {
  const parts = Object.entries(filter).filter(([, value]) => value !== undefined)
  return parts.map(([name, value]) => `${name} ${shown(value)}`).join(', ')
}

function shown(value: unknown): string {
  return value instanceof Date ? value.toISOString().replace(/\.\d+Z$/, 'Z') : plain(String(value))
}

/** As a person types it. */
function partText(filter: GivenFilter, part: TypedPart): string {
  const value = filter[part]
  return value instanceof Date ? value.toISOString() : String(value ?? '')
}

/** Ticks are dropped, so that no action reaches a job that the filter hides. */
function filteredBy(view: JobsView, filter: GivenFilter): JobsView {
  return { ...view, filter, pages: [], selected: undefined, ticked: NONE, top: 0 }
}

function turned(view: JobsView, pages: readonly string[]): JobsView {
  return { ...view, pages, selected: undefined, top: 0 }
}

function tickedWith(view: JobsView, facts: JobsOnScreen): JobsView {
  const id = markedJob(view, facts)
  if (id === undefined) return view
  const ids = new Set(view.ticked.tag === 'ids' ? view.ticked.ids : [])
  if (!ids.delete(id)) ids.add(id)
  // The next line is marked, so that `t` ticks line after line.
  return marked({ ...view, ticked: { tag: 'ids', ids } }, MOVES['down'] ?? same, facts)
}

const same = (at: number): number => at

function asked(view: JobsView, action: JobRepair, facts: JobsOnScreen): JobsView {
  const chosen = chosenIn(view, facts)
  return chosen === undefined ? view : { ...view, typing: { tag: 'action', action, ...chosen, text: '' } }
}

/** The name is that of the open or marked job. In a list without a mark it is the name of the filter. */
function askedToPause(view: JobsView, { jobs, openName, paused }: JobsOnScreen): JobsView {
  if (view.page === 'history') return view
  const marked = jobs.find(({ id }) => id === view.selected)
  const name = view.page === 'job' ? openName : (marked?.name ?? view.filter.name)
  if (name === undefined) return view
  const verb = paused.includes(name) ? 'resume' : 'pause'
  return { ...view, typing: { tag: 'pause', verb, name } }
}

function chosenIn(view: JobsView, facts: JobsOnScreen) {
  const { ticked, filter, selected } = view
  if (view.page === 'history') return undefined
  if (view.page === 'list' && ticked.tag === 'filter')
    return { selection: filter, chosen: `all jobs that fit the filter (${filterText(filter)})` }
  if (view.page === 'list' && ticked.tag === 'ids' && ticked.ids.size > 0)
    return { selection: [...ticked.ids], chosen: ticked.ids.size === 1 ? '1 job' : `${ticked.ids.size} jobs` }
  const id = view.page === 'job' ? selected : markedJob(view, facts)
  return id === undefined ? undefined : { selection: [id], chosen: `job ${id}` }
}

function typed(view: JobsView & { readonly typing: JobsTyping }, key: Key): JobsView {
  const { typing } = view
  if (key === 'escape') return { ...view, typing: undefined }
  if (key === 'enter') {
    // Whoever draws the view acts: an action is no change of the view.
    return typing.tag === 'filter' ? filteredAsTyped(view, typing) : { ...view, typing: undefined }
  }
  if (typing.tag === 'pause' || (typing.tag === 'action' && typing.action !== 'cancel')) return view
  if (typing.tag === 'filter' && typing.problem === TOO_LONG)
    return ERASERS.includes(key) ? { ...view, typing: { ...typing, text: '', problem: undefined } } : view
  const text = edited(typing.text, key)
  // Ids of the command line may be longer. They can be shortened.
  if (Buffer.byteLength(text) <= LONGEST_ANSWER_BYTES || text.length < typing.text.length)
    return {
      ...view,
      typing: typing.tag === 'action' ? { ...typing, text } : { ...typing, text, problem: undefined },
    }
  return typing.tag === 'action' ? view : { ...view, typing: { ...typing, problem: TOO_LONG } }
}

/** No name of a job is longer. */
const LONGEST_ANSWER_BYTES = 500

/** It stays until the text is erased: an id that was cut off would be the id of another job. */
const TOO_LONG = 'This text is too long. Backspace erases it.'

const ERASERS: readonly Key[] = ['backspace', 'ctrl-u', 'ctrl-w']

type TypedFilter = Extract<JobsTyping, { tag: 'filter' }>

function filteredAsTyped(view: JobsView, typing: TypedFilter): JobsView {
  if (typing.problem !== undefined) return view
  try {
    const filter = filterWith(view.filter, typing.part, typing.text)
    return filteredBy({ ...view, typing: undefined }, filter)
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    return { ...view, typing: { ...typing, problem: error.message } }
  }
}

/** A click on a line marks it, and on the marked line opens it. */
function clicked(view: JobsView, line: number, { jobs, titlesLine }: JobsOnScreen): JobsView {
  const job = line <= titlesLine ? undefined : jobs[view.top + line - titlesLine - 1]
  if (job === undefined) return view
  return job.id === view.selected ? { ...view, page: 'job', top: 0 } : { ...view, selected: job.id }
}

function marked(view: JobsView, moved: (typeof MOVES)[string], { jobs, pageSize }: JobsOnScreen): JobsView {
  const at = jobs.findIndex(({ id }) => id === view.selected)
  // The first move marks the first line on the screen.
  const to = at === -1 || moved === undefined ? view.top : moved(at, pageSize)
  const index = Math.max(0, Math.min(to, jobs.length - 1))
  return { ...view, selected: jobs[index]?.id ?? view.selected }
}

function scrolled(view: JobsView, key: Key, { pageSize }: JobsOnScreen): JobsView {
  const moved = MOVES[key]
  // The length of the page is not known here: `jobsFrameOf` limits `top`.
  return moved === undefined ? view : { ...view, top: Math.max(0, moved(view.top, pageSize)) }
}
