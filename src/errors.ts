/**
 * Every error that Holdfast throws on purpose. All of them are {@link HoldfastError}s with a stable `code`, so a program
 * never has to read a message. Two things are no errors: a busy key in a `try…` call, and `release()` of a lease that is
 * over.
 *
 * An aborted wait rejects with the caller's own `signal.reason`, as in Node.js.
 */

import { milliseconds } from './base/diagnosis.ts'
import { type Owner, ownerName } from './base/owner.ts'
import { escaped, shortened } from './base/text.ts'

/** Of every copy of this library. */
const OURS: unique symbol = Symbol.for('holdfast error')

/** Stable codes. A later version may add codes, and never changes the meaning of one. */
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
  | 'idempotency-key'

/** What every error of Holdfast may be made with. */
export interface HoldfastErrorOptions {
  /** What the error is about: the key of a lock, the group of a task, the resource of a guard, or the id of a job. */
  readonly key?: string | undefined
  /** The error that led to this one, such as that of the store's client. */
  readonly cause?: unknown
}

/** The base of every error of this library. */
export class HoldfastError extends Error {
  /** The name of the class, which logs and `error.toString()` show. */
  override readonly name: string = 'HoldfastError'
  /** Says what happened, and never changes its meaning. Branch on `code` and not on the message. */
  readonly code: HoldfastErrorCode
  /** What the error is about: the key of a lock, the group of a task, the resource of a guard, or the id of a job. */
  readonly key: string | undefined

  constructor(code: HoldfastErrorCode, message: string, options: HoldfastErrorOptions = {}) {
    // Keys, labels and reasons are foreign text. Whatever they contain, an error stays one short line in a log.
    super(
      escaped(shortened(message, LONGEST_MESSAGE)),
      options.cause === undefined ? undefined : { cause: options.cause },
    )
    this.code = code
    this.key = options.key
  }

  static {
    Object.defineProperty(HoldfastError.prototype, OURS, { value: true })
    Object.defineProperty(HoldfastError, Symbol.hasInstance, { value: isInstance })
  }
}

/**
 * What `instanceof` asks. The code and not the prototype, because a process may have loaded the library twice, by `import` and by
 * `require`. A subclass that a program has made has the instances that it made.
 */
function isInstance(this: ErrorClass, error: unknown): boolean {
  if (Function.prototype[Symbol.hasInstance].call(this, error)) return true
  if (!isHoldfastError(error) || !(OURS in error)) return false
  return this === HoldfastError || this === classes[error.code]
}

// biome-ignore lint/suspicious/noExplicitAny: the constructors take different arguments, and none is called.
type ErrorClass = abstract new (...args: any[]) => HoldfastError

const LONGEST_MESSAGE = 4000

/** Who holds a key that a call waited for. */
export interface KeyHolder {
  /** The process that holds the key. */
  readonly owner: Owner
  /** How long it has held the key, in milliseconds. */
  readonly heldMs: number
  /** How many others hold the key, too: of a semaphore or a read lock. */
  readonly others: number
}

/** The key was not granted within `wait`. Nothing is held, and the place in the queue is given up. */
export class AcquireTimeoutError extends HoldfastError {
  override readonly name = 'AcquireTimeoutError'
  /** How long the call waited, in milliseconds. */
  readonly waitedMs: number
  /** How many tickets were ahead when the store last answered. `undefined` if the store never queued this ticket. */
  readonly ahead: number | undefined
  /** Who held the key when the call gave up, as the message says. `undefined` if the call did not wait, or could not learn it. */
  readonly holder: KeyHolder | undefined

  constructor(
    message: string,
    options: HoldfastErrorOptions & {
      waitedMs: number
      ahead?: number | undefined
      holder?: KeyHolder | undefined
    },
  ) {
    super('acquire-timeout', `${message}${heldBy(options.holder)}`, options)
    this.waitedMs = options.waitedMs
    this.ahead = options.ahead
    this.holder = options.holder
  }
}

/** The message of such an error for a stranger, who must not learn the names of hosts and processes. */
export function withoutHolder({ message, holder }: AcquireTimeoutError): string {
  const sentence = escaped(heldBy(holder))
  return message.endsWith(sentence) ? message.slice(0, message.length - sentence.length) : message
}

