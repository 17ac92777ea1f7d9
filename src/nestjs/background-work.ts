import { Logger } from '@nestjs/common'
import type { DiscoveryService } from '@nestjs/core'
import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused, systemClock } from '../base/clock.ts'
import { messageOf, reportOf } from '../base/thrown.ts'
import { InvalidArgumentError, isHoldfastError } from '../errors.ts'
import type { Election, Leadership, Locks } from '../index.ts'
import { createSchedule, type Schedule, type ScheduleOptions } from '../schedule/index.ts'
import type { ModuleLocks } from './module-locks.ts'
import type { NotedMethod } from './noted.ts'
import { type LeadershipNote, leadershipMethods, type OnLeadershipOptions } from './on-leadership.ts'
import { runInBackground } from './running.ts'
import { scheduledMethods } from './scheduled.ts'

/**
 * The methods with `@Scheduled` and `@OnLeadership` of an application. NestJS calls the hooks: they start when all modules are
 * ready, and have ended before the locks are closed.
 */
export class BackgroundWork {
  readonly #module: ModuleLocks
  readonly #locks: Locks
  readonly #discovery: DiscoveryService
  readonly #options: ScheduleOptions
  readonly #logger = new Logger('Holdfast')
  readonly #stopping = new AbortController()
  readonly #stopped: Promise<void> = aborted(this.#stopping.signal)
  #schedule: Schedule | undefined
  #campaigns: readonly Promise<void>[] = []

  constructor(module: ModuleLocks, discovery: DiscoveryService, options: ScheduleOptions) {
    this.#module = module
    this.#locks = module.locks
    this.#discovery = discovery
    this.#options = options
  }

