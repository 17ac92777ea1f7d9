import { checkOptions, expected, parseCount, parseSignal } from '../base/arguments.ts'
import { now, systemClock } from '../base/clock.ts'
import { parseDuration } from '../base/duration.ts'
import { settledWithin } from '../base/within.ts'
import { ClosedError, isHoldfastError } from '../errors.ts'
import type { StopOptions } from '../index.ts'
import { connectionsOf, type PostgresConnections, type PostgresPool } from '../postgres/connections.ts'
import type { SqlClient } from '../postgres/executor.ts'
import { parseSchema } from '../postgres/identifiers.ts'
import { answeredTooLate, claimedJob, GIVEN_BACK, type SettleContext } from './claimed-job.ts'
import { CleanUps } from './clean-ups.ts'
import { type DrainParts, drain } from './drain.ts'
import {
  type ClaimedJob,
  ENDED,
  JOB_STATES,
  type JobBacklog,
  type JobCount,
  type JobDetails,
  type JobsInTime,
  type JobView,
  NOT_ENDED,
} from './job.ts'
import { tellEnqueued, traceOf } from './job-events.ts'
import { type Chosen, JobTables } from './job-tables.ts'
import { JobViews } from './job-views.ts'
import { JobWatches } from './job-watches.ts'
import type {
  BacklogOptions,
  ClaimOptions,
  CountOverTimeOptions,
  Drained,
  DrainOptions,
  JobFilter,
  JobPage,
  JobSelection,
  Jobs,
  JobsOptions,
  ListOptions,
  PauseOptions,
  WaitForOptions,
  Worker,
} from './jobs.ts'
import { LeaseTime } from './lease-time.ts'
import { type NamedLimit, type NameLimit, parseLimit } from './name-limits.ts'
import { type EnqueueOptions, JOB_OPTIONS, type NewJob, parseNewJobs } from './new-job.ts'
import { parseId, parseNames, parseText, SPAN_RANGE, TTL_RANGE, WAIT_RANGE } from './options.ts'
import { type JobsParts, rememberParts } from './parts.ts'
import { ProgressReports } from './progress-reports.ts'
import { PORTION, parseFilter, parseListOptions, repair } from './selection.ts'
import { SettlementQueue } from './settlement-queue.ts'
import { untilIdle } from './until-idle.ts'
import { JobWakes } from './wakes.ts'
import { graceOf, parseHandlers, parseWorkOptions, type WorkOptions } from './work-options.ts'
import { GIVE_BACK_MS, type JobHandler, JobWorker } from './worker.ts'

/**
 * Jobs in PostgreSQL: enqueued also inside your own transactions, claimed with `FOR UPDATE SKIP LOCKED`, leased to
 * one worker at a time, retried with backoff, and taken over when their worker dies.
 *
 * @param client whose database and role are used, on connections of its own: a `Pool` or `Client` of the package pg,
 * or a `sql` of the package postgres. It is never closed.
 * @throws {InvalidArgumentError} when it is none of them, or an option is not what it should be.
 *
 * ```ts
 * import { createJobs } from 'holdfast/jobs'
 * import { Pool } from 'pg'
 *
 * const pool = new Pool({ connectionString: 'postgres://localhost/shop' })
 * const jobs = createJobs<{ 'send-receipt': { order: number } }>(pool)
 * await jobs.migrate()
 *
 * await jobs.enqueue('send-receipt', { order: 42 })
 *
 * const worker = jobs.work({
 *   'send-receipt': async (job) => {
 *     await fetch(`https://mail.example/receipts/${job.payload.order}`, { method: 'PUT', signal: job.signal })
 *   },
 * })
 * process.on('SIGTERM', () => worker.stop())
 * ```
 */
export function createJobs<Payloads extends object = Record<string, unknown>>(
  client: PostgresPool,
  options: JobsOptions = {},
): Jobs<Payloads> {
  return new PostgresJobs(client, options) as unknown as Jobs<Payloads>
}

