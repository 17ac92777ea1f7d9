import { checkOptions, parseCount, parseFunction, parseSignal } from '../base/arguments.ts'
import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused, systemClock } from '../base/clock.ts'
import { type Duration, parseDuration, WAIT_RANGE } from '../base/duration.ts'
import { splitWork, type WorkArguments } from '../base/work.ts'
import { ConflictError, isHoldfastError } from '../errors.ts'
import { sqlStateOf } from '../postgres/executor.ts'

/** How often and for how long to try again. */
export interface RetryOptions {
  /** How often to try at most, the first time included. Default: 10. */
  readonly attempts?: number | undefined
  /** How long to go on at most; an attempt that runs is not cut short. Default: 10 s, and Infinity is allowed. */
  readonly wait?: Duration | undefined
  /** Gives up between two attempts, with the signal's own reason. */
  readonly signal?: AbortSignal | undefined
}

/** What may collide. Attempts are counted from 1. */
export type RetriedWork<T> = (attempt: number) => T | Promise<T>

export interface RetrySettings {
  readonly attempts: number
  readonly waitMs: number
  readonly signal: AbortSignal | undefined
}

/**
 * Runs work, and runs it again from its beginning after each conflict. A conflict is a serialization failure (40001), a deadlock
 * (40P01), or a {@link ConflictError}. Between two attempts it pauses for a random part of 10 ms, 20 ms, 40 ms, … up to a
 * second.
 *
 * The work must begin its transaction itself, and have no effect outside of it.
 *
 * ```ts
 * import { retryOnConflict } from 'holdfast/optimistic'
 * import postgres from 'postgres'
 *
 * const sql = postgres()
 * await retryOnConflict(() =>
 *   sql.begin('isolation level serializable', async (tx) => {
 *     const [row] = await tx`select count(*)::int as taken from booking where room = 5`
 *     if (row?.['taken'] === 0) await tx`insert into booking (room) values (5)`
 *   }),
 * )
 * ```
 *
 * @throws {ConflictError} when every attempt collided; the message says how many there were, `cause` is the last.
 */
export function retryOnConflict<T>(work: RetriedWork<T>): Promise<T>
export function retryOnConflict<T>(options: RetryOptions | undefined, work: RetriedWork<T>): Promise<T>
export function retryOnConflict<T>(...rest: WorkArguments<RetryOptions, RetriedWork<T>>): Promise<T> {
  const [options = {}, work] = splitWork(rest)
  parseFunction('work', work)
  return retry(work, parseRetryOptions(options), isConflict)
}

/** Rejects with what the work threw, unless that was a conflict; then it tries again as far as the settings allow. */
export async function retry<T>(
  work: RetriedWork<T>,
  { attempts, waitMs, signal }: RetrySettings,
  mayRetry: (error: unknown) => boolean,
): Promise<T> {
  const startedAt = performance.now()
  for (let attempt = 1; ; attempt += 1) {
    signal?.throwIfAborted()
    try {
      return await work(attempt)
    } catch (error) {
      if (!mayRetry(error)) throw error
      const pauseMs = backoffMs(PAUSES, attempt)
      const spentMs = performance.now() - startedAt
      if (attempt === attempts || spentMs + pauseMs > waitMs) throw exhausted(attempt, spentMs, error)
      await paused(systemClock, pauseMs, signal)
    }
  }
}

export function isConflict(error: unknown): boolean {
  return isHoldfastError(error, 'conflict') || isSqlConflict(error)
}

/** What PostgreSQL calls a serialization failure, and a deadlock: it has undone everything, and trying again may help. */
export function isSqlConflict(error: unknown): boolean {
  const state = sqlStateOf(error)
  return state === '40001' || state === '40P01'
}

/** Full jitter: those who collided once would otherwise meet again, at every step. */
const PAUSES: Backoff = { firstMs: 10, longestMs: 1000, jitter: 1 }

export const RETRY_OPTIONS: readonly string[] = ['attempts', 'wait', 'signal']

/** @throws {InvalidArgumentError} also for options that are not known: a misspelt bound would be no bound. */
export function parseRetryOptions(options: object, known: readonly string[] = RETRY_OPTIONS): RetrySettings {
  checkOptions(options, known)
  const { attempts = 10, wait = 10_000, signal } = options as RetryOptions
  return {
    attempts: parseCount('attempts', attempts, { least: 1, most: Number.POSITIVE_INFINITY }),
    waitMs: parseDuration('wait', wait, WAIT_RANGE),
    signal: parseSignal(signal),
  }
}

function exhausted(attempts: number, spentMs: number, error: unknown): ConflictError {
  const times = attempts === 1 ? 'once' : `${attempts} times`
  return new ConflictError(
    `Somebody else changed it first, ${times} in ${Math.round(spentMs)} ms. Nothing was written: allow more \`attempts\` or a longer \`wait\`, ` +
      'or take a lock where many write to the same row.',
    { cause: error },
  )
}
