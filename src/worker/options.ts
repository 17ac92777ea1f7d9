import { checkOptions, expected, parseFunction } from '../base/arguments.ts'
import {
  type Duration,
  type DurationRange,
  HOLD_RANGE,
  parseDuration,
  TTL_RANGE,
  WAIT_RANGE,
} from '../base/duration.ts'
import { callListener } from '../base/listener.ts'
import { reportOf } from '../base/thrown.ts'
import { isHoldfastError } from '../errors.ts'
import type { HoldOptions, Lease } from '../index.ts'
import type { Doing, StopReason, WorkerTerm } from './term.ts'

/** Where the timers of a worker come from: XState's own `SimulatedClock` in a test, `setTimeout` otherwise. */
export interface WorkerClock {
  /** Calls `fire` once after `delayMs` milliseconds. Returns what `clearTimeout` takes. */
  setTimeout(fire: () => void, delayMs: number): unknown
  /** Prevents the call. */
  clearTimeout(timer: never): void
}

/** `ttl`, `maxHold`, `minHold` and `lockDelay` are those of `locks.acquire`, and default to those of `createLocks`. */
export interface LockWorkerOptions extends Pick<HoldOptions, 'ttl' | 'maxHold' | 'minHold' | 'lockDelay'> {
  /**
   * Starts the work. Called once per term, when the key is held. It is not called again before the work of the last term has
   * ended in this process. Its promise is awaited. Once that has resolved, the work counts as started, and runs in the background
   * until `stop` is called. If it throws, the key is released, and the worker tries again after a pause. `stop` is not called.
   */
  readonly start: (lease: Lease, term: WorkerTerm) => unknown
  /**
   * Ends the work, and resolves when no part of it runs any more. Called once for each `start` that succeeded. With `lost`, another
   * process may hold the key already. With `stopped` and `failed`, the key is held and renewed until the promise has resolved.
   */
  readonly stop: (reason: StopReason, lease: Lease) => unknown
  /**
   * Called with each failure. The worker goes on by itself, except if the locks are closed, or refuse these options
   * (`invalid-argument`). Then it is stopped. Default: a process warning.
   */
  readonly onError?: ((error: unknown, context: { key: string; during: Doing }) => void) | undefined
  /**
   * How long the work may take to end. After that the key is no longer renewed, so it expires within the ttl, and `stop()`
   * resolves. The worker starts nothing again before that work has ended. Default: 10 s.
   */
  readonly grace?: Duration | undefined
  /** The pause after a loss or a failure; it doubles with each failure in a row, up to `maxBackoff`. Default: 1 s. */
  readonly backoff?: Duration | undefined
  /** Default: 30 s. */
  readonly maxBackoff?: Duration | undefined
  /** Default: `setTimeout`. */
  readonly clock?: WorkerClock | undefined
}

export interface LockWorkerSettings {
  readonly hold: Pick<HoldOptions, 'ttl' | 'maxHold' | 'minHold' | 'lockDelay'>
  readonly start: LockWorkerOptions['start']
  readonly stop: LockWorkerOptions['stop']
  readonly onError: NonNullable<LockWorkerOptions['onError']>
  readonly graceMs: number
  readonly backoffMs: number
  readonly maxBackoffMs: number
  readonly clock: WorkerClock | undefined
}

export function parseOptions(options: LockWorkerOptions): LockWorkerSettings {
  checkOptions(options, NAMES)
  const { ttl, maxHold, minHold, lockDelay, start, stop, onError, clock } = options
  const backoffMs = durationOr('backoff', options.backoff, PAUSE_RANGE, 1000)
  const maxBackoffMs = durationOr('maxBackoff', options.maxBackoff, PAUSE_RANGE, Math.max(30_000, backoffMs))
  if (maxBackoffMs < backoffMs) {
    throw expected('maxBackoff', `at least as long as \`backoff\` (${backoffMs} ms)`, options.maxBackoff)
  }
  if (clock !== undefined) parseFunction('clock.setTimeout', clock?.setTimeout)
  return {
    hold: {
      ...given('ttl', ttl, TTL_RANGE),
      ...given('maxHold', maxHold, TTL_RANGE),
      ...given('minHold', minHold, HOLD_RANGE),
      ...given('lockDelay', lockDelay, HOLD_RANGE),
    },
    start: parseFunction('start', start),
    stop: parseFunction('stop', stop),
    onError: guarded(onError === undefined ? warnOfError : parseFunction('onError', onError)),
    graceMs: durationOr('grace', options.grace, HOLD_RANGE, 10_000),
    backoffMs,
    maxBackoffMs,
    clock,
  }
}

export function warn(message: string, error: unknown): void {
  process.emitWarning(message, {
    type: 'HoldfastWarning',
    code: 'HOLDFAST_WORKER',
    detail: reportOf(error),
  })
}

/** Without a pause, a store that is away would be asked without end. */
const PAUSE_RANGE: DurationRange = { ...WAIT_RANGE, leastMs: 10, endless: false }

const NAMES: ReadonlySet<string> = new Set<keyof LockWorkerOptions>([
  'start',
  'stop',
  'onError',
  'ttl',
  'maxHold',
  'minHold',
  'lockDelay',
  'grace',
  'backoff',
  'maxBackoff',
  'clock',
])

function durationOr(name: string, value: unknown, range: DurationRange, otherwiseMs: number): number {
  return value === undefined ? otherwiseMs : parseDuration(name, value, range)
}

/** Nothing where nothing was given, so that the default of the locks stays. */
function given(name: string, value: unknown, range: DurationRange): Readonly<Record<string, number>> {
  return value === undefined ? {} : { [name]: parseDuration(name, value, range) }
}

function guarded(onError: NonNullable<LockWorkerOptions['onError']>): typeof onError {
  return (error, context) => {
    callListener(
      () => onError(error, context),
      (ownError) => warn('`onError` of a worker itself failed.', ownError),
    )
  }
}

function warnOfError(error: unknown, { key, during }: { key: string; during: Doing }): void {
  warn(
    `The worker on ${JSON.stringify(key)} ${FAILED[during]}${outlookOf(error, during)} See \`onError\`.`,
    error,
  )
}

/** Empty if that depends on more than this failure: the worker may have been told to stop. */
function outlookOf(error: unknown, during: Doing): string {
  if (during === 'hold') return isHoldfastError(error, 'closed') ? ' It is stopped.' : ''
  if (during !== 'acquire') return ''
  return isHoldfastError(error, 'invalid-argument') ? ' It is stopped.' : ' It goes on by itself.'
}

const FAILED: Readonly<Record<Doing, string>> = {
  acquire: 'could not ask for its key.',
  hold: 'lost its key.',
  start: 'could not start its work.',
  work: 'was told that its work failed.',
  stop: 'could not end its work.',
}
