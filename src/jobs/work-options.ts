import { checkOptions, expected, parseCount, parseFunction } from '../base/arguments.ts'
import { type Duration, parseDuration } from '../base/duration.ts'
import { callListener } from '../base/listener.ts'
import { escaped } from '../base/text.ts'
import { reportOf } from '../base/thrown.ts'
import type { StopOptions } from '../index.ts'
import { LIMIT_RANGE, POLL_RANGE, parseText, TTL_RANGE, WAIT_RANGE } from './options.ts'
import type { JobFailure } from './run-settlement.ts'
import type { JobHandler, WorkerSettings } from './worker.ts'

/** How many jobs a worker runs, and what happens to those that take too long or fail. */
export interface WorkOptions {
  /**
   * How many jobs the worker runs at once. If its jobs end quickly, it claims more than that ahead, but no job that is
   * likely to wait for longer than 50 ms. From 1 to 1000. Default: 10.
   */
  readonly concurrency?: number | undefined
  /**
   * How long the leases of this worker's jobs last: milliseconds, or `'30s'`, `'5m'`. The worker renews them at a third
   * of it. If the database does not hear of the worker for this long, another worker may have its jobs. Default:
   * `'30s'`.
   */
  readonly ttl?: Duration | undefined
  /**
   * How long a handler may run. Then its job has failed, its signal aborts and its place is free, **even if its
   * function still runs**. The function cannot complete the job any more. Up to 24 days, or `Infinity`. Default:
   * `'1h'`.
   */
  readonly maxRun?: Duration | undefined
  /**
   * How often the worker looks for jobs when no message tells of any: behind a pooler that LISTEN cannot pass, after a lost message, or if
   * a job was enqueued with a delay of 10 s or more. Default: `'2s'`.
   */
  readonly pollInterval?: Duration | undefined
  /**
   * The worker's name for people, in `inspect` and `holdfast jobs`; its process id and a random part follow. Default:
   * `worker`.
   */
  readonly label?: string | undefined
  /**
   * Called when an attempt has failed, was lost, or ended while the database did not answer. Default: a process
   * warning.
   */
  readonly onFailure?: ((failure: JobFailure) => void) | undefined
  /** Called each time that the database could not be asked, or a clean-up failed; the worker goes on trying. Default: a process warning. */
  readonly onError?: ((error: unknown) => void) | undefined
}

export function parseWorkOptions(options: WorkOptions): WorkerSettings {
  checkOptions(options, ['concurrency', 'ttl', 'maxRun', 'pollInterval', 'label', 'onFailure', 'onError'])
  const label = parseText('label', options.label ?? 'worker')
  const onError = guarded(listenerOr(warnOfError, 'onError', options.onError), (error) =>
    warn('`onError` of a worker itself failed.', error),
  )
  return {
    concurrency: parseCount('concurrency', options.concurrency ?? 10, { least: 1, most: 1000 }),
    ttlMs: parseDuration('ttl', options.ttl ?? '30s', TTL_RANGE),
    maxRunMs: parseDuration('maxRun', options.maxRun ?? '1h', LIMIT_RANGE),
    pollMs: parseDuration('pollInterval', options.pollInterval ?? '2s', POLL_RANGE),
    // Unique: after a lost answer the worker finds its jobs by this name.
    name: `${label}:${process.pid}:${crypto.randomUUID().slice(0, 8)}`,
    onFailure: guarded(listenerOr(warnOfFailure, 'onFailure', options.onFailure), onError),
    onError,
  }
}

function listenerOr<F>(otherwise: F, name: string, listener: F | undefined): F {
  return listener === undefined ? otherwise : parseFunction(name, listener)
}

/** An error of the user's function must not end the worker. */
function guarded<Given>(
  call: (given: Given) => unknown,
  failed: (error: unknown) => void,
): (given: Given) => void {
  return (given) => callListener(() => call(given), failed)
}

export function parseHandlers(
  handlers: Readonly<Record<string, JobHandler | undefined>>,
): ReadonlyMap<string, JobHandler> {
  if (typeof handlers !== 'object' || handlers === null)
    throw expected('handlers', 'an object with a function for each name of a job', handlers)
  const map = new Map<string, JobHandler>()
  for (const [name, handler] of Object.entries(handlers)) {
    if (handler !== undefined) map.set(parseText('name', name), parseFunction(`handlers.${name}`, handler))
  }
  if (map.size === 0) throw expected('handlers', 'an object with at least one function', handlers)
  return map
}

function warnOfFailure({ job, error, outcome }: JobFailure): void {
  const next = {
    ready: 'It is tried again at once.',
    delayed: 'It is tried again later.',
    dead: 'It is dead: see `holdfast jobs show`.',
    superseded: 'A newer job with its key stands for it.',
    completed: 'It had been completed before.',
    lost: 'It was no longer this worker’s, and another one runs it again.',
    unknown:
      'The database did not answer. If the job is not settled, it runs again when its lease has ended.',
  }[outcome]
  warn(`Attempt ${job.attempt} of the job ${job.id} (${job.name}) failed. ${next} See \`onFailure\`.`, error)
}

function warnOfError(error: unknown): void {
  warn('A worker could not ask PostgreSQL, and goes on trying. See `onError`.', error)
}

function warn(message: string, error: unknown): void {
  // Names of jobs and messages of errors may hold control characters, and warnings are printed as they are.
  process.emitWarning(escaped(message), {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_JOBS',
    detail: reportOf(error).split('\n').map(escaped).join('\n'),
  })
}

export function graceOf(options: StopOptions): number {
  checkOptions(options, ['grace'])
  const { grace = '20s' } = options
  return parseDuration('grace', grace, WAIT_RANGE)
}
