import { checkOptions, expected, LONGEST_KEY } from '../base/arguments.ts'
import { paused, systemClock } from '../base/clock.ts'
import { LONGEST_MS, parseDuration, TTL_RANGE } from '../base/duration.ts'
import { unlessAborted } from '../base/unless-aborted.ts'
import { UNLIMITED } from '../contract/index.ts'
import {
  type InspectedRoom,
  isHoldfastError,
  type Lease,
  type Locks,
  type Owner,
  type WaitOptions,
} from '../index.ts'
import {
  escapeName,
  type HeldLock,
  LONGEST_NAME,
  type LockMode,
  type LockOptions,
  parseRequest,
  unescapeName,
  type WebLockRequest,
} from './request.ts'
import { Unanswered } from './unanswered.ts'

export type { HeldLock, LockMode, LockOptions } from './request.ts'

/** A lock that is held or waited for, as `query` shows it. */
export interface LockInfo {
  /** The name of the lock. */
  readonly name: string
  /** Whether others of its mode may hold the lock, too. */
  readonly mode: LockMode
  /** Which process it is: its host, its process id, and its label if it has one. */
  readonly clientId: string
}

/** The locks of one moment. */
export interface LockManagerSnapshot {
  /** The locks that are held. */
  readonly held: LockInfo[]
  /** The requests that wait, in order of arrival for each name. */
  readonly pending: LockInfo[]
}

/** The `LockManager` of the specification. */
export interface LockManager {
  /**
   * Waits for the lock, calls `callback` with it, and holds it until what the callback returns has settled.
   *
   * @returns what the callback returns. Rejects with an `AbortError` when the lock is stolen or lost meanwhile.
   */
  request<T>(name: string, callback: (lock: HeldLock) => T | Promise<T>): Promise<T>
  request<T>(
    name: string,
    options: LockOptions & { readonly ifAvailable: true },
    callback: (lock: HeldLock | null) => T | Promise<T>,
  ): Promise<T>
  request<T>(name: string, options: LockOptions, callback: (lock: HeldLock) => T | Promise<T>): Promise<T>
  /**
   * The holders and waiters of every process, including all requests that this process made before this call. The result may
   * be out of date by the time it is read.
   */
  query(): Promise<LockManagerSnapshot>
}

/** How the locks are kept in the store. */
export interface WebLocksOptions {
  /**
   * What the keys of these locks begin with in the store; those with another prefix are another origin. No prefix may begin with
   * another one that is in use: with `a:` and `a:b:`, the name `b:c` of one is the name `c` of the other. Default: `web-locks:`.
   */
  readonly prefix?: string | undefined
  /** What the death of a process costs the next one, in milliseconds or as `'30s'`. Default: that of `locks`. */
  readonly ttl?: WaitOptions['ttl']
}

/**
 * The Web Locks API (https://w3c.github.io/web-locks/) over any store: what is written for `navigator.locks` of a browser or
 * of Node.js excludes across processes and machines.
 *
 * Three things differ, because there is a network in between:
 *
 * - A lock may be lost, if its process was paused or the store was away for longer than the ttl. Then `request` rejects with an
 *   `AbortError`, as for a stolen lock.
 * - `steal` puts the waiters back into the queue, perhaps in another order.
 * - If the store does not answer, `request` waits for it. With `ifAvailable` or `steal` it rejects with a `StoreError`.
 *
 * ```ts
 * import { connect } from 'holdfast'
 * import { webLocks } from 'holdfast/web-locks'
 *
 * const locks = webLocks(await connect('memory:'))
 * await locks.request('settings', { mode: 'shared' }, async (lock) => {
 *   console.log(lock.name, lock.mode)
 * })
 * ```
 *
 * @throws {InvalidArgumentError} when an option is not what it should be.
 */
