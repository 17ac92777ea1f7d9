import { checkOptions, expected, parseCount } from '../base/arguments.ts'
import { splitWork, type WorkArguments } from '../base/work.ts'
import { listen } from '../engine/events.ts'
import { HeldLease } from '../engine/held-lease.ts'
import type { Lease, LeaseJson } from '../engine/lease.ts'
import type { LockEventName, LockEvents } from '../engine/lock-events.ts'
import { LeaseLostError } from '../errors.ts'
import { checkStore } from './check-store.ts'
import { Election } from './election.ts'
import { MemberGroup } from './group.ts'
import {
  hold,
  type LocksContext,
  makeTicket,
  type Outcome,
  promised,
  tryHold,
  tryWithHold,
  type Work,
  withHold,
} from './hold.ts'
import { type InspectedRoom, inspector, roomOf, roomsUnder } from './inspected.ts'
import { parseLeaseJson } from './lease-json.ts'
import { type OnceOptions, type OnceOutcome, parseOnce, runOnce } from './once.ts'
import {
  ADMINISTRATION_MS,
  type AdoptOptions,
  type CallbackOptions,
  checkCallback,
  checkKey,
  checkReason,
  EXCLUSIVE,
  type HoldOptions,
  type HoldSettings,
  parseSettings,
  TAKES,
  type TryCallbackOptions,
  type WaitOptions,
} from './options.ts'
import { ReadWriteLock } from './read-write.ts'
import { Semaphore } from './semaphore.ts'
import {
  holdTogether,
  type LeaseSet,
  tryHoldTogether,
  tryWithHoldTogether,
  withHoldTogether,
} from './together.ts'
import { type UntilFreeOptions, untilFree } from './until-free.ts'

/** Why a holder or waiter is evicted. */
export interface EvictOptions {
  /** Why, as the evicted holder or waiter reads it in its error. 1 to 500 characters. */
  readonly reason: string
}

export class Locks {
  readonly #context: LocksContext
  readonly #defaults: HoldSettings

  /** Use `createLocks`. */
  constructor(context: LocksContext, defaults: HoldSettings) {
    this.#context = context
    this.#defaults = defaults
  }

