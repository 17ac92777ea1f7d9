/**
 * Every error Holdfast throws on purpose. All of them are {@link HoldfastError}s with a stable `code`, so a program
 * never has to read a message. Contention in a `try…` call and an ended lease in `release()` are values, not errors.
 *
 * An aborted wait rejects with the caller's own `signal.reason`, as everywhere else in Node.js.
 */

import { escaped, shortened } from './base/text.ts'

/** Stable codes; new ones may be added, none changes its meaning. */
export type HoldfastErrorCode =
  | 'acquire-timeout'
  | 'start-timeout'
  | 'lease-lost'
  | 'store-unavailable'
  | 'store-refused'
  | 'deadlock'
  | 'stale-fence'
  | 'conflict'
  | 'step-down'
  | 'invalid-argument'
  | 'closed'
  | 'queue-full'
  | 'task-failed'

export interface HoldfastErrorOptions {
  /** The key the error is about, if it is about one. */
  readonly key?: string | undefined
  readonly cause?: unknown
}

/** The base of every error of this library. */
export class HoldfastError extends Error {
  override readonly name: string = 'HoldfastError'
  readonly code: HoldfastErrorCode
  readonly key: string | undefined

  constructor(code: HoldfastErrorCode, message: string, options: HoldfastErrorOptions = {}) {
    // Keys, labels and reasons are other people's text. An error stays one short line in a log, whatever they hold.
    super(
      escaped(shortened(message, LONGEST_MESSAGE)),
      options.cause === undefined ? undefined : { cause: options.cause },
    )
    this.code = code
    this.key = options.key
  }
}

const LONGEST_MESSAGE = 4000

/** The key was not granted within `wait`. Nothing is held, and the place in the queue is given up. */
export class AcquireTimeoutError extends HoldfastError {
  override readonly name = 'AcquireTimeoutError'
  /** How long the call waited, in milliseconds. */
  readonly waitedMs: number
  /** How many tickets stood ahead when the store last answered; `undefined` when it never queued this one. */
  readonly ahead: number | undefined

  constructor(
    message: string,
    options: HoldfastErrorOptions & { waitedMs: number; ahead?: number | undefined },
  ) {
    super('acquire-timeout', message, options)
    this.waitedMs = options.waitedMs
    this.ahead = options.ahead
  }
}

/** A limit or a task queue did not start the work within `wait`. The work will not run. */
export class StartTimeoutError extends HoldfastError {
  override readonly name = 'StartTimeoutError'
  /** How long the call waited, in milliseconds. */
  readonly waitedMs: number
  /** Asking again sooner than this cannot succeed, in milliseconds. Known if a rate limit refused the call. */
  readonly retryAfterMs: number | undefined

  constructor(
    message: string,
    options: HoldfastErrorOptions & { waitedMs: number; retryAfterMs?: number | undefined },
  ) {
    super('start-timeout', message, options)
    this.waitedMs = options.waitedMs
    this.retryAfterMs = options.retryAfterMs
  }
}

/**
 * Why a lease is over. `released`: its own holder gave it back, or detached it. `expired`: its deadline passed without a renewal that the store
 * confirmed. `evicted`: somebody removed it on purpose. `store-reset`: the store no longer knew it before its time (a
 * restart without persistence, a flush, a lossy fail-over, a clock that jumped).
 */
export type LossReason = 'expired' | 'evicted' | 'store-reset' | 'released'

/** The limit of `evict`. A reason that another program wrote into the store may be longer. */
const LONGEST_REASON = 500

/** The lease is gone: stop writing, others may hold the key. */
export class LeaseLostError extends HoldfastError {
  override readonly name = 'LeaseLostError'
  readonly reason: LossReason
  /** The reason that was given to `evict`, 500 characters at most. `undefined` if the lease was lost for another reason. */
  readonly evictedBecause: string | undefined

