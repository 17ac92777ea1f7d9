import { EventEmitter } from 'node:events'
import {
  InvalidArgumentError,
  isHoldfastError,
  type LeaseLostError,
  type LeaseSet,
  StoreError,
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
  silenceOf,
  windowOf,
} from './settings.ts'
import { forget, type SharedLocks, sharedLocks } from './shared-locks.ts'

/** As in redlock, an `AbortSignal` with `error`, which is set before the signal aborts. */
export type RedlockAbortSignal = AbortSignal & { error?: Error }

type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>

/** What redlock's `acquire` returns, with a fence. */
export class Lock {
  /** The object that this lock came from. */
  readonly redlock: Redlock
  /** The keys that are held. */
  readonly resources: string[]
  /** The ids of its tickets, separated by commas. */
  readonly value: string
  /** The votes on the attempts that it took. */
  readonly attempts: readonly Promise<ExecutionStats>[]
  /** When the lock expires, as by `Date.now()`; 0 after a release, or after an extension has replaced the lock. */
  expiration: number
  /** The leases of Holdfast: `leases.fence(resource)`, `leases.signal`, `leases.assertHeld()`. Not in redlock. */
  readonly leases: LeaseSet

  /** Use {@link Redlock.acquire}. */
  constructor(redlock: Redlock, resources: string[], leases: LeaseSet) {
    this.redlock = redlock
    this.resources = resources
    this.value = leases.leases.map(({ id }) => id).join(',')
    this.attempts = []
    // A whole number, as in redlock.
    this.expiration = Math.floor(Date.now() + leases.remainingMs)
    this.leases = leases
  }

  /** As {@link Redlock.release}. */
  release(...rest: readonly []): Promise<ExecutionResult> {
    return this.redlock.release(this, ...rest)
  }

  /** As {@link Redlock.extend}. `duration`: in milliseconds, from now. */
  extend(duration: number, ...rest: readonly []): Promise<Lock> {
    return this.redlock.extend(this, duration, ...rest)
  }
}

/**
 * The class of the package redlock, version 5, on the engine and stores of Holdfast. Change the import, and waiters are
 * served in order and woken by messages, a lost reply or a hung server breaks nothing, and each lock has a fence. With one
 * client it locks on that server (or cluster), with several on a quorum of them.
 *
 * It does not see the locks of the package redlock itself, so do not run both for the same resources.
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
  /** The clients that were given, one for each server. */
  readonly clients: Set<Client>
  /** The settings that were given, with the defaults of the others. */
  readonly settings: Settings
  readonly #shared: SharedLocks

  /**
   * `settings.maxTtl`, in milliseconds, is not in redlock: the longest duration of any lock on several servers. A server that
   * has restarted empty does not vote for that long. Give every process the same. Default: 5 minutes.
   *
   * @throws {InvalidArgumentError} when a client or a setting is invalid.
   */
  constructor(
    clients: Iterable<Client>,
    settings: Partial<Settings> & { readonly maxTtl?: number } = {},
    ...rest: readonly unknown[]
  ) {
    super()
    if (rest.some((scripts) => Object.keys(scripts ?? {}).length > 0)) {
      throw new InvalidArgumentError(
        'Expected no scripts of your own, got some: the scripts are not those of redlock.',
      )
    }
    if (typeof (clients as unknown as Iterable<Client> | undefined)?.[Symbol.iterator] !== 'function') {
      throw new InvalidArgumentError('Expected `clients` to be an array of ioredis clients, got none.')
    }
    // Node throws an `error` event that has no listener.
    this.on('error', () => {})
    this.clients = new Set(clients)
    this.settings = { ...DEFAULTS, ...parseSettings(settings) }
    // As for `acquire`, null is no settings.
    const { maxTtl = 300_000 } = settings ?? {}
    if (this.clients.size === 0) {
      throw new InvalidArgumentError('Redlock must be instantiated with at least one redis client.')
    }
    this.#shared = sharedLocks(new Set(this.clients), maxTtl)
  }

  /**
   * Quits the clients, as in redlock. That ends the connections of Holdfast, too, and all locks on these clients, also those
   * of other `Redlock` objects with the same clients. A program that goes on using its clients need not call it.
   */
  async quit(...rest: readonly []): Promise<void> {
    for (const callback of rest) parseSettings(callback)
    forget(this.#shared)
    await this.#shared.locks.close()
    await Promise.all([...this.clients].map((client) => client.quit()))
  }

  /**
   * Locks all resources, or none, for `duration` milliseconds.
   *
   * @throws {ExecutionError} when they are not free within the time that `retryCount` and `retryDelay` allow, or the servers
   * cannot be asked.
   */
  async acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock> {
    const leases = await this.#take(resources, duration, settings, { renew: false })
    return new Lock(this, [...resources], leases)
  }

  /** Does not fail when servers are away: a lock whose release they miss expires by itself. */
  async release(lock: Lock, settings?: Partial<Settings>): Promise<ExecutionResult> {
    parseSettings(settings)
    checkLock(lock)
    lock.expiration = 0
    await lock.leases.release()
    return { attempts: [] }
  }

  /**
   * Holds the lock for `duration` milliseconds from now, and never shorter than before. Use the returned lock from then on:
   * it replaces `existing`.
   *
   * @throws {ExecutionError} when the lock has expired, or the servers do not confirm the extension within the time that
   * `retryCount` and `retryDelay` allow. The servers may carry it out all the same.
   */
  async extend(existing: Lock, duration: number, settings?: Partial<Settings>): Promise<Lock> {
    checkDuration(duration)
    const { retryCount, retryDelay } = { ...this.settings, ...parseSettings(settings) }
    checkLock(existing)
    if (existing.expiration < Date.now() || existing.leases.state === 'lost') {
      throw new ExecutionError('Cannot extend an already-expired lock.', [])
    }
    try {
      const extension = existing.leases.extend(Math.min(duration, LONGEST_MS))
      await answered(extension, silenceOf(retryCount, retryDelay))
    } catch (error) {
      throw this.#failed(error)
    }
    existing.expiration = 0
    return new Lock(this, existing.resources, existing.leases)
  }

  /**
   * Runs `routine` while all resources are locked, and renews the locks meanwhile. When they are lost, the signal aborts
   * before another can hold them.
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
      const { reason } = leases.signal
      signal.error = executionError(this.clients, reason)
      // Before a listener of `error` can throw.
      controller.abort(signal.error)
      if (reason instanceof Error) this.emit('error', reason)
    }
    // Checked by the clock, as the signal cannot abort while the event loop is blocked.
    const throwIfLost = () => {
      if (leases.state === 'lost') throw signal.error ?? this.#failed(undefined)
    }
    try {
      if (leases.signal.aborted) onLost()
      else leases.signal.addEventListener('abort', onLost, { once: true })
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

  /** The error that redlock would throw. Listeners of `error` are told why. An invalid argument stays the error that it is. */
  #failed(error: unknown, attempted: Attempted = {}): Error {
    if (isHoldfastError(error, 'invalid-argument')) return error
    const why = reasonOf(error, attempted)
    if (why instanceof Error) this.emit('error', why)
    return executionError(this.clients, error, attempted)
  }
}

