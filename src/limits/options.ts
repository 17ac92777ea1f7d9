import { checkOptions, expected, parseCount, parseFunction } from '../base/arguments.ts'
import { type Duration, parseDuration, TTL_RANGE, WAIT_RANGE } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { HoldOptions, Locks, WaitOptions } from '../index.ts'
import type { RateLimiter } from './rate-limiter.ts'
import { slidingWindow } from './sliding-window.ts'

/** At most so many points in any stretch of time of that length, counted by the store of the locks. */
export interface SlidingWindow {
  /** 1 to 1000; each call costs one, if its `points` do not say otherwise. */
  readonly points: number
  /** From 50 ms to 24 days. */
  readonly window: Duration
}

export interface LimitOptions {
  /** How many may run at once for one key, over all processes. */
  readonly concurrency: number
  /**
   * How many may begin within a window for one key. `{ points: 10, window: '1m' }`: at most ten in any minute. Or a limiter of
   * `rate-limiter-flexible`, whose points, window and store are its own, and whose key is the one that `run` is given. Its windows
   * are fixed, so up to twice as many may begin at the edge of two. Default: as many as there is room for.
   */
  readonly rate?: SlidingWindow | RateLimiter | undefined
  /** How long a `run` waits for its slot and its window together. Default: 30 s, whatever the locks say. */
  readonly wait?: Duration | undefined
}

export interface TryRunOptions extends Pick<HoldOptions, 'ttl' | 'renew' | 'maxHold' | 'signal'> {
  /** How many points of the rate limiter this one costs. Default: 1. */
  readonly points?: number | undefined
}

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
  // Whoever may choose a key, such as a user a name, could choose one that begins with the rest of another limit's name.
  if (name.includes(':')) throw expected('name', 'a text without `:`, which ends it', name)
  checkOptions(options, LIMIT)
  const { concurrency, rate, wait } = options
  return {
    concurrency: parseCount('concurrency', concurrency, { least: 1, most: MOST }),
    rate: rate === undefined ? undefined : parseRate(locks, name, rate),
    waitMs: parseWait(wait, 30_000),
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
  return slidingWindow(locks, name, {
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
    signal: hold.signal,
    hold,
  }
}

/** The name of the semaphore, which checks the rest. */
export function slotsKeyOf(name: string, key: unknown): string {
  if (typeof key !== 'string' || key === '')
    throw expected('key', 'a string with at least one character', key)
  const longest = LONGEST_KEY - name.length - 1
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

/** As for every lock. */
const LONGEST_KEY = 1024
/** Leaves room for the user's key behind it. */
const LONGEST_NAME = 200
const MOST = 1_000_000
/** The store keeps each of them, and the room of a key is read as a whole. */
const MOST_IN_WINDOW = 1000

function parseWait(wait: unknown, otherwiseMs: number): number {
  return wait === undefined ? otherwiseMs : parseDuration('wait', wait, WAIT_RANGE)
}
