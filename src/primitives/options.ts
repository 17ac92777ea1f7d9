import { checkOptions, expected, LONGEST_KEY, parseCount, parseFlag, parseSignal } from '../base/arguments.ts'
import { type Duration, HOLD_RANGE, parseDuration, show, TTL_RANGE, WAIT_RANGE } from '../base/duration.ts'
import { UNLIMITED } from '../contract/store.ts'
import { patienceFor, ttlFields } from '../engine/ticket-fields.ts'
import { InvalidArgumentError, LONGEST_REASON } from '../errors.ts'

/** How a key is held. All of them but `signal` may be set for all calls in `createLocks(store, …)`. */
export interface HoldOptions {
  /**
   * How long the store keeps the key without a renewal: what a crash of this process costs the next holder. The lease is
   * renewed at a third of it. From 50 ms to 24 days. Default: 30 s.
   */
  readonly ttl?: Duration | undefined
  /** Whether to renew in the background. `false`: the lease is lost after `ttl`. Default: true. */
  readonly renew?: boolean | undefined
  /**
   * The lease ends after this long (`expired`): its signal aborts, and the callback forms reject with a {@link LeaseLostError}.
   * The key is free when the work ends, at the latest one `ttl` later. Default: no end.
   */
  readonly maxHold?: Duration | undefined
  /**
   * Keep the key taken for at least this long, even when it is released sooner ("at least for"). Refused for several keys
   * at once. Default: 0.
   */
  readonly minHold?: Duration | undefined
  /** After an expiry (a crash, not a release) nobody gets the key for this long. Default: 0. */
  readonly lockDelay?: Duration | undefined
  /**
   * How long to wait for a store that gives no answer. After that the call rejects with a {@link StoreError},
   * `store-unavailable`, although `wait` may not be over. From 50 ms to 24 days. Default: as long as `wait` for a call that waits
   * for the key, and 5 s for a call that does not. If it is set, a call that does not wait for the key waits as long also where no
   * server is there (nothing listens, the host is unknown, or there is no route), and for new Redlock servers, which can grant
   * nothing yet. Otherwise such a call fails at once there.
   */
  readonly storeTimeout?: Duration | undefined
  /** Ends the wait: the call rejects with `signal.reason`. A lease that is held already is not affected. */
  readonly signal?: AbortSignal | undefined
}

/** How to continue a lease. What comes after its end was agreed with the store when the key was taken. */
export interface AdoptOptions extends Omit<HoldOptions, 'minHold' | 'lockDelay'> {}

/** How to hold a key, and how long to wait for it. */
export interface WaitOptions extends HoldOptions {
  /**
   * How long to wait for the key. With 0 the call does not queue, with `Infinity` it waits for ever. If the store does not
   * answer, the call waits for it at least 500 ms (with 0: 5 s), because the key may be free. Default: 60 s, which is longer than
   * the death of a holder with the default `ttl` costs on any store.
   */
  readonly wait?: Duration | undefined
  /**
   * How many calls may wait for this key, this one included. If so many wait already, in any process, the call gives up its
   * place at once and rejects with a {@link QueueFullError}. From 1 on. Default: no limit.
   *
   * The store counts when the call arrives, so never more than this many keep waiting. If many arrive in the same moment, a call
   * may be refused because of another one that is being refused itself. On redlock the servers may count differently.
   */
  readonly maxWaiting?: number | undefined
}

/** How to run work while a key is held. */
export interface CallbackOptions extends WaitOptions {
  /**
   * When the calling async context holds the key already, run under that lease instead of throwing a `DeadlockError`.
   * The outer call then gives the key back only when all such inner calls are done, also those that nobody awaited.
   * Default: false.
   */
  readonly reentrant?: boolean | undefined
}

/** How to run work if the key is free. */
export interface TryCallbackOptions extends HoldOptions {
  /** As in {@link CallbackOptions}. Default: false. */
  readonly reentrant?: boolean | undefined
}

