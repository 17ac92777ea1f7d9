import { type Duration, parseDuration, show, WAIT_RANGE } from '../base/duration.ts'
import { checkOptions } from '../base/options.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { HoldOptions, Locks, WaitOptions } from '../index.ts'
import type { RateLimiter } from './rate.ts'

export interface LimitOptions {
  /** How many may run at once for one key, over all processes. */
  readonly concurrency: number
  /**
   * How many may begin within a window for one key: a limiter of `rate-limiter-flexible`, whose points, window and store are
   * its own. Its key is the one that `run` is given. Default: as many as there is room for.
   */
  readonly rate?: RateLimiter | undefined
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
  if (rate !== undefined && typeof rate?.consume !== 'function') {
    throw expected('rate', 'a limiter of rate-limiter-flexible, such as new RateLimiterRedis(…)', rate)
  }
  return {
    concurrency: parseCount('concurrency', concurrency, MOST),
    rate,
    waitMs: parseWait(wait, 30_000),
  }
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
    points: points === undefined ? 1 : parseCount('points', points, rate?.points ?? MOST),
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
  if (typeof work !== 'function') throw expected('work', 'a function', work)
}

const TRY = ['ttl', 'renew', 'maxHold', 'signal', 'points'] as const
export const TRY_TAKES: ReadonlySet<string> = new Set<keyof TryRunOptions>(TRY)
export const RUN_TAKES: ReadonlySet<string> = new Set<keyof RunOptions>([...TRY, 'wait'])
const LIMIT: ReadonlySet<string> = new Set<keyof LimitOptions>(['concurrency', 'rate', 'wait'])

/** As for every lock. */
const LONGEST_KEY = 1024
/** Leaves room for the user's key behind it. */
const LONGEST_NAME = 200
const MOST = 1_000_000

function parseWait(wait: unknown, otherwiseMs: number): number {
  return wait === undefined ? otherwiseMs : parseDuration('wait', wait, WAIT_RANGE)
}

function parseCount(name: string, value: unknown, most: number): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= most) return value
  throw expected(name, `a whole number from 1 to ${most}`, value)
}

function expected(name: string, what: string, value: unknown): InvalidArgumentError {
  return new InvalidArgumentError(`Expected \`${name}\` to be ${what}, got ${show(value)}.`)
}