  /**
   * Waits for the key, runs `work` while holding it, and releases it whatever happens. The lease is renewed meanwhile.
   * Pass `lease.signal` to what can be aborted, and send `lease.fence` along with every write.
   *
   * @returns what `work` returns.
   * @throws what `work` throws; {@link AcquireTimeoutError} when the key was not free within `wait` (default 60 s);
   * {@link LeaseLostError} when the lease was lost before `work` was done; {@link StoreError}; {@link DeadlockError};
   * the reason of the `signal`.
   */
  withLock<T>(key: string, work: (lease: Lease) => Promise<T> | T): Promise<T>
  withLock<T>(
    key: string,
    options: CallbackOptions | undefined,
    work: (lease: Lease) => Promise<T> | T,
  ): Promise<T>
  withLock<T>(key: string, ...rest: WorkArguments<CallbackOptions, Work<Lease, T>>): Promise<T> {
    // Not by `promised`: a deadlock shows where this was called, and a stack has room for ten functions.
    try {
      const [options, work] = splitWork(rest)
      const settings = parseSettings(options, TAKES.callback, this.#defaults)
      return withHold(this.#context, { key, shape: EXCLUSIVE, settings }, work)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Like {@link withLock}, but never waits: `{ ran: false }` when the key is busy, and `work` does not run. */
  tryWithLock<T>(key: string, work: (lease: Lease) => Promise<T> | T): Promise<Outcome<T>>
  tryWithLock<T>(
    key: string,
    options: TryCallbackOptions | undefined,
    work: (lease: Lease) => Promise<T> | T,
  ): Promise<Outcome<T>>
  async tryWithLock<T>(
    key: string,
    ...rest: WorkArguments<TryCallbackOptions, Work<Lease, T>>
  ): Promise<Outcome<T>> {
    const [options, work] = splitWork(rest)
    const settings = parseSettings(options, TAKES.tryCallback, this.#defaults)
    return tryWithHold(this.#context, { key, shape: EXCLUSIVE, settings }, work)
  }

  /**
   * Waits for the key. Release the lease in `finally`, or with `await using`.
   *
   * @throws like {@link withLock}.
   */
  acquire(key: string, options?: WaitOptions): Promise<Lease> {
    return promised<Lease>(() => {
      const settings = parseSettings(options, TAKES.wait, this.#defaults)
      return hold(this.#context, { key, shape: EXCLUSIVE, settings })
    })
  }

  /** Takes the key if it is free; `null` when it is busy. Never waits for the key. */
  tryAcquire(key: string, options?: HoldOptions): Promise<Lease | null> {
    return promised<Lease | null>(() => {
      const settings = parseSettings(options, TAKES.try, this.#defaults)
      return tryHold(this.#context, { key, shape: EXCLUSIVE, settings })
    })
  }

  /** Waits for all keys and runs `work` while holding them: all or nothing. Two such calls never deadlock each other. */
  withLocks<T>(keys: readonly string[], work: (leases: LeaseSet) => Promise<T> | T): Promise<T>
  withLocks<T>(
    keys: readonly string[],
    options: WaitOptions | undefined,
    work: (leases: LeaseSet) => Promise<T> | T,
  ): Promise<T>
  async withLocks<T>(
    keys: readonly string[],
    ...rest: WorkArguments<WaitOptions, Work<LeaseSet, T>>
  ): Promise<T> {
    const [options, work] = splitWork(rest)
    return withHoldTogether(this.#context, keys, parseSettings(options, TAKES.wait, this.#defaults), work)
  }

  /** Like {@link withLocks}, but never waits: `{ ran: false }` when one of the keys is busy, and `work` does not run. */
  tryWithLocks<T>(keys: readonly string[], work: (leases: LeaseSet) => Promise<T> | T): Promise<Outcome<T>>
  tryWithLocks<T>(
    keys: readonly string[],
    options: HoldOptions | undefined,
    work: (leases: LeaseSet) => Promise<T> | T,
  ): Promise<Outcome<T>>
  async tryWithLocks<T>(
    keys: readonly string[],
    ...rest: WorkArguments<HoldOptions, Work<LeaseSet, T>>
  ): Promise<Outcome<T>> {
    const [options, work] = splitWork(rest)
    return tryWithHoldTogether(this.#context, keys, parseSettings(options, TAKES.try, this.#defaults), work)
  }

  /** Waits for several keys, in canonical order under one `wait`. Repeated keys are taken once. */
  async acquireAll(keys: readonly string[], options?: WaitOptions): Promise<LeaseSet> {
    return holdTogether(this.#context, keys, parseSettings(options, TAKES.wait, this.#defaults))
  }

  /** `null` when one of the keys is busy; then none is held. */
  async tryAcquireAll(keys: readonly string[], options?: HoldOptions): Promise<LeaseSet | null> {
    return tryHoldTogether(this.#context, keys, parseSettings(options, TAKES.try, this.#defaults))
  }

  /** Many readers or one writer on this key. */
  readWrite(key: string): Pick<ReadWriteLock, keyof ReadWriteLock> {
    checkKey(key)
    return new ReadWriteLock(this.#context, key, this.#defaults)
  }

  /** At most `permits` at a time on this key. */
  semaphore(key: string, permits: number): Pick<Semaphore, keyof Semaphore> {
    checkKey(key)
    return new Semaphore(this.#context, key, permits, this.#defaults)
  }

  /** One leader at a time among those who campaign for this key. */
  election(key: string): Pick<Election, keyof Election> {
    return new Election(this.#context, key, this.#defaults)
  }

  /** The processes that are alive, each with a value of its own: who joins this group is a member until it leaves or dies. */
  group(key: string): Pick<MemberGroup, keyof MemberGroup> {
    return new MemberGroup(this.#context, key, this.#defaults)
  }

  /**
   * Runs `work`, unless a call for this key succeeded within the last `remember`, in any process. In that case the result is
   * `{ ran: false }`, with the `value` of that call if both have `keepResult: true`. A call that comes while `work` runs waits for its
   * end. If `work` fails, the next call runs it.
   *
   * `work` may still run twice: if the lease is lost meanwhile, or if the process ends after the success and before the
   * store knows of it. Where that matters, pass `lease.fence` or an idempotency key along.
   *
   * ```ts
   * import { connect } from 'holdfast'
   *
   * const locks = await connect('memory:')
   * const welcome = await locks.once('welcome:42', { remember: '24h' }, async () => 'sent')
   * console.log(welcome.ran ? welcome.value : 'already done')
   * ```
   *
   * @throws like {@link withLock}.
   */
  async once<T>(key: string, options: OnceOptions, work: Work<Lease, T>): Promise<OnceOutcome<T>> {
    const terms = parseOnce(options, this.#defaults)
    checkCallback(work)
    return runOnce(this.#context, key, terms, work)
  }

  /**
   * Continues a lease that another process (or an earlier run) described with `lease.detach()` or `lease.toJSON()`. This
   * process renews it from now on. The lease keeps its fence, `minHold` and `lockDelay`. It keeps its ttl unless the options say
   * otherwise.
   *
   * @throws {LeaseLostError} when the store does not hold it any more; {@link StoreError} when it does not answer.
   */
  async adopt(json: LeaseJson, options?: AdoptOptions): Promise<Lease> {
    const { key, id, fence, units, limit, ttlMs, minHoldMs, lockDelayMs } = parseLeaseJson(json)
    if (options !== undefined) checkOptions(options, TAKES.adopt)
    const { ttl = ttlMs, ...rest } = options ?? {}
    const own = { ttl, ...rest, minHold: minHoldMs, lockDelay: lockDelayMs }
    const settings = parseSettings(own, TAKES.try, this.#defaults)
    // With patience: if the id is that of a waiter, this renewal must not cost the waiter its place.
    const ticket = makeTicket(this.#context, {
      key,
      id,
      shape: { units, limit },
      settings,
      patienceMs: settings.patienceMs,
    })
    settings.signal?.throwIfAborted()
    const { signal, storeTimeoutMs } = settings
    const request = { ticket, fence, lease: settings, signal, storeTimeoutMs }
    const adopted = await this.#context.engine.adopt(request)
    if (adopted instanceof HeldLease) return adopted
    const { evicted } = adopted
    throw new LeaseLostError(
      `The lease on ${JSON.stringify(key)} cannot be continued: ${evicted ? 'somebody evicted it' : 'the store does not hold it any more'}.`,
      { key, reason: evicted ? 'evicted' : 'expired' },
    )
  }

  /**
   * Who holds this key and who waits for it, in one request. It changes nothing. `null`: nobody holds it or waits for it, so a
   * {@link tryAcquire} at that moment would get it. The view may be out of date by the time it is read. So decide by it what
   * to show, and never whether to write.
   *
   * ```ts
   * import { connect } from 'holdfast'
   *
   * const locks = await connect('memory:', { label: 'billing' })
   * const room = await locks.peek('invoice:42')
   * console.log(room === null ? 'free' : room.holders.map(({ owner, heldMs }) => `${owner.label} for ${heldMs} ms`))
   * ```
   *
   * @throws {StoreError} when the store does not answer within 10 s, or refuses, also because a newer version or another program
   * has written the key; {@link ClosedError}.
   */
  async peek(key: string): Promise<InspectedRoom | null> {
    checkKey(key)
    const room = await roomOf(this.#context.engine, key)
    return room === undefined ? null : inspector()(room)
  }

  /**
   * Waits until nobody holds the key and nobody waits for it, and takes nothing. Another process may take the key in the same
   * moment. So it is right for "go on when the migration is over", and wrong as a check before a write: for that,
   * {@link acquire} the key.
   *
   * It looks at the key after 50 ms, and then less and less often, until it looks once a second. To queue for the key instead
   * would be quicker, but then this call would hold the key for a moment, and a `tryAcquire` of another process would find it
   * taken. If many wait, the key passes from one to the next and is not free in between.
   *
   * `wait`: how long to wait. With 0 it looks once. Default: as for {@link acquire}, 60 s.
   *
   * ```ts
   * import { connect } from 'holdfast'
   *
   * const locks = await connect('memory:')
   * await locks.waitUntilFree('migration', { wait: '10m', signal: AbortSignal.timeout(900_000) })
   * ```
   *
   * @throws {AcquireTimeoutError} when the key was not free within `wait`; {@link StoreError}; {@link ClosedError}; the reason
   * of the `signal`.
   */
  async waitUntilFree(key: string, options?: UntilFreeOptions): Promise<void> {
    checkKey(key)
    return untilFree(this.#context.engine, key, parseSettings(options, TAKES.untilFree, this.#defaults))
  }

  /**
   * Lists holders and waiters, key by key, in the store's own order of keys. It changes nothing, and leaves out keys that another
   * program has written. A view may be out of date when it is read. Redis may list a key twice if its keys become fewer, or after a fail-over.
   *
   * `onPage`: a function that is called, without arguments, whenever the store has answered, also if it found no key: a sign that
   * a long listing goes on.
   */
  async *inspect(
    options: {
      readonly prefix?: string | undefined
      readonly pageSize?: number | undefined
      readonly onPage?: (() => void) | undefined
    } = {},
  ): AsyncGenerator<InspectedRoom, void, void> {
    checkOptions(options, ['prefix', 'pageSize', 'onPage'])
    const { prefix = '', pageSize = 100, onPage = () => {} } = options
    if (typeof onPage !== 'function') throw expected('onPage', 'a function', onPage)
    if (typeof prefix !== 'string') throw expected('prefix', 'a string', prefix)
    const count = parseCount('pageSize', pageSize, { least: 1, most: 10_000 })
    yield* roomsUnder(this.#context.engine, { prefix, count, onPage })
  }

  /** What {@link inspect} cannot know here, a sentence each, for people: the store is a replica, say. Empty: nothing is missing. */
  async caveats(): Promise<readonly string[]> {
    return this.#ask('inspect', () => this.#context.engine.store.caveats?.() ?? [])
  }

  /**
   * Removes a holder from the key, or a waiter from the queue, by its id as `inspect` shows it. The store tells the holder,
   * and its lease is lost with reason `evicted`. Until then the holder may go on writing: only fences stop it.
   *
   * @returns the ids that were removed: this one, or none.
   */
  async evict(key: string, id: string, options: EvictOptions): Promise<readonly string[]> {
    checkKey(key)
    if (typeof id !== 'string' || id === '') {
      throw expected('id', "a ticket's id, as in evict(key, id, { reason }) or evictAll(key, { reason })", id)
    }
    return this.#evict(key, id, options)
  }

  /** Like {@link evict}, for all who hold the key or wait for it. */
  async evictAll(key: string, options: EvictOptions): Promise<readonly string[]> {
    checkKey(key)
    return this.#evict(key, undefined, options)
  }

  /**
   * Whether a lock could be taken now: for the readiness check of an orchestrator, and for a program that starts. It takes a
   * reader's lock on a key of Holdfast's own (`holdfast#check`), and releases it. So it proves that the store can be reached,
   * accepts writes from this user, and, with several servers, that a majority agrees. It does not wait for any key of yours.
   *
   * `storeTimeout`: the limit of the whole check. Default: that of these locks, else 5 s.
   *
   * ```ts
   * import { connect } from 'holdfast'
   *
   * const locks = await connect('memory:')
   * export const isReady = () => locks.check({ storeTimeout: '2s' }).then(() => true, () => false)
   * ```
   *
   * @throws {StoreError} when the store did not answer in time, or refuses; {@link ClosedError} when the locks are closed.
   */
  async check(options?: Pick<HoldOptions, 'storeTimeout'>): Promise<void> {
    return checkStore(this.#context, parseSettings(options, TAKES.check, this.#defaults))
  }

  /**
   * Calls `listener` for each such event of these locks; {@link LockEvents} lists them. Returns a function that removes the
   * listener. The listener runs synchronously: keep it short. What it throws becomes a process warning and does not affect
   * the lock. Events that nobody listens to cost nothing.
   *
   * @throws {InvalidArgumentError} when there is no such event.
   */
  on<Name extends LockEventName>(event: Name, listener: (event: LockEvents[Name]) => void): () => void {
    return listen(this.#context.engine.events, event, listener)
  }

  /**
   * Takes no new calls, rejects waiting calls with a `ClosedError`, releases all leases, and closes the connections that the
   * store opened itself. A client that you passed to the store stays open. Takes a few seconds at most, even if the store
   * does not answer.
   */
  close(): Promise<void> {
    return this.#context.engine.close()
  }

  /** `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #evict(key: string, id: string | undefined, options: EvictOptions): Promise<readonly string[]> {
    checkOptions(options, ['reason'], 'reason')
    const { reason } = options
    checkReason(reason)
    return this.#ask('evict', () => this.#context.engine.store.evict({ key, id, reason }))
  }

  /** One request for people, who can wait a little longer than a lease. */
  #ask<T>(verb: 'inspect' | 'evict', request: () => T | Promise<T>): Promise<T> {
    return this.#context.engine.ask(verb, request, { limitMs: ADMINISTRATION_MS })
  }
}
