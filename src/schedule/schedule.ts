import { expected, parseFunction } from '../base/arguments.ts'
import { processWide } from '../base/process-wide.ts'
import { splitWork, type WorkArguments } from '../base/work.ts'
import { ClosedError, InvalidArgumentError } from '../errors.ts'
import type { Locks, StopOptions } from '../index.ts'
import { Job } from './job.ts'
import {
  checkName,
  parseJobOptions,
  parseScheduleOptions,
  parseStopOptions,
  type ScheduledJobOptions,
  type ScheduleOptions,
  type ScheduleSettings,
} from './options.ts'
import type { ScheduledRun } from './run.ts'
import type { ScheduledJob } from './scheduled-job.ts'

/** What a job does at its times. What it returns is awaited. */
export type ScheduledWork = (run: ScheduledRun) => unknown

/** See {@link createSchedule}. */
export interface Schedule extends AsyncDisposable {
  /** All jobs that were added and not stopped. */
  readonly jobs: readonly ScheduledJob[]
  /**
   * Adds a job. All processes add the same jobs. After `start()` it begins at once.
   *
   * @throws {InvalidArgumentError} when an argument is not what it should be, or the name is taken; {@link ClosedError} after
   * `stop()`.
   */
  // One signature and no overloads: with these, work that refers to its own job would have no type.
  add(
    name: string,
    expression: string,
    ...rest: WorkArguments<ScheduledJobOptions, ScheduledWork>
  ): ScheduledJob
  /**
   * Starts all jobs. Until `stop()` the process stays alive. Called again it changes nothing. The runs have an async context of
   * their own, and not that of the caller.
   */
  start(): void
  /**
   * Begins no more runs, and resolves when the current runs have ended. After `grace` their signals abort, and 5 s later `stop`
   * waits no longer. Another process takes over runs that did not end well. A failed run does not reject `stop`. If a run
   * awaits `stop` itself, `stop` waits for that run all this time.
   */
  stop(options?: StopOptions): Promise<void>
}

/**
 * Jobs that run by cron expressions, once per tick in the whole fleet, even if the clocks of its machines differ by seconds or
 * minutes. Every process adds the same jobs, over the same store. One process runs each tick. If it dies meanwhile, another
 * process takes the tick over. Runs of one job never overlap.
 *
 * ```ts
 * import { connect } from 'holdfast'
 * import { createSchedule } from 'holdfast/schedule'
 *
 * const locks = await connect('redis://localhost:6379')
 * const schedule = createSchedule(locks, { timezone: 'Europe/Berlin' })
 * schedule.add('nightly-report', '0 3 * * *', { missed: 'once', catchUp: '6h', maxRun: '1h' }, async ({ scheduledAt, fence, signal }) => {
 *   console.log('reports on the day before', scheduledAt, fence, signal.aborted)
 * })
 * schedule.start()
 * process.on('SIGTERM', () => schedule.stop().then(() => locks.close()))
 * ```
 *
 * There is one exception. If a process dies after the effect of its work, and before the store knows that the tick is settled,
 * the tick runs again. Where that would be wrong, use the tick as an idempotency key, or set `afterCrash: 'skip'`.
 *
 * @throws {InvalidArgumentError} when an argument is not what it should be.
 */
export function createSchedule(locks: Locks, options: ScheduleOptions = {}): Schedule {
  if (typeof locks?.withLock !== 'function') {
    throw expected('locks', 'what createLocks(…) or connect(…) returns', locks)
  }
  return new ScheduleOverLocks(locks, parseScheduleOptions(options))
}

class ScheduleOverLocks implements Schedule {
  readonly #locks: Locks
  readonly #settings: ScheduleSettings
  readonly #jobs = new Map<string, Job>()
  #state: 'idle' | 'started' | 'stopped' = 'idle'

  constructor(locks: Locks, settings: ScheduleSettings) {
    this.#locks = locks
    this.#settings = settings
  }

  get jobs(): readonly ScheduledJob[] {
    return [...this.#jobs.values()]
  }

  add(
    name: string,
    expression: string,
    ...rest: WorkArguments<ScheduledJobOptions, ScheduledWork>
  ): ScheduledJob {
    const [options = {}, work] = splitWork(rest)
    if (this.#state === 'stopped') throw stopped()
    checkName(name)
    parseFunction('work', work)
    const settings = parseJobOptions(options, this.#settings)
    const names = namesOf(this.#locks)
    const taken = names.get(name)
    if (taken !== undefined) {
      throw new InvalidArgumentError(
        `Expected \`name\` to be that of one job only, got ${JSON.stringify(name)}, which is scheduled at ${JSON.stringify(taken)} already.`,
      )
    }
    const job: Job = new Job({
      locks: this.#locks,
      name,
      expression,
      work,
      schedule: this.#settings,
      settings,
      onStop: () => {
        // Meanwhile another job may have been added under this name.
        if (this.#jobs.get(name) !== job) return
        this.#jobs.delete(name)
        names.delete(name)
      },
    })
    names.set(name, expression)
    this.#jobs.set(name, job)
    if (this.#state === 'started') job.start()
    return job
  }

  start(): void {
    if (this.#state === 'stopped') throw stopped()
    this.#state = 'started'
    for (const job of this.#jobs.values()) job.start()
  }

  async stop(options: StopOptions = {}): Promise<void> {
    parseStopOptions(options, this.#settings.graceMs)
    this.#state = 'stopped'
    await Promise.all(Array.from(this.#jobs.values(), (job) => job.stop(options)))
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }
}

/** The names in use, per `Locks`: two schedules of one process with the same name would settle each other's ticks. */
const namesInUse = processWide('names of schedules', () => new WeakMap<Locks, Map<string, string>>())

function namesOf(locks: Locks): Map<string, string> {
  const known = namesInUse.get(locks)
  if (known !== undefined) return known
  const names = new Map<string, string>()
  namesInUse.set(locks, names)
  return names
}

function stopped(): ClosedError {
  return new ClosedError('Expected a schedule that was not stopped, got one that was. Make a new one.')
}
