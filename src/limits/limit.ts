import { splitWork, type WorkArguments } from '../base/work.ts'
import { type AcquireTimeoutError, isHoldfastError, StartTimeoutError } from '../errors.ts'
import type { Lease, Locks, Semaphore } from '../index.ts'
import { CallTeller } from './limit-events.ts'
import {
  checkWork,
  type LimitOptions,
  parseLimit,
  parseRun,
  RUN_TAKES,
  type RunOptions,
  type RunSettings,
  slotsKeyOf,
  TRY_TAKES,
  type TryRunOptions,
} from './options.ts'
import { consume, type LimitCall, pass, type Turn, tooMany } from './rate.ts'
import { WindowLimiter } from './sliding-window.ts'

/**
 * The value of the work, or why it did not run: as many run already (`concurrency`), or as many have begun in this window
 * (`rate`). `retryAfterMs` is undefined where the points of the limiter never come back.
 */
export type LimitOutcome<T> =
  | { readonly ran: true; readonly value: T }
  | { readonly ran: false; readonly reason: 'concurrency' }
  | { readonly ran: false; readonly reason: 'rate'; readonly retryAfterMs: number | undefined }

/** At most so many at once, and so many within a window, for each key of its own. See {@link createLimit}. */
export interface Limit {
  /**
   * Waits for a slot of this key, then for a point of its window, and runs `work` in the slot. Slots are given in order
   * of arrival; of those who have one and wait for the same window, any may be first.
   *
   * @returns what `work` returns.
   * @throws what `work` throws; {@link StartTimeoutError} when there was no slot within `wait`, or at once when the next window
   * comes later than that (`retryAfterMs` says how much later); {@link LeaseLostError} when the slot was lost before `work` was done;
   * {@link StoreError} when the store, or that of the rate limiter, could not be asked; {@link DeadlockError} when it is called from work
   * of the same key, or calls wait for one another; {@link ClosedError}; the reason of the `signal`.
   */
  run<T>(key: string, work: LimitWork<T>): Promise<T>
  run<T>(key: string, options: RunOptions | undefined, work: LimitWork<T>): Promise<T>
  /** Like {@link run}, but never waits. */
  tryRun<T>(key: string, work: LimitWork<T>): Promise<LimitOutcome<T>>
  tryRun<T>(key: string, options: TryRunOptions | undefined, work: LimitWork<T>): Promise<LimitOutcome<T>>
}

/** What runs in a slot, under the lease on it. */
export type LimitWork<T> = (lease: Lease) => Promise<T> | T

/**
 * A limit per key, such as a user, over all processes that make it with the same name: at most `concurrency` run at once, and
 * no more begin within any window of time than there are points. The name has no `:` in it, and the key may be any text.
 *
 * ```ts
 * import { connect } from 'holdfast'
 * import { createLimit } from 'holdfast/limits'
 *
 * const locks = await connect('memory:')
 * const exports = createLimit(locks, 'exports', { concurrency: 2, rate: { points: 10, window: '1m' } })
 * const file = await exports.run('user:42', { wait: '5s' }, async (lease) => `export-${lease.fence}.csv`)
 * console.log(file)
 * await locks.close()
 * ```
 *
 * @throws {InvalidArgumentError} when an argument is not what it should be.
 */
