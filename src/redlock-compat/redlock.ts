import { EventEmitter } from 'node:events'
import {
  InvalidArgumentError,
  isHoldfastError,
  type LeaseLostError,
  type LeaseSet,
  type WaitOptions,
} from '../index.ts'
import { ExecutionError, ResourceLockedError } from './errors.ts'
import type { Client, ExecutionResult, ExecutionStats } from './execution.ts'
import {
  checkDuration,
  checkResources,
  DEFAULTS,
  LONGEST_MS,
  parseSettings,
  type Settings,
  windowOf,
} from './settings.ts'
import { forget, type SharedLocks, sharedLocks } from './shared-locks.ts'

/** Besides what redlock has: `error`, which is set before the signal aborts. */
export type RedlockAbortSignal = AbortSignal & { error?: Error }

type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>

/** What redlock's `acquire` returns, with a fence. */
export class Lock {
  readonly redlock: Redlock
  readonly resources: string[]
  /** The id of its ticket; of several, separated by commas. */
  readonly value: string
  readonly attempts: readonly Promise<ExecutionStats>[]
  /** Until when it holds, by `Date.now()`; 0 once it was released, or replaced by an extension. */
  expiration: number
  /** What Holdfast has of it: `leases.fence(resource)`, `leases.signal`, `leases.assertHeld()`. Not in redlock. */
  readonly leases: LeaseSet

  /** Use {@link Redlock.acquire}. */
  constructor(redlock: Redlock, resources: string[], leases: LeaseSet) {
    this.redlock = redlock
    this.resources = resources
    this.value = leases.leases.map(({ id }) => id).join(',')
    this.attempts = []
    this.expiration = Date.now() + leases.remainingMs
    this.leases = leases
  }

  release(...rest: readonly []): Promise<ExecutionResult> {
    return this.redlock.release(this, ...rest)
  }

  extend(duration: number, ...rest: readonly []): Promise<Lock> {
    return this.redlock.extend(this, duration, ...rest)
  }
}

/**
 * The class of the package redlock, version 5, on the engine and stores of Holdfast: change the import, and waiting is in
 * order and woken by messages, a lost reply or a hung server breaks nothing, and each lock has a fence. One client makes it
 * a lock on that server (or cluster), several a quorum.
 *
 * Locks of the package redlock itself are not seen, so do not run both for the same resources.
 *
 * ```ts
 * import Redlock from 'holdfast/redlock-compat'
 * import { Redis } from 'ioredis'
 *
 * const redlock = new Redlock([new Redis()], { retryCount: 10, retryDelay: 200 })
 * await redlock.using(['invoice:42'], 5000, async (signal) => {
 *   if (signal.aborted) throw signal.error
 * })
 * await redlock.quit()
 * ```
 */
export class Redlock extends EventEmitter {
  readonly clients: Set<Client>
  readonly settings: Settings
  readonly #shared: SharedLocks

  /**
   * `settings.maxTtl`, in milliseconds, is ours: the longest duration of any lock, where there are several servers. One that
   * has restarted empty does not vote for so long. The same in every process. Default: 5 minutes.
   *
   * @throws {InvalidArgumentError} when a client or a setting is not what it should be.
   */
  constructor(
    clients: Iterable<Client>,
    settings: Partial<Settings> & { readonly maxTtl?: number } = {},
    ...rest: readonly unknown[]
  ) {
    super()
    if (rest.some((scripts) => scripts !== undefined)) {
      throw new InvalidArgumentError(
        'Expected no scripts of your own, got some: the scripts are not those of redlock.',
      )
    }
    if (typeof (clients as unknown as Iterable<Client> | undefined)?.[Symbol.iterator] !== 'function') {
      throw new InvalidArgumentError('Expected `clients` to be an array of ioredis clients, got none.')
    }
    // Where nobody listens, an event of this name would end the process.
    this.on('error', () => {})
    this.clients = new Set(clients)
    const { maxTtl = 300_000, ...known } = settings
    this.settings = { ...DEFAULTS, ...parseSettings(known) }
    if (this.clients.size === 0) {
      throw new InvalidArgumentError('Redlock must be instantiated with at least one redis client.')
    }
    this.#shared = sharedLocks(new Set(this.clients), maxTtl)
  }

