import { paused, systemClock } from '../base/clock.ts'
import { ClosedError, isHoldfastError } from '../errors.ts'
import type { PostgresConnections } from '../postgres/connections.ts'
import type { ChannelSubscription } from '../postgres/subscription.ts'
import { ENDED, JOB_STATES, type JobView } from './job.ts'
import type { JobTables } from './job-tables.ts'
import type { JobViews } from './job-views.ts'

/** The channel of changes, for all schemas of a database. A message is the id of a job for which somebody waits. */
const CHANGES = 'holdfast_jobs_changed'

/** One caller who waits for a job. */
interface Watcher {
  readonly id: string
  /** Called with what the database has now; null: there is no such job. */
  seen(job: JobView | null): void
  failed(error: unknown): void
}

/**
 * Watches jobs until they end. All jobs of a process are read in one statement: when a message says that one of them has changed,
 * and every {@link POLL_MS}, because a message is only a hint.
 */
export class JobWatches {
  readonly #connections: PostgresConnections
  readonly #tables: JobTables
  readonly #views: JobViews
  readonly #watchers = new Set<Watcher>()
  #subscription: ChannelSubscription | undefined
  #isSubscribing = false
  /** Whether changes of the watched jobs may be notified: a role that may only look cannot ask for that. */
  #mayMark = true
  /** The jobs to read next. */
  readonly #changed = new Set<string>()
  #isReading = false
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor({
    connections,
    tables,
    views,
  }: {
    readonly connections: PostgresConnections
    readonly tables: JobTables
    readonly views: JobViews
  }) {
    this.#connections = connections
    this.#tables = tables
    this.#views = views
  }

  /** Yields the job as it is now, and again after each change, up to its end. Ends without any if there is no such job. */
  async *watch(id: string, signal?: AbortSignal): AsyncGenerator<JobView, void, undefined> {
    const seen: (JobView | null)[] = []
    let failure: { readonly error: unknown } | undefined
    let wake = (): void => {}
    let last: string | undefined
    const watcher: Watcher = {
      id,
      seen(job) {
        const present = JSON.stringify([job?.state, job?.attempt, job?.progress])
        if (present === last) return
        last = present
        seen.push(job)
        wake()
      },
      failed(error) {
        failure = { error }
        wake()
      },
    }
    const onAbort = (): void => watcher.failed(signal?.reason)
    signal?.throwIfAborted()
    signal?.addEventListener('abort', onAbort, { once: true })
    this.#add(watcher)
    try {
      for (;;) {
        const job = seen.shift()
        if (job === null) return
        if (job !== undefined) {
          yield job
          if (ENDED.includes(job.state)) return
        } else if (failure !== undefined) throw failure.error
        else
          await new Promise<void>((resolve) => {
            wake = resolve
          })
      }
    } finally {
      signal?.removeEventListener('abort', onAbort)
      this.#delete(watcher)
    }
  }

  close(): void {
    this.#isClosed = true
    const error = closedError()
    for (const { failed } of this.#watchers) failed(error)
    this.#end()
  }

  #add(watcher: Watcher): void {
    if (this.#isClosed) throw closedError()
    this.#watchers.add(watcher)
    if (this.#watchers.size === 1) this.#pollLater()
    void this.#begin(watcher.id)
  }

  #delete(watcher: Watcher): void {
    this.#watchers.delete(watcher)
    if (this.#watchers.size === 0) this.#end()
  }

  #end(): void {
    clearTimeout(this.#timer)
    this.#subscription?.close()
    this.#subscription = undefined
  }

  /** Listens before it reads, so that no change in between is missed. */
  async #begin(id: string): Promise<void> {
    await this.#subscribe()
    this.#readSoon(id)
  }

  async #subscribe(): Promise<void> {
    if (this.#subscription !== undefined || this.#isSubscribing) return
    this.#isSubscribing = true
    try {
      const subscription = await this.#connections.listen(CHANGES, {
        onMessage: (id) => this.#readSoon(id),
        onResubscribed: () => this.#readAll(),
      })
      if (this.#watchers.size > 0 && !this.#isClosed) this.#subscription = subscription
      else subscription.close()
      this.#readAll()
    } catch {
      // A pooler in between, or no server: the watches poll, and the next poll tries again.
    } finally {
      this.#isSubscribing = false
    }
  }

  #pollLater(): void {
    clearTimeout(this.#timer)
    // It keeps the process alive, because somebody waits.
    this.#timer = setTimeout(
      () => {
        void this.#subscribe()
        this.#subscription?.probe()
        this.#readAll()
        this.#pollLater()
      },
      POLL_MS * (0.9 + Math.random() / 5),
    )
  }

  #readAll(ids: Iterable<string> = Array.from(this.#watchers, ({ id }) => id)): void {
    for (const id of ids) this.#readSoon(id)
  }

  #readSoon(id: string): void {
    this.#changed.add(id)
    if (this.#isReading) return
    this.#isReading = true
    setImmediate(() => void this.#read())
  }

  async #read(): Promise<void> {
    while (this.#changed.size > 0 && this.#watchers.size > 0) {
      const watched = new Set(Array.from(this.#watchers, ({ id }) => id))
      // Also messages of other schemas, and of jobs that others watch.
      const ids = new Set([...this.#changed].filter((id) => watched.has(id)))
      this.#changed.clear()
      if (ids.size > 0) await this.#readJobs(ids)
      // What changes meanwhile is read together.
      await paused(systemClock, PAUSE_MS)
    }
    this.#isReading = false
    this.#changed.clear()
  }

  async #readJobs(ids: ReadonlySet<string>): Promise<void> {
    try {
      if (this.#mayMark) await this.#mark([...ids])
      const jobs = await this.#views.list({ states: JOB_STATES, ids: [...ids], limit: ids.size })
      const found = new Map(jobs.map((job) => [job.id, job]))
      for (const { id, seen } of this.#watchers) if (ids.has(id)) seen(found.get(id) ?? null)
    } catch (error) {
      // Without an answer, the next poll asks again. A caller who waits no longer has a signal for that.
      if (isHoldfastError(error, 'store-unavailable')) return
      for (const { id, failed } of this.#watchers) if (ids.has(id)) failed(error)
    }
  }

  async #mark(ids: readonly string[]): Promise<void> {
    try {
      const locked = await this.#tables.watch(ids)
      // Its change may be under way without a message.
      if (locked.length > 0) setTimeout(() => this.#readAll(locked), LOCKED_MS)
    } catch (error) {
      if (!isHoldfastError(error, 'store-refused')) throw error
      this.#mayMark = false
    }
  }
}

/** How late a change is seen whose message does not come. */
const POLL_MS = 2000
const PAUSE_MS = 10
/** When to ask again for a job that another transaction has locked. Most of them are claims and settlements. */
const LOCKED_MS = 50

function closedError(): ClosedError {
  return new ClosedError('These jobs were closed, so nobody waits for the end of a job any more.')
}
