import {
  checkOptions,
  expected,
  LONGEST_KEY,
  parseCount,
  parseFunction,
  parseSignal,
} from '../base/arguments.ts'
import { type Duration, parseDuration, TTL_RANGE, WAIT_RANGE } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { HoldOptions, Locks, WaitOptions } from '../index.ts'
import type { RateLimiter } from './rate-limiter.ts'
import { WindowLimiter } from './sliding-window.ts'

/** A rate limit that the store of the locks counts: at most `points` in any stretch of time as long as `window`. */
export interface SlidingWindow {
  /** How many points there are for one key, from 1 to 1000. A call costs one, unless its own `points` say otherwise. */
  readonly points: number
  /**
   * How long a point is gone for once the store has given it, from 50 ms to 24 days. It must be longer than a request to the store takes,
   * by a tenth at least.
   */
  readonly window: Duration
}

/** Options of a limit. A wrong value is an {@link InvalidArgumentError}. */
export interface LimitOptions {
  /** How many calls for one key may run at once, over all processes. From 1 to 1,000,000. */
  readonly concurrency: number
  /**
   * How many calls for one key may begin within a window. Default: no rate limit.
   *
   * - `{ points: 10, window: '1m' }`: at most ten in any minute.
   * - A limiter of `rate-limiter-flexible`, with points, window and store of its own. It gets the key that `run` got. Its windows
   *   are fixed, so up to twice as many calls may begin where one window ends and the next begins.
   */
  readonly rate?: SlidingWindow | RateLimiter | undefined
  /**
   * How long `run` waits for its slot and its points together, from 0 to 24 days; `Infinity` is allowed. After that it throws
   * {@link StartTimeoutError}. Default: 60 s, whatever the `wait` of the locks is.
   */
  readonly wait?: Duration | undefined
}

/** Options of `tryRun`. `ttl`, `renew`, `maxHold` and `signal` are those of `locks.acquire`, for the lease on the slot. */
export interface TryRunOptions extends Pick<HoldOptions, 'ttl' | 'renew' | 'maxHold' | 'signal'> {
  /**
   * How many points this call costs: from 1 to the points of the window (or, if the limiter does not say them, to 1,000,000).
   * Only for a limit with a `rate`; without one it is an error. Default: 1.
   */
  readonly points?: number | undefined
}

/** Options of `run`: those of `tryRun`, and a `wait` of its own. Default of `wait`: that of the limit. */
export interface RunOptions extends TryRunOptions, Pick<WaitOptions, 'wait'> {}

export interface LimitSettings {
  readonly concurrency: number
  readonly rate: RateLimiter | undefined
  readonly waitMs: number
}

export interface RunSettings {
  readonly points: number
  readonly waitMs: number
  readonly signal: AbortSignal | undefined
  /** For the slot, which checks them. */
  readonly hold: Omit<TryRunOptions, 'points'>
}

export function parseLimit(locks: Locks, name: string, options: LimitOptions): LimitSettings {
  if (typeof locks?.semaphore !== 'function') {
    throw expected('locks', 'what createLocks or connect returns', locks)
  }
  if (typeof name !== 'string' || name === '' || name.length > LONGEST_NAME) {
    throw expected('name', `a string of 1 to ${LONGEST_NAME} characters`, name)
  }
  // The key in the store is `name:key`. If names had a `:`, a key that a user chooses could reach into another limit.
  if (name.includes(':'))
    throw expected('name', 'a text without `:`, because the key follows after a `:`', name)
  checkOptions(options, LIMIT)
  const { concurrency, rate, wait } = options
  return {
    concurrency: parseCount('concurrency', concurrency, { least: 1, most: MOST }),
    rate: rate === undefined ? undefined : parseRate(locks, name, rate),
    waitMs: parseWait(wait, 60_000),
  }
}

function parseRate(locks: Locks, name: string, rate: SlidingWindow | RateLimiter): RateLimiter {
  if (typeof (rate as RateLimiter | null)?.consume === 'function') return rate as RateLimiter
  const { points, window } = (rate ?? {}) as SlidingWindow
  if (window === undefined) {
    throw expected(
      'rate',
      "{ points, window } such as { points: 10, window: '1m' }, or a limiter of rate-limiter-flexible",
      rate,
    )
  }
  checkOptions(rate, WINDOW)
  return new WindowLimiter(locks, name, {
    points: parseCount('points', points, { least: 1, most: MOST_IN_WINDOW }),
    windowMs: parseDuration('window', window, TTL_RANGE),
  })
}

export function parseRun(
  options: RunOptions,
  { rate, waitMs }: LimitSettings,
  takes: ReadonlySet<string>,
): RunSettings {
  checkOptions(options, takes)
  const { points, wait, ...hold } = options
  if (points !== undefined && rate === undefined) {
    throw expected('points', 'left out where the limit has no `rate`', points)
  }
  return {
    points: points === undefined ? 1 : parseCount('points', points, { least: 1, most: rate?.points ?? MOST }),
    waitMs: takes.has('wait') ? parseWait(wait, waitMs) : 0,
    signal: parseSignal(hold.signal),
    hold,
  }
}

/** The key of the semaphore, which checks the rest. */
export function slotsKeyOf(name: string, key: unknown, rate: RateLimiter | undefined): string {
  if (typeof key !== 'string' || key === '')
    throw expected('key', 'a string with at least one character', key)
  // The key of a window is longer by one character than that of the slots.
  const longest = LONGEST_KEY - name.length - (rate instanceof WindowLimiter ? 2 : 1)
  if (key.length <= longest) return `${name}:${key}`
  throw new InvalidArgumentError(`Expected \`key\` to have at most ${longest} characters, got ${key.length}.`)
}

export function checkWork(work: unknown): void {
  parseFunction('work', work)
}

const TRY = ['ttl', 'renew', 'maxHold', 'signal', 'points'] as const
export const TRY_TAKES: ReadonlySet<string> = new Set<keyof TryRunOptions>(TRY)
export const RUN_TAKES: ReadonlySet<string> = new Set<keyof RunOptions>([...TRY, 'wait'])
const WINDOW: ReadonlySet<string> = new Set<keyof SlidingWindow>(['points', 'window'])
const LIMIT: ReadonlySet<string> = new Set<keyof LimitOptions>(['concurrency', 'rate', 'wait'])

/** Leaves room for the user's key behind it. */
const LONGEST_NAME = 200
const MOST = 1_000_000
/** The store keeps each of them, and the room of a key is read as a whole. */
const MOST_IN_WINDOW = 1000

function parseWait(wait: unknown, otherwiseMs: number): number {
  return wait === undefined ? otherwiseMs : parseDuration('wait', wait, WAIT_RANGE)
}