  /**
   * Ends the clients, as in redlock, and with them our own connections and whatever is held on these clients, also by other
   * `Redlock` objects that were made with the same ones. A program that goes on using its clients has no need for it.
   */
  async quit(...rest: readonly []): Promise<void> {
    for (const callback of rest) parseSettings(callback)
    forget(this.#shared)
    await this.#shared.locks.close()
    await Promise.all([...this.clients].map((client) => client.quit()))
  }

  /**
   * Takes all resources, or none, for `duration` milliseconds.
   *
   * @throws {ExecutionError} when they are not free within the time that `retryCount` and `retryDelay` allow, or the servers
   * cannot be asked.
   */
  async acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock> {
    const leases = await this.#take(resources, duration, settings, { renew: false })
    return new Lock(this, [...resources], leases)
  }

  /** Never fails: what the servers do not hear of ends by itself. */
  async release(lock: Lock, settings?: Partial<Settings>): Promise<ExecutionResult> {
    parseSettings(settings)
    lock.expiration = 0
    await lock.leases.release()
    return { attempts: [] }
  }

  /**
   * Holds it for `duration` milliseconds from now; never for less than it is held already. The lock that was passed in is
   * replaced by the one that is returned.
   *
   * @throws {ExecutionError} when it is over, or the servers cannot be asked in time.
   */
  async extend(existing: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock> {
    checkDuration(duration)
    parseSettings(settings)
    if (existing.expiration < Date.now() || existing.leases.state === 'lost') {
      throw new ExecutionError('Cannot extend an already-expired lock.', [])
    }
    try {
      await existing.leases.extend(Math.min(duration, LONGEST_MS))
    } catch (error) {
      throw this.#failed(error)
    }
    existing.expiration = 0
    return new Lock(this, existing.resources, existing.leases)
  }

  /**
   * Runs `routine` while all resources are held, and renews them meanwhile. Its signal aborts in time when they are lost.
   *
   * @throws what `routine` throws; {@link ExecutionError} as `acquire` does, and when the lock was lost meanwhile.
   */
  using<T>(
    resources: string[],
    duration: number,
    settings: Partial<Settings>,
    routine?: Routine<T>,
  ): Promise<T>
  using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>
  async using<T>(
    resources: string[],
    duration: number,
    settingsOrRoutine: Partial<Settings> | Routine<T>,
    optionalRoutine?: Routine<T>,
  ): Promise<T> {
    const isShort = typeof settingsOrRoutine === 'function'
    const routine = isShort ? settingsOrRoutine : optionalRoutine
    if (typeof routine !== 'function') {
      throw new InvalidArgumentError(
        'Expected the last argument to be a function that returns a promise, got none.',
      )
    }
    const leases = await this.#take(resources, duration, isShort ? undefined : settingsOrRoutine, {
      renew: true,
    })
    const controller = new AbortController()
    const signal: RedlockAbortSignal = controller.signal
    const onLost = () => {
      signal.error = this.#failed(leases.signal.reason)
      controller.abort(signal.error)
    }
    if (leases.signal.aborted) onLost()
    else leases.signal.addEventListener('abort', onLost, { once: true })
    // By the clocks: while the event loop stood still the signal could not abort.
    const throwIfLost = () => {
      if (leases.state === 'lost') throw signal.error ?? this.#failed(undefined)
    }
    try {
      throwIfLost()
      const value = await routine(signal)
      throwIfLost()
      return value
    } finally {
      leases.signal.removeEventListener('abort', onLost)
      await leases.release()
    }
  }

  async #take(
    resources: string[],
    duration: number,
    settings: Partial<Settings> | undefined,
    { renew }: { readonly renew: boolean },
  ): Promise<LeaseSet> {
    checkResources(resources)
    checkDuration(duration)
    const { retryCount, retryDelay } = { ...this.settings, ...parseSettings(settings) }
    const terms: WaitOptions = {
      ttl: Math.min(duration, LONGEST_MS),
      renew,
      wait: windowOf(retryCount, retryDelay),
    }
    try {
      return await this.#shared.locks.acquireAll(resources, terms)
    } catch (error) {
      throw this.#failed(error, { resources, retryCount })
    }
  }

  /** The error that redlock would throw. What is wrong with the call stays as it is. */
  #failed(error: unknown, { resources = [], retryCount = 0 }: Attempted = {}): Error {
    if (isHoldfastError(error, 'invalid-argument')) return error
    const isLocked = isHoldfastError(error, 'acquire-timeout')
    const why = isLocked
      ? new ResourceLockedError(
          `The operation was applied to: 0 of the ${resources.length} requested resources.`,
        )
      : error
    if (why instanceof Error) this.emit('error', why)
    const stats: ExecutionStats = {
      membershipSize: this.clients.size,
      quorumSize: Math.floor(this.clients.size / 2) + 1,
      votesFor: new Set(),
      votesAgainst: new Map(why instanceof Error ? [...this.clients].map((client) => [client, why]) : []),
    }
    const said = (error as LeaseLostError | undefined)?.message ?? 'The lock was lost.'
    const isAway = isHoldfastError(error, 'store-unavailable')
    const message = isLocked ? NO_QUORUM : isAway ? `${NO_QUORUM} ${said}` : said
    const attempts = Number.isSafeInteger(retryCount)
      ? Math.min(Math.max(0, retryCount) + 1, MOST_ATTEMPTS)
      : 1
    return new ExecutionError(message, new Array(attempts).fill(Promise.resolve(stats)), error)
  }
}

/** What was tried, for the error of redlock. */
interface Attempted {
  readonly resources?: readonly string[]
  readonly retryCount?: number
}

const MOST_ATTEMPTS = 1000
/** In the words of redlock, for who looks for them. */
const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.'

for (const [prototype, name, now] of [
  [Redlock.prototype, 'lock', 'redlock.acquire(resources, duration)'],
  [Redlock.prototype, 'unlock', 'redlock.release(lock)'],
  [Redlock.prototype, 'disposer', 'redlock.using(resources, duration, routine)'],
  [Lock.prototype, 'unlock', 'lock.release()'],
] as const) {
  // No method that anybody could want to call, so none that the types show.
  Object.defineProperty(prototype, name, {
    value: () => {
      throw new InvalidArgumentError(`Expected a call of redlock 5, got \`${name}\`: it is \`${now}\` now.`)
    },
  })
}
