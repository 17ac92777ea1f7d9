import { StartTimeoutError, StoreError } from '../errors.ts'
import { isHoldfastError, type Lease } from '../index.ts'
import { boundedWait } from './bounded-wait.ts'
import type { RunSettings } from './options.ts'
import type { RateLimiter } from './rate-limiter.ts'
import { WindowLimiter } from './sliding-window.ts'

/** `retryAfterMs` is undefined where points never come back. */
export type Verdict =
  | { readonly admitted: true }
  | { readonly admitted: false; readonly retryAfterMs: number | undefined }

/** One call of a limit. */
export interface LimitCall {
  readonly key: string
  /** The key of its slots in the store. */
  readonly slotsKey: string
  readonly terms: RunSettings
  /** On the clock of `performance.now()`. */
  readonly begunAt: number
}

/** One call, in its slot. */
export interface Turn extends LimitCall {
  readonly rate: RateLimiter
  readonly lease: Lease
}

/** Waits until the window lets this one pass, or says at once that it will not in time. */
export async function pass(turn: Turn): Promise<void> {
  for (;;) {
    const verdict = await consume(turn)
    if (verdict.admitted) return
    const { retryAfterMs } = verdict
    const pauseMs = Math.max(retryAfterMs ?? Number.POSITIVE_INFINITY, SHORTEST_PAUSE_MS)
    if (pauseMs > leftMs(turn) || retryAfterMs === undefined) throw tooMany(turn, retryAfterMs)
    await boundedWait(new Promise<never>(() => {}), { limitMs: pauseMs, signals: signalsOf(turn) })
  }
}

/**
 * @throws {StoreError} when the limiter failed or did not answer in time. It is not asked again then: it may have taken the
 * points, and has a way of its own for this (`insuranceLimiter`).
 */
export async function consume(turn: Turn): Promise<Verdict> {
  const limitMs = turn.terms.waitMs === 0 ? ANSWER_MS : Math.max(leftMs(turn), SILENCE_MS)
  const abandoned = new AbortController()
  const asked = ask(turn, abandoned.signal)
  const answer = await boundedWait(asked, { limitMs, signals: signalsOf(turn) }).finally(() =>
    abandoned.abort(),
  )
  if (answer === 'late') throw failure(turn, 'did not answer in time', undefined)
  if (answer.tag === 'consumed') return { admitted: true }
  // Of the store of the locks, which says what is wrong by itself.
  if (isHoldfastError(answer.rejection)) throw answer.rejection
  const msBeforeNext = refusalOf(answer.rejection)
  if (msBeforeNext === undefined) throw failure(turn, 'failed', answer.rejection)
  const comesBack = msBeforeNext >= 0 && msBeforeNext < NEVER_MS
  return { admitted: false, retryAfterMs: comesBack ? msBeforeNext : undefined }
}

type LimiterAnswer = { readonly tag: 'consumed' } | { readonly tag: 'rejected'; readonly rejection: unknown }

async function ask({ rate, key, terms }: Turn, abandoned: AbortSignal): Promise<LimiterAnswer> {
  try {
    // Another limiter would take a third argument for options of its own.
    if (rate instanceof WindowLimiter) await rate.consume(key, terms.points, abandoned)
    else await rate.consume(key, terms.points)
    return { tag: 'consumed' }
  } catch (rejection) {
    return { tag: 'rejected', rejection }
  }
}

/** The wait that is asked for, -1 for ever; undefined where it is no refusal. A union of limiters rejects with all that refused. */
function refusalOf(rejection: unknown): number | undefined {
  if (typeof rejection !== 'object' || rejection === null || rejection instanceof Error) return undefined
  if ('msBeforeNext' in rejection) {
    return typeof rejection.msBeforeNext === 'number' ? rejection.msBeforeNext : undefined
  }
  let longest: number | undefined
  for (const one of Object.values(rejection)) {
    const wait = refusalOf(one)
    if (wait === undefined) return undefined
    longest = wait < 0 || (longest ?? 0) < 0 ? -1 : Math.max(longest ?? 0, wait)
  }
  return longest
}

export function tooMany(
  { key, slotsKey, terms, begunAt }: LimitCall,
  retryAfterMs: number | undefined,
): StartTimeoutError {
  const refused =
    retryAfterMs === undefined
      ? 'will never let this call begin: its points never come back, or it blocks the key. Change the limiter, or end the block.'
      : `lets the next call begin in ${retryAfterMs} ms, and \`wait\` is ${terms.waitMs} ms. Wait longer, or call again then.`
  return new StartTimeoutError(`The rate limiter of ${JSON.stringify(key)} ${refused}`, {
    key: slotsKey,
    waitedMs: Math.round(performance.now() - begunAt),
    retryAfterMs,
  })
}

function failure({ slotsKey }: Turn, what: string, cause: unknown): StoreError {
  return new StoreError(
    'store-unavailable',
    `The rate limiter ${what}, so the work under ${JSON.stringify(slotsKey)} was not begun. Check its store, or give it an \`insuranceLimiter\`.`,
    { key: slotsKey, cause },
  )
}

function leftMs({ terms, begunAt }: Turn): number {
  return begunAt + terms.waitMs - performance.now()
}

function signalsOf({ lease, terms }: Turn): readonly AbortSignal[] {
  return terms.signal === undefined ? [lease.signal] : [terms.signal, lease.signal]
}

/** The refusal of the black list of `rate-limiter-flexible`. */
const NEVER_MS = Number.MAX_SAFE_INTEGER
/** A window that is over by the clock of its store may not be over by ours, and is said to end in 0 ms. */
const SHORTEST_PAUSE_MS = 5
/** As for the store of the locks: what does not answer is not the same as what is taken. */
const SILENCE_MS = 500
const ANSWER_MS = 5000