  /** All instances are there. Their methods with `@WithLock` may be called in the hooks that come next. */
  onModuleInit(): void {
    for (const { instance } of this.#discovered()) this.#module.giveTo(instance)
  }

  async onApplicationBootstrap(): Promise<void> {
    const instances = this.#instances()
    const jobs = instances.flatMap(scheduledMethods)
    const methods = instances.flatMap(leadershipMethods)
    const {
      onError = (error, { name, during }) => {
        const isOver = during === 'store' && isHoldfastError(error, 'closed')
        const what = isOver ? 'is over, because its locks are closed' : TROUBLES[during]
        this.#warn(`The scheduled job ${JSON.stringify(name)} ${what}.`, error)
      },
    } = this.#options
    const schedule = createSchedule(this.#locks, { ...this.#options, onError })
    this.#schedule = schedule
    try {
      for (const { note, call } of jobs) {
        schedule.add(note.name, note.expression, note.options, (run) => runInBackground(() => call(run)))
      }
      // All are checked before the first one starts.
      const elections = methods.map((method) => ({
        method,
        election: this.#locks.election(method.note.key),
      }))
      checkKeys(methods)
      for (const { method, election } of elections) await checkCampaign(election, method.note.options)
      if (jobs.length > 0) schedule.start()
      this.#campaigns = elections.map(({ method, election }) => this.#campaign(method, election))
    } catch (error) {
      // Its names are free again. NestJS calls no hook after a start that failed.
      await schedule.stop()
      throw error
    }
  }

  /** A run may end, and a leader settle, before the modules are taken apart further. */
  async onModuleDestroy(): Promise<void> {
    // NestJS calls this hook first. Requests that wait must not wait for runs and leaders, too.
    this.#module.onModuleDestroy()
    this.#stopping.abort()
    await Promise.all([this.#schedule?.stop(), ...this.#campaigns])
  }

  /** Those of which there is one in the application. */
  #instances(): readonly object[] {
    const instances = new Set<object>()
    for (const { instance, isOnly } of this.#discovered()) {
      if (isOnly) instances.add(instance)
      else refuseMethods(instance)
    }
    return [...instances]
  }

  /** Of all providers and controllers of the application. */
  *#discovered(): Generator<{ readonly instance: object; readonly isOnly: boolean }> {
    for (const wrapper of [...this.#discovery.getProviders(), ...this.#discovery.getControllers()]) {
      const instance: unknown = wrapper.instance
      if (typeof instance !== 'object' || instance === null) continue
      // NestJS keeps an object for a transient provider whose constructor has never run.
      yield { instance, isOnly: wrapper.isDependencyTreeStatic() && !wrapper.isTransient }
    }
  }

  async #campaign(
    { title, note: { key, options }, call }: NotedMethod<LeadershipNote>,
    election: Election,
  ): Promise<void> {
    const { signal } = this.#stopping
    const onError = (error: unknown) =>
      this.#warn(`${title} cannot be elected for ${JSON.stringify(key)} now, and will ask again.`, error)
    for (let failures = 0; !signal.aborted; ) {
      let sinceMs = Number.POSITIVE_INFINITY
      let thrown: unknown
      try {
        await election.campaign({ ...options, signal, onError }, (leadership) => {
          sinceMs = systemClock.monotonicMs()
          const settled = (async () => {
            try {
              await runInBackground(() => call(leadership))
            } catch (error) {
              thrown = error
              throw error
            }
            await aborted(leadership.signal)
          })()
          return Promise.race([settled, this.#lostAtTheEnd(leadership)])
        })
      } catch (error) {
        // The method may throw the same error, of an object of its own.
        const isOfMethod = error === thrown
        const isClosed = isHoldfastError(error, 'closed')
        if (!isOfMethod && (signal.aborted || isClosed)) return
        // When the application closes, the locks that the method waits for are refused.
        if (signal.aborted && isClosed) return
        this.#warn(
          `${title} failed as the leader for ${JSON.stringify(key)}. Another instance may lead now.`,
          error,
        )
        const wentWell = systemClock.monotonicMs() - sinceMs > AFTER_FAILURE.longestMs
        failures = wentWell ? 1 : failures + 1
        await paused(systemClock, backoffMs(AFTER_FAILURE, failures), signal)
      }
    }
  }

  /** Settles if the work goes on although its lease is over and the application closes: nobody waits for it any longer. */
  async #lostAtTheEnd({ lost }: Leadership): Promise<void> {
    await aborted(lost)
    await this.#stopped
  }

  #warn(message: string, error: unknown): void {
    this.#logger.error(`${message} ${messageOf(error)}`, reportOf(error))
  }
}

/** NestJS makes these instances for a request, so there is none whose method could run. */
function refuseMethods(instance: object): void {
  const [method] = [...scheduledMethods(instance), ...leadershipMethods(instance)]
  if (method === undefined) return
  throw new InvalidArgumentError(
    `Expected \`${method.title}\` to be a method of a provider of the default scope, got one that NestJS makes for each request or each user of it.`,
  )
}

/** Two methods with one key would wait for each other. @throws {InvalidArgumentError} */
function checkKeys(methods: readonly NotedMethod<LeadershipNote>[]): void {
  const titles = new Map<string, string>()
  for (const { title, note } of methods) {
    const taken = titles.get(note.key)
    if (taken !== undefined) {
      throw new InvalidArgumentError(
        `Expected the key of \`@OnLeadership\` to be that of one method only, got ${JSON.stringify(note.key)} at \`${taken}\` and at \`${title}\`. A provider of two modules is two instances: let one module provide and export it.`,
      )
    }
    titles.set(note.key, title)
  }
}

/** Has the options checked without a request: the campaign ends before it begins. @throws {InvalidArgumentError} */
async function checkCampaign(election: Election, options: OnLeadershipOptions): Promise<void> {
  const over = new Error('Only the options were to be checked.')
  try {
    await election.campaign({ ...options, signal: AbortSignal.abort(over) }, () => {})
  } catch (error) {
    if (error !== over) throw error
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

const TROUBLES = {
  run: 'failed',
  store: 'could not ask its store, or lost its lease before the work began, and will ask again',
} as const

/** The longest pause is short enough that a candidate is there when the leader of the moment goes. */
const AFTER_FAILURE: Backoff = { firstMs: 1000, longestMs: 30_000, jitter: 0.5 }