  constructor(
    message: string,
    options: HoldfastErrorOptions & { reason: LossReason; evictedBecause?: string | undefined },
  ) {
    super('lease-lost', message, options)
    this.reason = options.reason
    this.evictedBecause = options.evictedBecause && shortened(options.evictedBecause, LONGEST_REASON)
  }
}

/**
 * The store could not be asked. `store-unavailable`: no answer, so the request may or may not have had an effect, and
 * asking again may help. `store-refused`: a definite no (wrong password, missing permission, not a database, read-only),
 * where asking again cannot help until somebody changes something.
 */
export class StoreError extends HoldfastError {
  override readonly name = 'StoreError'

  constructor(
    code: 'store-unavailable' | 'store-refused',
    message: string,
    options: HoldfastErrorOptions = {},
  ) {
    super(code, message, options)
  }
}

/** Waiting would never have ended: the caller itself holds the key, or holders in this process wait for one another. */
export class DeadlockError extends HoldfastError {
  override readonly name = 'DeadlockError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('deadlock', message, options)
  }
}

/** A resource refused a write because it has seen a higher fence: somebody else has held the key since. */
export class StaleFenceError extends HoldfastError {
  override readonly name = 'StaleFenceError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('stale-fence', message, options)
  }
}

/** Somebody else changed the row between the read and the write. Nothing was written. */
export class ConflictError extends HoldfastError {
  override readonly name = 'ConflictError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('conflict', message, options)
  }
}

/** The reason of a leader's `signal` when the leader is asked to go. It still holds the key. */
export class StepDownError extends HoldfastError {
  override readonly name = 'StepDownError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('step-down', message, options)
  }
}

/** The task queue has as many tasks waiting as it may have, so it took no other. */
export class QueueFullError extends HoldfastError {
  override readonly name = 'QueueFullError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('queue-full', message, options)
  }
}

/** Work did not end in its time, or ended without a result: a task, a job, a scheduled run, the work of a lock worker. */
export class TaskFailedError extends HoldfastError {
  override readonly name = 'TaskFailedError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('task-failed', message, options)
  }
}

/** An argument is not what the call takes. The message says what was expected and what came. */
export class InvalidArgumentError extends HoldfastError {
  override readonly name = 'InvalidArgumentError'
  /** `key` where a text cannot be a key: a program that makes its keys of requests answers 400. Else `undefined`. */
  readonly argument: 'key' | undefined

  constructor(
    message: string,
    options: HoldfastErrorOptions & { readonly argument?: 'key' | undefined } = {},
  ) {
    super('invalid-argument', message, options)
    this.argument = options.argument
  }
}

/** The object was closed (or is closing), so it takes no new work. */
export class ClosedError extends HoldfastError {
  override readonly name = 'ClosedError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('closed', message, options)
  }
}

/**
 * Whether a value is an error of this library, optionally with one particular code. Looks at the shape and not at the
 * class, so it also recognises errors of a second copy of the library in the same process.
 *
 * ```ts
 * import { isHoldfastError } from 'holdfast'
 *
 * export function isBusy(error: unknown): boolean {
 *   return isHoldfastError(error, 'acquire-timeout')
 * }
 * ```
 */
export function isHoldfastError(error: unknown, code?: HoldfastErrorCode): error is HoldfastError {
  try {
    if (!(error instanceof Error) || !('code' in error)) return false
    const { code: own } = error
    return typeof own === 'string' && codes.has(own) && (code === undefined || own === code)
  } catch {
    // Anything can be thrown, also what throws when it is looked at (a Proxy that was revoked).
    return false
  }
}

const codes: ReadonlySet<string> = new Set<HoldfastErrorCode>([
  'acquire-timeout',
  'start-timeout',
  'lease-lost',
  'store-unavailable',
  'store-refused',
  'deadlock',
  'stale-fence',
  'conflict',
  'step-down',
  'invalid-argument',
  'closed',
  'queue-full',
  'task-failed',
])