/** What the votes and the listeners of `error` are told. */
function reasonOf(error: unknown, { resources = [] }: Attempted): unknown {
  if (!isHoldfastError(error, 'acquire-timeout')) return error
  return new ResourceLockedError(
    `The operation was applied to: 0 of the ${resources.length} requested resources.`,
  )
}

function executionError(
  clients: ReadonlySet<Client>,
  error: unknown,
  attempted: Attempted = {},
): ExecutionError {
  const { retryCount = 0 } = attempted
  const why = reasonOf(error, attempted)
  const stats: ExecutionStats = {
    membershipSize: clients.size,
    quorumSize: Math.floor(clients.size / 2) + 1,
    votesFor: new Set(),
    votesAgainst: new Map(why instanceof Error ? [...clients].map((client) => [client, why]) : []),
  }
  const said = (error as LeaseLostError | undefined)?.message ?? 'The lock was lost.'
  const isAway = isHoldfastError(error, 'store-unavailable')
  const isLocked = isHoldfastError(error, 'acquire-timeout')
  const message = isLocked ? NO_QUORUM : isAway ? `${NO_QUORUM} ${said}` : said
  const attempts = Number.isSafeInteger(retryCount) ? Math.min(Math.max(0, retryCount) + 1, MOST_ATTEMPTS) : 1
  return new ExecutionError(message, new Array(attempts).fill(Promise.resolve(stats)), error)
}

/** Rejects if the servers are silent for this long. */
async function answered(extension: Promise<void>, silentMs: number): Promise<void> {
  if (silentMs === Number.POSITIVE_INFINITY) return extension
  let timer: NodeJS.Timeout | undefined
  const silence = new Promise<never>((_, reject) => {
    const why = `The servers did not confirm the extension within ${silentMs} ms.`
    timer = setTimeout(() => reject(new StoreError('store-unavailable', why)), silentMs)
  })
  try {
    await Promise.race([extension, silence])
  } finally {
    clearTimeout(timer)
  }
}

/** A lock that was stored and read again, or made by the package redlock, has no leases. */
function checkLock(lock: Lock): void {
  if (typeof lock?.leases?.release === 'function') return
  throw new InvalidArgumentError(
    'Expected a lock that `acquire` or `extend` has returned, got another value.',
  )
}

/** The attempts, for the error of redlock. */
interface Attempted {
  readonly resources?: readonly string[]
  readonly retryCount?: number
}

const MOST_ATTEMPTS = 1000
/** In the words of redlock, as programs may look for them. */
const NO_QUORUM = 'The operation was unable to achieve a quorum during its retry window.'

for (const [prototype, name, now] of [
  [Redlock.prototype, 'lock', 'redlock.acquire(resources, duration)'],
  [Redlock.prototype, 'unlock', 'redlock.release(lock)'],
  [Redlock.prototype, 'disposer', 'redlock.using(resources, duration, routine)'],
  [Lock.prototype, 'unlock', 'lock.release()'],
] as const) {
  // Methods of older versions of redlock. They only say what replaces them, so the types do not show them.
  Object.defineProperty(prototype, name, {
    value: () => {
      throw new InvalidArgumentError(`Expected a call of redlock 5, got \`${name}\`: it is \`${now}\` now.`)
    },
  })
}