export function webLocks(locks: Locks, options: WebLocksOptions = {}): LockManager {
  if (typeof locks?.inspect !== 'function' || typeof locks.readWrite !== 'function') {
    throw expected('locks', 'locks, such as createLocks(store) or await connect(url)', locks)
  }
  checkOptions(options, ['prefix', 'ttl'])
  const { prefix = 'web-locks:', ttl } = options
  if (typeof prefix !== 'string' || prefix.length > LONGEST_PREFIX || !A_TEXT.test(prefix)) {
    const what = `a text of 1 to ${LONGEST_PREFIX} characters without NUL and unpaired surrogates`
    throw expected('prefix', what, prefix)
  }
  if (ttl !== undefined) parseDuration('ttl', ttl, TTL_RANGE)
  return new StoreLockManager(locks, prefix, ttl === undefined ? HOLD : { ...HOLD, ttl })
}

/** Whatever the defaults of the locks are. */
const HOLD = { renew: true, minHold: 0, lockDelay: 0 } as const

const LONGEST_PREFIX: number = LONGEST_KEY - LONGEST_NAME
const A_TEXT = /^[^\0\p{Surrogate}]+$/u
const MOST_THEFTS = 100
const BEHIND_THIEF_MS = 100
const ANSWER_MS = 5000
const ANSWER_SLICES = 10

class StoreLockManager implements LockManager {
  readonly #locks: Locks
  readonly #prefix: string
  readonly #terms: WaitOptions
  /** The last theft of each name that is under way. */
  readonly #thefts = new Map<string, Promise<unknown>>()
  readonly #unanswered: Unanswered

  constructor(locks: Locks, prefix: string, terms: WaitOptions) {
    this.#locks = locks
    this.#unanswered = new Unanswered(locks)
    this.#prefix = prefix
    this.#terms = terms
  }

  async request<T>(...args: readonly unknown[]): Promise<T> {
    const request = parseRequest<T>(args)
    const { steal, ifAvailable, signal } = request.options
    // What comes after a theft of this process stands behind the thief.
    const thief = steal ? undefined : this.#thefts.get(request.name)
    if (!steal && !ifAvailable)
      return this.#hold(request, await this.#take(request, thief && unlessAborted(thief, signal)))
    const tryTake = () => this.#tryTake(request)
    const taking = steal ? this.#steal(request) : (thief?.then(tryTake) ?? tryTake())
    this.#unanswered.add(taking)
    return this.#hold(request, await taking)
  }