export function createLimit(locks: Locks, name: string, options: LimitOptions): Limit {
  const settings = parseLimit(locks, name, options)
  const { rate } = settings
  const callOf = (
    key: string,
    terms: RunSettings,
  ): { readonly slots: Semaphore; readonly call: LimitCall; readonly teller: CallTeller } => {
    const slots = locks.semaphore(slotsKeyOf(name, key, rate), settings.concurrency)
    const call: LimitCall = { key, slotsKey: slots.key, terms, begunAt: performance.now() }
    return { slots, call, teller: new CallTeller(name, key, call.begunAt) }
  }
  // If the window is known to refuse the call, the call takes no slot and asks no store.
  const refusedFor = async (slots: Semaphore, { key, terms }: LimitCall): Promise<number | undefined> => {
    if (!(rate instanceof WindowLimiter) || terms.signal?.aborted === true) return undefined
    const refusedMs = rate.refusesMs(key, terms.points)
    if (refusedMs === undefined || refusedMs <= terms.waitMs) return undefined
    await checkSlot(slots, terms)
    return refusedMs
  }
  return {
    async run<T>(key: string, ...rest: WorkArguments<RunOptions, LimitWork<T>>) {
      const [options = {}, work] = splitWork(rest)
      checkWork(work)
      const terms = parseRun(options, settings, RUN_TAKES)
      const { slots, call, teller } = callOf(key, terms)
      const retryAfterMs = await refusedFor(slots, call)
      if (retryAfterMs !== undefined) {
        teller.refused('rate')
        throw tooMany(call, retryAfterMs)
      }
      // The slot first, so that no point is spent on a call that gets no slot. A call that waits for the window in its slot
      // delays no other call that costs as many points, because that needs them of the same window.
      let hasSlot = false
      try {
        return await slots.withPermits(
          { ...terms.hold, ...WAITING_SLOT, wait: terms.waitMs },
          async (lease) => {
            hasSlot = true
            if (rate !== undefined) await told({ ...call, rate, lease }, teller)
            return begin(work, lease, terms, teller)
          },
        )
      } catch (error) {
        // Not the limit's own: a time-out of a lock that the work takes, or one that the caller's signal passes on.
        const isForeign = hasSlot || error === terms.signal?.reason
        if (isHoldfastError(error, 'acquire-timeout') && !isForeign) teller.refused('concurrency')
        if (isForeign || !isHoldfastError(error, 'acquire-timeout')) throw error
        throw noSlot(error, settings.concurrency, terms.waitMs)
      }
    },
    async tryRun<T>(key: string, ...rest: WorkArguments<TryRunOptions, LimitWork<T>>) {
      const [options = {}, work] = splitWork(rest)
      checkWork(work)
      const terms = parseRun(options, settings, TRY_TAKES)
      const { slots, call, teller } = callOf(key, terms)
      const retryAfterMs = await refusedFor(slots, call)
      if (retryAfterMs !== undefined) {
        teller.refused('rate')
        return { ran: false, reason: 'rate', retryAfterMs }
      }
      const outcome = await slots.tryWithPermits<LimitOutcome<T>>(
        { ...terms.hold, ...SLOT },
        async (lease) => {
          if (rate !== undefined) {
            const verdict = await consume({ ...call, rate, lease })
            if (!verdict.admitted) {
              teller.refused('rate')
              return { ran: false, reason: 'rate', retryAfterMs: verdict.retryAfterMs }
            }
          }
          return { ran: true, value: await begin(work, lease, terms, teller) }
        },
      )
      if (outcome.ran) return outcome.value
      teller.refused('concurrency')
      return { ran: false, reason: 'concurrency' }
    },
  }
}

/** Whatever the defaults of the locks are. A reentrant call would run without a slot of its own. */
const SLOT = { reentrant: false, minHold: 0, lockDelay: 0 } as const
const WAITING_SLOT = { ...SLOT, maxWaiting: Number.POSITIVE_INFINITY } as const

/** Throws if the options of the slot are wrong, or the locks are closed. The store is not asked, because the signal has aborted. */
async function checkSlot(slots: Semaphore, { hold }: RunSettings): Promise<void> {
  try {
    await slots.tryAcquire({ ...hold, signal: ABORTED })
  } catch (error) {
    if (error !== ABORTED.reason) throw error
  }
}

const ABORTED = AbortSignal.abort()

async function told(turn: Turn, teller: CallTeller): Promise<void> {
  try {
    await pass(turn)
  } catch (error) {
    // Not the reason of the caller's signal, which may be any error.
    if (isHoldfastError(error, 'start-timeout') && error !== turn.terms.signal?.reason) teller.refused('rate')
    throw error
  }
}

function noSlot(cause: AcquireTimeoutError, concurrency: number, waitMs: number): StartTimeoutError {
  const { key, waitedMs } = cause
  return new StartTimeoutError(
    `The work under ${JSON.stringify(key)} was not started: ${concurrency} calls have a slot, which is the most (\`concurrency\`), and none gave it back within ${waitMs} ms (\`wait\`).`,
    { key, waitedMs, cause },
  )
}

/** Reads the clocks and the signal: the slot or the caller may have gone while the limiter was asked, and timers are late. */
function begin<T>(work: LimitWork<T>, lease: Lease, { signal }: RunSettings, teller: CallTeller): Promise<T> {
  lease.assertHeld()
  signal?.throwIfAborted()
  return teller.run(() => work(lease))
}