/** What is common to all keys of one `createLocks`. */
export interface LocksOptions extends Omit<CallbackOptions, 'signal'> {
  /** Names this process in `inspect`, beside its host and process id. At most 500 characters. */
  readonly label?: string | undefined
}

/** What a ticket takes of its key; see the law. */
export interface Shape {
  readonly units: number
  readonly limit: number
}

export const EXCLUSIVE: Shape = { units: 1, limit: 1 }
/** In another order than the other shape: else V8 would keep every limit as large as this one, as an object for each ticket. */
export const SHARED: Shape = { limit: UNLIMITED, units: 1 }

/** Options with everything decided, in milliseconds. */
export interface HoldSettings {
  readonly ttlMs: number
  readonly acceptMs: number
  readonly patienceMs: number
  readonly waitMs: number
  readonly renew: boolean
  readonly maxHoldMs: number
  readonly minHoldMs: number
  readonly lockDelayMs: number
  /** `undefined`: the default of the call. */
  readonly storeTimeoutMs: number | undefined
  readonly maxWaiting: number
  readonly reentrant: boolean
  readonly signal: AbortSignal | undefined
  /** True for a ticket of Holdfast's own on a marked key: no event tells of it. */
  readonly quiet: boolean | undefined
  /** True for a campaign of an election. */
  readonly campaign: boolean | undefined
  /** When the call began, on the monotonic clock, if that was before the request for this key. For messages. */
  readonly startedAtMs: number | undefined
}

const DEFAULT_TTL_MS = 30_000

const DEFAULTS: HoldSettings = {
  ttlMs: DEFAULT_TTL_MS,
  acceptMs: ttlFields(DEFAULT_TTL_MS).acceptMs,
  patienceMs: patienceFor(DEFAULT_TTL_MS),
  // On etcd a dead holder with this ttl keeps its key for 43 s.
  waitMs: 60_000,
  renew: true,
  maxHoldMs: Number.POSITIVE_INFINITY,
  minHoldMs: 0,
  lockDelayMs: 0,
  storeTimeoutMs: undefined,
  maxWaiting: Number.POSITIVE_INFINITY,
  reentrant: false,
  signal: undefined,
  // These are set from the start, so that `{ ...settings, quiet: true }` replaces a field and adds none. V8 is slow at adding one.
  quiet: undefined,
  campaign: undefined,
  startedAtMs: undefined,
}

const HOLD: readonly (keyof HoldOptions)[] = [
  'ttl',
  'renew',
  'maxHold',
  'minHold',
  'lockDelay',
  'storeTimeout',
  'signal',
]
const WAIT: readonly (keyof WaitOptions)[] = [...HOLD, 'wait', 'maxWaiting']

/** Which options a call takes, so that a misspelt one is an error and not a surprise in production. */
export const TAKES: Readonly<
  Record<
    'locks' | 'try' | 'adopt' | 'wait' | 'tryCallback' | 'callback' | 'once' | 'untilFree' | 'check',
    ReadonlySet<string>
  >
> = {
  locks: new Set([...WAIT.filter((name) => name !== 'signal'), 'reentrant', 'label']),
  try: new Set(HOLD),
  adopt: new Set(HOLD.filter((name) => name !== 'minHold' && name !== 'lockDelay')),
  wait: new Set(WAIT),
  tryCallback: new Set([...HOLD, 'reentrant']),
  callback: new Set([...WAIT, 'reentrant']),
  once: new Set([
    ...['remember', 'keepResult', 'ttl', 'renew', 'maxHold', 'signal', 'wait', 'maxWaiting', 'storeTimeout'],
  ]),
  untilFree: new Set(['wait', 'storeTimeout', 'signal']),
  check: new Set(['storeTimeout']),
}