  async query(): Promise<LockManagerSnapshot> {
    // A store may answer a question before a request that was sent earlier, on another connection.
    await this.#requestsAnswered()
    const held: LockInfo[] = []
    const pending: LockInfo[] = []
    const rooms = new Map<string, InspectedRoom>()
    // A store that scans its keys may return one twice.
    for await (const room of this.#locks.inspect({ prefix: this.#prefix })) rooms.set(room.key, room)
    for (const { key, holders, queue } of rooms.values()) {
      const name = unescapeName(key.slice(this.#prefix.length))
      for (const holder of holders) {
        const list = holder.state === 'held' ? held : holder.state === 'offered' ? pending : []
        list.push(infoOf(name, holder))
      }
      for (const waiter of queue) pending.push(infoOf(name, waiter))
    }
    return { held, pending }
  }

  /** Waits without a limit, from `after` on. If a thief evicts the waiter, it queues again behind the thief. */
  async #take(
    { name, options: { mode, signal } }: WebLockRequest<unknown>,
    after?: Promise<unknown>,
  ): Promise<Lease> {
    const terms = {
      ...this.#terms,
      wait: Number.POSITIVE_INFINITY,
      maxWaiting: Number.POSITIVE_INFINITY,
      storeTimeout: LONGEST_MS,
      signal,
    }
    const key = this.#keyOf(name)
    let from = after
    for (;;) {
      try {
        return await this.#unanswered.track(
          () =>
            mode === 'exclusive'
              ? this.#locks.acquire(key, terms)
              : this.#locks.readWrite(key).acquireRead(terms),
          from,
        )
      } catch (error) {
        // Its reason may be that another lease was lost.
        if (signal?.aborted === true) throw signal.reason
        if (!isHoldfastError(error, 'lease-lost')) throw error
        // In this time the thief gets the lock.
        from = paused(systemClock, BEHIND_THIEF_MS, signal)
      }
    }
  }

  /** Waits for earlier requests of this process, at most as long as for a store's answer. After that, `query` itself fails. */
  async #requestsAnswered(): Promise<void> {
    const enough = new AbortController()
    await Promise.race([this.#unanswered.settled(), answerTime(enough.signal)])
    enough.abort()
  }

  async #tryTake({ name, options: { mode } }: WebLockRequest<unknown>): Promise<Lease | null> {
    const key = this.#keyOf(name)
    for (;;) {
      try {
        return mode === 'exclusive'
          ? await this.#locks.tryAcquire(key, this.#terms)
          : await this.#locks.readWrite(key).tryAcquireRead(this.#terms)
      } catch (error) {
        if (!isHoldfastError(error, 'lease-lost')) throw error
        // If a thief has evicted it before the answer came, the next try tells if the lock is available.
        if (error.reason !== 'evicted') throw broken(name, error)
      }
    }
  }

  /** The thieves of a name run one after the other, so that the last one of this process wins. */
  async #steal(request: WebLockRequest<unknown>): Promise<Lease> {
    const { name } = request
    const before = this.#thefts.get(name)
    const theft = Promise.resolve(before).then(() => this.#rob(request))
    const done = theft.catch(() => {})
    this.#thefts.set(name, done)
    try {
      return await theft
    } finally {
      if (this.#thefts.get(name) === done) this.#thefts.delete(name)
    }
  }

  /**
   * Evicts all tickets and takes the lock before the evicted waiters queue again. If another ticket is faster, it is evicted in
   * turn: one of a thief in another process, or of a request that came in between.
   */
  async #rob(request: WebLockRequest<unknown>): Promise<Lease> {
    for (let tries = 0; tries < MOST_THEFTS; tries += 1) {
      await this.#locks.evictAll(this.#keyOf(request.name), { reason: 'stolen by a web lock' })
      const lease = await this.#tryTake(request)
      if (lease !== null) return lease
    }
    return this.#take(request)
  }

  async #hold<T>({ name, options, callback }: WebLockRequest<T>, lease: Lease | null): Promise<T> {
    if (lease === null) return callback(null)
    const { fence, signal } = lease
    const breaking = new Promise<never>((_, reject) => {
      const onLost = () => reject(broken(name, signal.reason))
      if (signal.aborted) onLost()
      else signal.addEventListener('abort', onLost, { once: true })
    })
    // It may break when nobody waits for it any more.
    breaking.catch(() => {})
    try {
      // If the lock is stolen or lost already, the callback must not be called with it.
      if (isLost(lease)) return await breaking
      // Granted, but the callback has not been called, and so the signal still counts.
      options.signal?.throwIfAborted()
      const lock = Object.freeze({ name, mode: options.mode, fence, signal })
      const value = await Promise.race([breaking, callback(lock)])
      // The signal cannot abort while the callback blocks the event loop.
      return isLost(lease) ? await breaking : value
    } finally {
      const released = lease.release()
      // A lock that is lost is not free because of the release, and a silent store may leave it unanswered.
      if (!isLost(lease)) await released
    }
  }

  #keyOf(name: string): string {
    return `${this.#prefix}${escapeName(name)}`
  }
}

/** In slices: after a block of the event loop timers fire first, and a block must not count as a store that does not answer. */
async function answerTime(signal: AbortSignal): Promise<void> {
  for (let slice = 0; slice < ANSWER_SLICES && !signal.aborted; slice += 1) {
    await paused(systemClock, ANSWER_MS / ANSWER_SLICES, signal)
  }
}

/** Reads the clocks. */
function isLost(lease: Lease): boolean {
  return lease.state === 'lost'
}

function broken(name: string, cause: unknown): DOMException {
  const error = new DOMException(`The lock ${JSON.stringify(name)} was stolen or lost.`, 'AbortError')
  Object.defineProperty(error, 'cause', { value: cause, configurable: true, writable: true })
  return error
}

function infoOf(name: string, ticket: { readonly limit: number; readonly owner: Owner }): LockInfo {
  return { name, mode: ticket.limit === UNLIMITED ? 'shared' : 'exclusive', clientId: clientOf(ticket.owner) }
}

function clientOf({ host, pid, label }: Owner): string {
  return [host, pid, label].filter((part) => part !== undefined).join(':')
}
