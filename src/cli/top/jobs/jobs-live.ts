import type { Jobs } from '../../../jobs/index.ts'
import { EXIT, exitCodeOf } from '../../exit-codes.ts'
import type { GivenFilter } from '../../job-filter.ts'
import { paintFor } from '../../terminal.ts'
import { plain } from '../../text.ts'
import { type ActionNotice, LEAST_ROWS_TO_ASK } from '../frame.ts'
import { FullScreen } from '../full-screen.ts'
import { quits } from '../view.ts'
import { type AskedChange, performed } from './job-actions.ts'
import { JobLooks, type JobsQuery } from './job-looks.ts'
import { jobsFrameOf } from './jobs-screen.ts'
import {
  firstJobsView,
  isActionKey,
  type JobsOnScreen,
  type JobsView,
  markedJob,
  pressed,
} from './jobs-view.ts'

export interface JobsTopOptions {
  readonly store: string
  readonly everyMs: number
  readonly filter: GivenFilter
}

interface LiveJobsOptions extends JobsTopOptions {
  readonly end: (exitCode: number) => void
  readonly fail: (error: unknown) => void
}

/** Shows the jobs until the user quits. Resolves with the exit code. */
export async function showLiveJobs(jobs: Jobs, options: JobsTopOptions): Promise<number> {
  let live: LiveJobs | undefined
  try {
    return await new Promise<number>((end, fail) => {
      live = new LiveJobs(jobs, { ...options, end, fail })
    })
  } finally {
    live?.close()
  }
}

class LiveJobs {
  readonly #jobs: Jobs
  readonly #options: LiveJobsOptions
  readonly #looks: JobLooks
  readonly #screen: FullScreen
  readonly #paint = paintFor(process.stdout)
  #view: JobsView
  #pageSize = 1
  #titlesLine = 0
  #notice: ActionNotice | undefined
  #isActing = false

  constructor(jobs: Jobs, options: LiveJobsOptions) {
    this.#jobs = jobs
    this.#options = options
    this.#view = firstJobsView(options.filter)
    this.#looks = new JobLooks(jobs, queryOf(this.#view), {
      everyMs: options.everyMs,
      onSeen: () => this.#draw(),
      onError: options.fail,
    })
    this.#screen = new FullScreen({
      onKey: (key) => this.#press(key),
      onStale: () => this.#draw(),
      onEnd: (signal) => options.end(exitCodeOf(signal)),
    })
    this.#screen.open()
    this.#draw()
    this.#looks.lookNow()
  }

  close(): void {
    this.#looks.stop()
    this.#screen.close()
  }

  #press(key: string): void {
    const { typing, page } = this.#view
    if (quits(key, this.#view)) return this.#options.end(EXIT.ok)
    if (key === 'ctrl-l') this.#screen.forget()
    const asks = isActionKey(key) && typing === undefined && page !== 'help'
    const answers = key === 'enter' && typing !== undefined && typing.tag !== 'filter'
    // On a screen without a line for questions nothing can be asked, and nobody sees what Enter would do. A filter does no harm.
    if ((asks || answers) && this.#screen.size.rows < LEAST_ROWS_TO_ASK) return
    if (key === ' ' && typing === undefined) this.#looks.lookNow({ hasChanged: true })
    const before = this.#view
    this.#notice = undefined
    this.#view = pressed(before, key, this.#onScreen())
    if (before.hasMouse !== this.#view.hasMouse) this.#screen.hasMouse = this.#view.hasMouse
    this.#looks.ask(queryOf(this.#view))
    if (typing === undefined) this.#say(key, before)
    if (key === 'enter' && typing !== undefined && typing.tag !== 'filter') void this.#act(typing)
    this.#draw()
  }

  #onScreen(): JobsOnScreen {
    const { page, job, paused } = this.#looks.seen
    return {
      jobs: page?.jobs ?? [],
      openName: job?.name,
      paused,
      next: page?.next ?? null,
      pageSize: this.#pageSize,
      titlesLine: this.#titlesLine,
    }
  }

  /** Copies, and says why a key has done nothing. */
  #say(key: string, { page, pages }: JobsView): void {
    if (page === 'help') return
    const isUnasked = isActionKey(key) && this.#view.typing === undefined
    if (page === 'job' && key === 'c') this.#copy(this.#view.selected)
    if (page !== 'list') return
    const marked = markedJob(this.#view, this.#onScreen())
    if (key === 'c') this.#copy(marked)
    if (isUnasked || (key === 't' && marked === undefined)) this.#tell('Mark a job first.', { isBad: true })
    if (key === '*' && this.#view.ticked.tag === 'ids' && this.#view.ticked.ids.size === 0)
      this.#tell('Nothing is ticked. To tick all jobs of a filter, set one first: s, /, i, S, B.', {
        isBad: true,
      })
    if ((key === ']' || key === 'N') && this.#view.pages === pages)
      this.#tell('There are no older jobs.', { isBad: true })
  }

  #copy(id: string | undefined): void {
    if (id === undefined) return this.#tell('Mark a job first.', { isBad: true })
    this.#screen.copy(id)
    this.#tell(`Copied ${id}, if this terminal lets programs copy.`, { isBad: false })
  }

  async #act(asked: AskedChange): Promise<void> {
    if (this.#isActing) return this.#tell('The last action is still under way.', { isBad: true })
    this.#isActing = true
    this.#tell(underWay(asked), { isBad: false })
    const notice = await performed(this.#jobs, asked)
    this.#isActing = false
    if (!notice.isBad && asked.tag === 'action')
      this.#view = { ...this.#view, ticked: { tag: 'ids', ids: new Set() } }
    this.#looks.lookNow({ hasChanged: true })
    this.#tell(notice.text, notice)
  }

  #tell(text: string, { isBad }: { readonly isBad: boolean }): void {
    this.#notice = { text, isBad }
    this.#draw()
  }

  #draw(): void {
    const { lines, top, pageSize, above } = jobsFrameOf({
      ...this.#options,
      view: this.#view,
      seen: this.#looks.seen,
      notice: this.#notice,
      size: this.#screen.size,
      paint: this.#paint,
    })
    this.#view = { ...this.#view, top }
    this.#pageSize = pageSize
    this.#titlesLine = above
    this.#screen.draw(lines)
  }
}

function underWay(asked: AskedChange): string {
  if (asked.tag === 'pause') return `${UNDER_WAY[asked.verb]} ${plain(asked.name)} …`
  return `${UNDER_WAY[asked.action]} ${asked.chosen} …`
}

const UNDER_WAY = {
  retry: 'Retrying',
  cancel: 'Cancelling',
  remove: 'Removing',
  pause: 'Pausing',
  resume: 'Resuming',
} as const

function queryOf({ page, behindHelp, filter, pages, selected }: JobsView): JobsQuery {
  const shown = page === 'help' ? behindHelp : page
  return {
    filter,
    after: pages.at(-1),
    id: shown === 'job' ? selected : undefined,
    withHistory: shown === 'history',
  }
}