function heldBy(holder: KeyHolder | undefined): string {
  if (holder === undefined) return ''
  const { owner, heldMs, others } = holder
  const more = others === 0 ? '' : others === 1 ? ' and 1 other' : ` and ${others} others`
  const name = shortened(ownerName(owner), LONGEST_NAME)
  return ` The key has been held for ${milliseconds(heldMs)} by ${name}${more}.`
}

/** The host and the label are foreign text. */
const LONGEST_NAME = 300

/** A limit or a task queue did not start the work within `wait`. The work will not run. */
export class StartTimeoutError extends HoldfastError {
  override readonly name = 'StartTimeoutError'
  /** How long the call waited, in milliseconds. */
  readonly waitedMs: number
  /** A call within this many milliseconds cannot succeed. `undefined` unless a rate limit refused this one. */
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
 * Why a lease is over.
 *
 * - `released`: its own holder released or detached it.
 * - `expired`: its deadline passed before the store confirmed a renewal, or its `maxHold` was over.
 * - `evicted`: somebody removed it on purpose.
 * - `store-reset`: the store forgot it before its time. The store restarted without its data, was flushed, failed over with
 *   a loss, or its clock jumped.
 */
export type LossReason = 'expired' | 'evicted' | 'store-reset' | 'released'

/** The most characters of the reason that `evict` takes. A reason that another program wrote into the store may be longer. */
export const LONGEST_REASON = 500

/** The lease is over, and others may hold the key. Stop writing. */
export class LeaseLostError extends HoldfastError {
  override readonly name = 'LeaseLostError'
  /** Why the lease is over. */
  readonly reason: LossReason
  /** The reason that the caller of `evict` gave, at most 500 characters. `undefined` unless `reason` is `evicted`. */
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
 * A request to the store failed.
 *
 * - `store-unavailable`: no answer came. The request may or may not have had an effect, and a retry may help.
 * - `store-refused`: a definite no, such as a wrong password, a missing permission, or a file that is not a database. A retry
 *   cannot help until somebody changes something.
 *
 * A read-only server is `store-unavailable`, because a fail-over may be under way. On Redis it is `store-refused` after three
 * seconds, and in `holdfast/guard` at once.
 */
export class StoreError extends HoldfastError {
  override readonly name = 'StoreError'
  /** A request within this many milliseconds cannot succeed. `undefined` unless the store knows that. */
  readonly retryAfterMs: number | undefined

  constructor(
    code: 'store-unavailable' | 'store-refused',
    message: string,
    options: HoldfastErrorOptions & { retryAfterMs?: number | undefined } = {},
  ) {
    super(code, message, options)
    this.retryAfterMs = options.retryAfterMs
  }
}

/** The wait would never end: the caller itself holds the key, or calls in this process wait for one another in a circle. */
export class DeadlockError extends HoldfastError {
  override readonly name = 'DeadlockError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('deadlock', message, options)
  }
}

/** A resource refused a write because it has seen a higher fence: another holder has had the key since. */
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

/** The reason of a leader's `signal` when the leader is asked to step down. The leader still holds the key. */
export class StepDownError extends HoldfastError {
  override readonly name = 'StepDownError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('step-down', message, options)
  }
}

/** Too many wait already: `maxWaiting` calls for a key, or `maxQueueSize` tasks of a task queue. This one was not added. */
export class QueueFullError extends HoldfastError {
  override readonly name = 'QueueFullError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('queue-full', message, options)
  }
}

/** A task, job, scheduled run or lock worker's work exceeded its time, or ended without a result. */
export class TaskFailedError extends HoldfastError {
  override readonly name = 'TaskFailedError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('task-failed', message, options)
  }
}

/** A request with an Idempotency-Key cannot be answered; see `reason`. Its handler did not run. */
export class IdempotencyKeyError extends HoldfastError {
  override readonly name = 'IdempotencyKeyError'
  /**
   * - `missing`: the request has no key, and needs one.
   * - `malformed`: the header is no key.
   * - `other-request`: the key came before, with another method, URL or body.
   * - `running`: the first request with this key is not answered yet.
   * - `answer-not-kept`: the first request was answered, and its answer was too long to be kept.
   */
  readonly reason: 'missing' | 'malformed' | 'other-request' | 'running' | 'answer-not-kept'