class PostgresJobs implements Jobs {
  readonly #connections: PostgresConnections
  readonly #renewing: PostgresConnections
  readonly #tables: JobTables
  readonly #renewals: JobTables
  readonly #views: JobViews
  readonly #newQueue: () => SettlementQueue
  readonly #settling: SettleContext
  readonly #wakes: JobWakes
  readonly #watches: JobWatches
  readonly #workers = new Map<Worker, JobWorker>()
  readonly #endWithJobs: JobsParts['endWithJobs'] = new Set()
  readonly #maxPayloadBytes: number
  readonly #cleanUps: CleanUps
  /** Aborts when these jobs are closed, with the error for a call that waits. */
  readonly #closing = new AbortController()
  #closed: Promise<void> | undefined
  /** Whether the workers have ended. Until then, what they run may enqueue. */
  #hasEnded = false
  readonly #enqueuing = new Set<Promise<unknown>>()

  constructor(client: PostgresPool, options: JobsOptions) {
    checkOptions(options, ['schema', 'keepCompleted', 'keepEnded', 'maxPayloadBytes', 'maxConnections'])
    const schema = parseSchema(options.schema ?? 'holdfast')
    const completedMs = parseDuration('keepCompleted', options.keepCompleted ?? '1h', WAIT_RANGE)
    const endedMs = parseDuration('keepEnded', options.keepEnded ?? '336h', WAIT_RANGE)
    const bytes = { least: 1, most: 256 * 1024 * 1024 }
    this.#maxPayloadBytes = parseCount('maxPayloadBytes', options.maxPayloadBytes ?? 1_048_576, bytes)
    const max = parseCount('maxConnections', options.maxConnections ?? 3, { least: 1, most: 100 })
    const maker = 'createJobs()'
    this.#connections = connectionsOf(client, { max, applicationName: 'holdfast jobs', maker })
    // Two, so that a renewal has another connection while one says nothing.
    this.#renewing = connectionsOf(client, { max: 2, applicationName: 'holdfast jobs renewal', maker })
    this.#tables = new JobTables(this.#connections, schema)
    this.#renewals = new JobTables(this.#renewing, schema)
    this.#views = new JobViews(this.#connections, schema)
    this.#cleanUps = new CleanUps(this.#tables, {
      ...{ completedMs, endedMs },
      // One of the workers tells it.
      onError: (error) => this.#workers.values().next().value?.reportError(error),
    })
    const keepsCompleted = completedMs > 0
    this.#newQueue = () => new SettlementQueue(this.#tables, { keepsCompleted })
    this.#settling = {
      tables: this.#tables,
      queue: this.#newQueue(),
      progress: new ProgressReports(this.#tables),
      views: this.#views,
      keepsCompleted,
      maxPayloadBytes: this.#maxPayloadBytes,
    }
    this.#wakes = new JobWakes(this.#connections)
    this.#watches = new JobWatches({
      connections: this.#connections,
      tables: this.#tables,
      views: this.#views,
    })
    rememberParts(this, {
      ...{ tables: this.#tables, wakes: this.#wakes, maxPayloadBytes: this.#maxPayloadBytes },
      assertOpen: () => this.#assertOpen(),
      endWithJobs: this.#endWithJobs,
    })
  }

  async migrate(): Promise<void> {
    await this.#tables.migrate()
  }

  async enqueue(name: string, payload?: unknown, options: EnqueueOptions = {}): Promise<string | null> {
    checkOptions(options, ENQUEUE_OPTIONS)
    const { transaction, ...jobOptions } = options
    const [id = null] = await this.enqueueAll([{ name, payload, ...jobOptions }], { transaction })
    return id
  }

  async enqueueAll(
    jobs: readonly NewJob[],
    options: { readonly transaction?: SqlClient | undefined } = {},
  ): Promise<readonly (string | null)[]> {
    checkOptions(options, ['transaction'])
    const { transaction } = options
    if (!Array.isArray(jobs)) throw expected('jobs', 'an array of jobs', jobs)
    this.#assertOpen({ isClosed: this.#hasEnded })
    const limits = { maxPayloadBytes: this.#maxPayloadBytes }
    const parsed = parseNewJobs(jobs as readonly NewJob[], limits)
    if (parsed.length === 0) return []
    const trace = traceOf(() => parsed.map(({ name }) => name))
    const entries = trace === undefined ? parsed : parsed.map((entry) => ({ ...entry, trace }))
    const enqueued = this.#tables.enqueue(entries, transaction)
    this.#enqueuing.add(enqueued)
    try {
      const ids = await enqueued
      tellEnqueued(entries, ids)
      return ids
    } finally {
      this.#enqueuing.delete(enqueued)
    }
  }

  work(handlers: Readonly<Record<string, JobHandler | undefined>>, options: WorkOptions = {}): Worker {
    this.#assertOpen()
    const parts = {
      tables: this.#tables,
      renewals: this.#renewals,
      // A queue for each worker, so that workers do not wait for one another.
      settling: { ...this.#settling, queue: this.#newQueue() },
      wakes: this.#wakes,
    }
    const jobWorker = new JobWorker(parseHandlers(handlers), parseWorkOptions(options), parts)
    const stop = async (stopOptions: StopOptions = {}): Promise<void> => {
      await jobWorker.stop(graceOf(stopOptions))
      this.#workers.delete(worker)
      if (this.#workers.size === 0) this.#cleanUps.stop()
    }
    const worker: Worker = {
      get jobCount() {
        return jobWorker.jobCount
      },
      stop,
      [Symbol.asyncDispose]: () => stop(),
    }
    this.#workers.set(worker, jobWorker)
    if (this.#workers.size === 1) this.#cleanUps.start()
    jobWorker.start()
    return worker
  }

  async drain(
    handlers: Readonly<Record<string, JobHandler | undefined>>,
    options: DrainOptions = {},
  ): Promise<Drained> {
    const work: DrainParts['work'] = (given, workOptions) => this.work(given, workOptions)
    return drain({ handlers, options, tables: this.#tables, closing: this.#closing.signal, work })
  }

  async claim(
    names: string | readonly string[],
    options: ClaimOptions = {},
  ): Promise<readonly ClaimedJob<never>[]> {
    checkOptions(options, ['limit', 'ttl', 'label'])
    const { limit = 1, ttl = '30s', label = `pid ${process.pid}` } = options
    const request = {
      names: parseNames('names', names),
      limit: parseCount('limit', limit, { least: 1, most: 1000 }),
      ahead: 0,
      worker: parseText('label', label),
      ttlMs: parseDuration('ttl', ttl, TTL_RANGE),
    }
    this.#assertOpen()
    const lease = new LeaseTime(now(systemClock), request.ttlMs)
    const { jobs } = await this.#tables.claim(request)
    // The answer was late, or the event loop was blocked. Other workers may have these jobs; jobs that no worker has are ready again.
    if (jobs.length > 0 && lease.isOver) {
      await Promise.allSettled(jobs.map((facts) => this.#settling.queue.settle(facts, GIVEN_BACK)))
      throw answeredTooLate(lease)
    }
    return jobs.map((facts) => claimedJob(facts, lease, this.#settling) as ClaimedJob<never>)
  }

  async list(options: ListOptions = {}): Promise<JobPage> {
    const query = parseListOptions(options)
    // One more, to know whether another page follows.
    const found = await this.#views.list({ ...query, limit: query.limit + 1 })
    const jobs = found.slice(0, query.limit)
    return { jobs, next: found.length > jobs.length ? (jobs.at(-1)?.id ?? null) : null }
  }

  async *inspect(filter: JobFilter = {}): AsyncGenerator<JobView, void, undefined> {
    const query = parseFilter(filter)
    let after: string | undefined
    do {
      const page = await this.#views.list({ ...query, after, limit: PORTION })
      yield* page
      after = page.length < PORTION ? undefined : page.at(-1)?.id
    } while (after !== undefined)
  }

  async find(id: string): Promise<JobDetails | null> {
    return this.#views.find({ states: JOB_STATES, ids: [parseId('id', id)], limit: 1 })
  }

  watch(id: string, options: WaitForOptions = {}): AsyncIterable<JobView> {
    checkOptions(options, ['signal'])
    return this.#watches.watch(parseId('id', id), parseSignal(options.signal))
  }

  async waitFor(id: string, options: WaitForOptions = {}): Promise<JobDetails | null> {
    for (;;) {
      for await (const _ of this.watch(id, options));
      try {
        const job = await this.find(id)
        // Somebody may have tried it again since its end was seen.
        if (job === null || ENDED.includes(job.state)) return job
      } catch (error) {
        // The watch waits for the database.
        if (!isHoldfastError(error, 'store-unavailable')) throw error
      }
    }
  }

  count(): Promise<readonly JobCount[]> {
    return this.#views.count()
  }

  backlog(options: BacklogOptions = {}): Promise<readonly JobBacklog[]> {
    checkOptions(options, ['most'])
    const most = parseCount('most', options.most ?? 10_000, { least: 1, most: 1_000_000 })
    return this.#tables.backlog(most)
  }

  async countOverTime(options: CountOverTimeOptions = {}): Promise<readonly JobsInTime[]> {
    checkOptions(options, ['span', 'step', 'name'])
    const { span = '1h', step = '1m', name } = options
    const spanMs = parseDuration('span', span, SPAN_RANGE)
    const stepMs = parseDuration('step', step, SPAN_RANGE)
    const steps = Math.ceil(spanMs / stepMs)
    if (!(steps <= MOST_STEPS)) throw expected('span', `at most ${MOST_STEPS} times \`step\``, span)
    return this.#views.countOverTime({
      names: name === undefined ? undefined : parseNames('name', name),
      stepMs,
      steps,
    })
  }

  async retry(selection: JobSelection): Promise<readonly string[]> {
    const change = (chosen: Chosen) => this.#tables.retry(chosen)
    return repair(this.#views, { selection, from: RETRIABLE, isOldestFirst: true, done: 'retried', change })
  }

  async cancel(selection: JobSelection, options: { readonly reason: string }): Promise<readonly string[]> {
    checkOptions(options, ['reason'], 'reason')
    const reason = parseText('reason', options.reason)
    const change = (chosen: Chosen) => this.#tables.cancel(chosen, reason)
    return repair(this.#views, { selection, from: NOT_ENDED, done: 'cancelled', change })
  }

  async remove(selection: JobSelection): Promise<readonly string[]> {
    const change = (chosen: Chosen) => this.#tables.remove(chosen)
    return repair(this.#views, { selection, from: ENDED, done: 'removed', change })
  }

  async setLimit(name: string, limit: NameLimit): Promise<void> {
    await this.#tables.limit(parseText('name', name), parseLimit(limit))
  }

  async pause(name: string, options: PauseOptions = {}): Promise<void> {
    checkOptions(options, ['untilIdle', 'signal'])
    const { untilIdle: waits = false } = options
    if (typeof waits !== 'boolean') throw expected('untilIdle', 'true or false', waits)
    const signal = parseSignal(options.signal)
    signal?.throwIfAborted()
    await this.#tables.pause(parseText('name', name), { isPaused: true })
    if (!waits) return
    await untilIdle(this.#tables, name, [this.#closing.signal, ...(signal === undefined ? [] : [signal])])
  }

  async resume(name: string): Promise<void> {
    await this.#tables.pause(parseText('name', name), { isPaused: false })
  }

  limits(): Promise<readonly NamedLimit[]> {
    return this.#tables.limits()
  }

  cleanUp(): Promise<void> {
    return this.#cleanUps.cleanUp()
  }

  close(options: StopOptions = {}): Promise<void> {
    const graceMs = graceOf(options)
    this.#closed ??= Promise.resolve()
    this.#closing.abort(new ClosedError('These jobs were closed, so nobody waits for them any more.'))
    return this.#stopAll(graceMs)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #stopAll(grace: number): Promise<void> {
    const endsAt = performance.now() + grace + GIVE_BACK_MS
    await Promise.all([
      ...[...this.#workers.keys()].map((worker) => worker.stop({ grace })),
      this.#stopOthers(grace),
    ])
    this.#hasEnded = true
    await settledWithin(Math.max(0, endsAt - performance.now()), [...this.#enqueuing])
    this.#cleanUps.stop()
    this.#watches.close()
    await Promise.all([this.#connections.close(), this.#renewing.close()])
  }

  /** Waits as long as for a worker: the database may not answer. */
  async #stopOthers(grace: number): Promise<void> {
    await settledWithin(
      grace + GIVE_BACK_MS,
      Array.from(this.#endWithJobs, (each) => each.stop()),
    )
  }

  #assertOpen({ isClosed } = { isClosed: this.#closed !== undefined }): void {
    if (isClosed) throw new ClosedError('These jobs were closed: they take and run no more.')
  }
}

const RETRIABLE = ENDED.filter((state) => state !== 'completed')
const MOST_STEPS = 1000
const ENQUEUE_OPTIONS: ReadonlySet<string> = new Set([...JOB_OPTIONS, 'transaction'])