export function parseSettings(
  options: CallbackOptions | undefined,
  takes: ReadonlySet<string>,
  defaults: HoldSettings = DEFAULTS,
): HoldSettings {
  if (options === undefined) return defaults
  checkOptions(options, takes)
  const { ttlMs, acceptMs } =
    options.ttl === undefined ? defaults : ttlFields(parseDuration('ttl', options.ttl, TTL_RANGE))
  return {
    ttlMs,
    acceptMs,
    patienceMs: patienceFor(ttlMs),
    waitMs: options.wait === undefined ? defaults.waitMs : parseDuration('wait', options.wait, WAIT_RANGE),
    renew: parseFlag('renew', options.renew, defaults.renew),
    maxHoldMs:
      options.maxHold === undefined
        ? defaults.maxHoldMs
        : parseDuration('maxHold', options.maxHold, TTL_RANGE),
    minHoldMs:
      options.minHold === undefined
        ? defaults.minHoldMs
        : parseDuration('minHold', options.minHold, HOLD_RANGE),
    lockDelayMs:
      options.lockDelay === undefined
        ? defaults.lockDelayMs
        : parseDuration('lockDelay', options.lockDelay, HOLD_RANGE),
    storeTimeoutMs:
      options.storeTimeout === undefined
        ? defaults.storeTimeoutMs
        : parseDuration('storeTimeout', options.storeTimeout, TTL_RANGE),
    maxWaiting:
      options.maxWaiting === undefined
        ? defaults.maxWaiting
        : parseCount('maxWaiting', options.maxWaiting, { least: 1, most: Number.POSITIVE_INFINITY }),
    reentrant: parseFlag('reentrant', options.reentrant, defaults.reentrant),
    signal: parseSignal(options.signal),
    quiet: undefined,
    campaign: undefined,
    startedAtMs: undefined,
  }
}

/** @throws {InvalidArgumentError} unless it is a string that every store keeps as it is. */
export function checkKey(key: unknown): asserts key is string {
  // Programs that need speed usually lock the same key again and again.
  if (key === lastKey && key !== undefined) return
  if (typeof key !== 'string' || key === '') {
    throw expected('key', 'a string with at least one character', key, key === '' ? OF_KEY : {})
  }
  if (key.length > LONGEST_KEY) {
    throw tooLong(key, LONGEST_KEY)
  }
  // A lone surrogate becomes U+FFFD on its way to a server, so two keys would be one; NUL is no text in PostgreSQL.
  if (NOT_TEXT.test(key)) {
    throw expected('key', 'text without NUL and unpaired surrogates', key, OF_KEY)
  }
  lastKey = key
}

/** The reason of an eviction or of a request to step down, which the holder is told. */
export function checkReason(reason: unknown): asserts reason is string {
  const isText = typeof reason === 'string' && reason !== '' && reason.length <= LONGEST_REASON
  if (isText && !NOT_TEXT.test(reason)) return
  const what = `a text of 1 to ${LONGEST_REASON} characters without NUL and unpaired surrogates`
  throw expected('reason', what, reason)
}

/** The limit of a request that people make (`inspect`, `evict`), who can wait for longer than a lease. */
export const ADMINISTRATION_MS = 10_000

/** A key of Holdfast's own: the caller's key with a mark at its end. Refuses a key that would become too long. */
export function markedKey(key: string, mark: string): string {
  checkKey(key)
  const longest = LONGEST_KEY - mark.length
  if (key.length <= longest) return `${key}${mark}`
  throw tooLong(key, longest)
}

function tooLong(key: string, longest: number): InvalidArgumentError {
  return new InvalidArgumentError(
    `Expected \`key\` to have at most ${longest} characters, got ${key.length}.`,
    OF_KEY,
  )
}

const OF_KEY = { argument: 'key' } as const

export function checkCallback(callback: unknown): asserts callback is (...args: never[]) => unknown {
  if (typeof callback !== 'function') {
    throw new InvalidArgumentError(`Expected the last argument to be a function, got ${show(callback)}.`)
  }
}

let lastKey: string | undefined

const NOT_TEXT = /[\0\p{Surrogate}]/u