  constructor(
    message: string,
    options: HoldfastErrorOptions & { readonly reason: IdempotencyKeyError['reason'] },
  ) {
    super('idempotency-key', message, options)
    this.reason = options.reason
  }
}

/** An argument is not what the call takes. The message says what was expected and what came. */
export class InvalidArgumentError extends HoldfastError {
  override readonly name = 'InvalidArgumentError'
  /** `key` if the text cannot be a key, so that a server whose keys come from requests can answer 400. Else `undefined`. */
  readonly argument: 'key' | undefined

  constructor(
    message: string,
    options: HoldfastErrorOptions & { readonly argument?: 'key' | undefined } = {},
  ) {
    super('invalid-argument', message, options)
    this.argument = options.argument
  }
}

/** The object was closed or is closing, so it takes no new work. */
export class ClosedError extends HoldfastError {
  override readonly name = 'ClosedError'

  constructor(message: string, options: HoldfastErrorOptions = {}) {
    super('closed', message, options)
  }
}

/** The class of each code. `StoreError` is the only class with two codes. */
export interface HoldfastErrorClasses {
  /** The key was not free within `wait`. */
  readonly 'acquire-timeout': AcquireTimeoutError
  /** A limit or a task queue did not start the work within `wait`. */
  readonly 'start-timeout': StartTimeoutError
  /** The lease is over, and others may hold the key. */
  readonly 'lease-lost': LeaseLostError
  /** The store did not answer. The request may or may not have had an effect. */
  readonly 'store-unavailable': StoreError
  /** The store answered with a definite no. */
  readonly 'store-refused': StoreError
  /** The wait would never end. */
  readonly deadlock: DeadlockError
  /** A resource has seen a higher fence. */
  readonly 'stale-fence': StaleFenceError
  /** Somebody else changed the row first. */
  readonly conflict: ConflictError
  /** A leader was asked to step down. */
  readonly 'step-down': StepDownError
  /** An argument is not what the call takes. */
  readonly 'invalid-argument': InvalidArgumentError
  /** The object takes no new work. */
  readonly closed: ClosedError
  /** The task queue takes no further task. */
  readonly 'queue-full': QueueFullError
  /** Work exceeded its time, or ended without a result. */
  readonly 'task-failed': TaskFailedError
  /** A request with an Idempotency-Key cannot be answered. */
  readonly 'idempotency-key': IdempotencyKeyError
}

/**
 * Whether a value is an error of this library. With a code: whether it is an error with this code, which then has the type of
 * the code's class. It checks the shape and not the class, so it also recognises errors of a second copy of the library in
 * the same process.
 *
 * ```ts
 * import { isHoldfastError } from 'holdfast'
 *
 * export function waitedMsOf(error: unknown): number | undefined {
 *   return isHoldfastError(error, 'acquire-timeout') ? error.waitedMs : undefined
 * }
 * ```
 */
export function isHoldfastError(error: unknown): error is HoldfastError
export function isHoldfastError<Code extends HoldfastErrorCode>(
  error: unknown,
  code: Code,
): error is HoldfastErrorClasses[Code]
export function isHoldfastError(error: unknown, code?: HoldfastErrorCode): boolean {
  try {
    if (!(error instanceof Error) || !('code' in error)) return false
    const { code: own } = error
    return typeof own === 'string' && Object.hasOwn(classes, own) && (code === undefined || own === code)
  } catch {
    // A program can throw any value, also one that throws when it is read (a revoked Proxy).
    return false
  }
}

const classes: Readonly<Record<HoldfastErrorCode, ErrorClass>> = {
  'acquire-timeout': AcquireTimeoutError,
  'start-timeout': StartTimeoutError,
  'lease-lost': LeaseLostError,
  'store-unavailable': StoreError,
  'store-refused': StoreError,
  deadlock: DeadlockError,
  'stale-fence': StaleFenceError,
  conflict: ConflictError,
  'step-down': StepDownError,
  'invalid-argument': InvalidArgumentError,
  closed: ClosedError,
  'queue-full': QueueFullError,
  'task-failed': TaskFailedError,
  'idempotency-key': IdempotencyKeyError,
}
