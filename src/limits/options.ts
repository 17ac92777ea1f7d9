import { type Duration, parseDuration, show, WAIT_RANGE } from '../base/duration.ts'
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
  checkNames(options, LIMIT)
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
  checkNames(options, takes)
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

export function checkKey(key: unknown): asserts key is string {
  if (typeof key === 'string' && key !== '') return
  throw expected('key', 'a string with at least one character', key)
}

export function checkWork(work: unknown): void {
  if (typeof work !== 'function') throw expected('work', 'a function', work)
}

const TRY = ['ttl', 'renew', 'maxHold', 'signal', 'points'] as const
export const TRY_TAKES: ReadonlySet<string> = new Set<keyof TryRunOptions>(TRY)
export const RUN_TAKES: ReadonlySet<string> = new Set<keyof RunOptions>([...TRY, 'wait'])
const LIMIT: ReadonlySet<string> = new Set<keyof LimitOptions>(['concurrency', 'rate', 'wait'])

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

function checkNames(options: unknown, takes: ReadonlySet<string>): void {
  if (typeof options !== 'object' || options === null) throw expected('options', 'an object', options)
  for (const name of Object.keys(options)) {
    if (takes.has(name)) continue
    const known = [...takes].map((one) => `\`${one}\``).join(', ')
    throw new InvalidArgumentError(`Expected the options to be among ${known}, got \`${name}\`.`)
  }
}

function expected(name: string, what: string, value: unknown): InvalidArgumentError {
  return new InvalidArgumentError(`Expected \`${name}\` to be ${what}, got ${show(value)}.`)
}
