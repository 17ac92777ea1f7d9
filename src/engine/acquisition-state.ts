import type { Instant } from '../base/clock.ts'
import { isNobodyThere } from '../base/unreached.ts'
import type { Granted, Ticket } from '../contract/store.ts'
import { isHoldfastError } from '../errors.ts'
import type { AcquireRequest } from './acquire-request.ts'
import type { EngineContext } from './engine-context.ts'
import type { ClockSample } from './granted-at.ts'
import type { HeldLease } from './held-lease.ts'
import type { Exchange } from './instant.ts'
import { firstRenewalMs } from './ticket-fields.ts'

/**
 * The states of an `Acquisition`.
 *
 * | from              | to        | when                                                                                  |
 * | ----------------- | --------- | ------------------------------------------------------------------------------------- |
 * | –                 | `asking`  | the first acquire request is on its way, has failed, or was answered without a grant  |
 * | `asking`          | `asking`  | no answer in time, a failure, or a grant too late to be used: it asks under the same id |
 * | `asking, waiting` | `waiting` | the store says `queued`; the renewal loop keeps the ticket remembered from now on     |
 * | `waiting`         | `waiting` | no answer to a renewal: it asks again after a pause                                   |
 * | `waiting`         | `asking`  | the store has forgotten the ticket, or has granted it too late for the grant to be used |
 * | `asking, waiting` | `over`    | granted by an answer or a message, busy, evicted, refused, too many wait, out of time, aborted, a deadlock, or closed |
 */
export type AcquisitionState = Asking | Waiting | Over

/** The store has not said yet that the ticket waits, or has forgotten it. */
export interface Asking {
  readonly tag: 'asking'
  /** When it began to ask, on the monotonic clock. */
  readonly since: number
  /** Acquire requests in a row without an answer that counts. */
  attempts: number
  /** Whether the latest of them has neither an answer nor failed. */
  silent: boolean
  lastError: unknown
}

/** The ticket is in the queue. Its renewals keep it there, and confirm an offer. */
export interface Waiting {
  readonly tag: 'waiting'
  /** How many others the store last said were before it. */
  readonly ahead: number | undefined
  /** Renewals in a row without an answer. */
  attempts: number
  /** When the first of these was sent, on the monotonic clock. */
  unansweredSince: number
  /** How long the last answer took. */
  readonly tookMs: number
  askAgainAt: number
  /** How much sooner than `askAgainAt` it may be renewed, to share a request with others. */
  slackMs: number
  lastError: unknown
  /** The store's clock in the last `queued` answer. Undefined: every message is only a hint. */
  readonly sample: ClockSample | undefined
  /** A message that came after that answer. It is used at the end of this tick. */
  granted: Granted | undefined
}

/** It has ended. */
export interface Over {
  readonly tag: 'over'
  /** The lease that the caller was given, if there is one. */
  readonly lease: HeldLease | undefined
}

/** The promise of the caller. `null`: the key is busy, and the caller does not wait. */
export interface WaitOutcome {
  readonly promise: Promise<HeldLease | null>
  readonly resolve: (lease: HeldLease | null) => void
  readonly reject: (error: unknown) => void
}

export function newWaitOutcome(): WaitOutcome {
  let resolve: WaitOutcome['resolve'] = noop
  let reject: WaitOutcome['reject'] = noop
  const promise = new Promise<HeldLease | null>((...settle) => {
    resolve = settle[0]
    reject = settle[1]
  })
  return { promise, resolve, reject }
}

function noop(): void {}

/** A wait that began in another form, and goes on as an `Acquisition`. */
export interface BegunWait {
  readonly outcome: WaitOutcome
  /** How many others were before it when it came. */
  readonly ahead: number
}

export function newAsking(since: number): Asking {
  return { tag: 'asking', since, attempts: 0, silent: false, lastError: undefined }
}

export function newWaiting(
  ahead: number | undefined,
  sample: ClockSample | undefined,
  when?: Exchange,
): Waiting {
  return {
    tag: 'waiting',
    ahead,
    attempts: 0,
    unansweredSince: 0,
    tookMs: when === undefined ? 0 : when.answeredAt.monotonicMs - when.askedAt.monotonicMs,
    askAgainAt: 0,
    slackMs: 0,
    lastError: undefined,
    sample,
    granted: undefined,
  }
}

/** When to ask again after an acquire failed. `undefined`: asking is in vain until the caller's `wait` is over. */
export function nextAttemptAt(
  error: unknown,
  context: Pick<EngineContext, 'clock' | 'backoffMs'>,
  { attempts, startedAt, request: { waitMs, storeTimeoutMs } }: UnansweredAcquire,
): number | undefined {
  if (isHoldfastError(error, 'store-refused')) return undefined
  const isUnavailable = isHoldfastError(error, 'store-unavailable')
  // Whoever waits for nothing wants to hear this now, rather than after the time that a silent store may take.
  if (isUnavailable && waitMs === 0 && storeTimeoutMs === undefined && isNobodyThere(error)) return undefined
  const at = context.clock.monotonicMs()
  const vainMs = isUnavailable ? error.retryAfterMs : undefined
  if (vainMs === undefined) return at + context.backoffMs(attempts)
  const until = startedAt + (waitMs || (storeTimeoutMs ?? 0))
  return at + vainMs >= until ? undefined : at + Math.min(vainMs, LONGEST_VAIN_MS)
}

/** An acquire whose last attempt the store did not answer. */
interface UnansweredAcquire {
  readonly attempts: number
  /** When the call began, on the monotonic clock. */
  readonly startedAt: number
  readonly request: AcquireRequest
}

/** A server may come back that can grant the key sooner. */
const LONGEST_VAIN_MS = 5000

/** A further renewal is on its way. Returns when it is sent again, if no answer comes. */
export function countAttempt(
  state: Waiting,
  context: Pick<EngineContext, 'attemptMs'>,
  { ticket, at }: { readonly ticket: Ticket; readonly at: Instant },
): number {
  if (state.attempts === 0) state.unansweredSince = at.monotonicMs
  state.attempts += 1
  // A slow store is not asked everything twice, as long as that does not cost the place.
  const firstMs = Math.max(firstRenewalMs(ticket), Math.min(2 * state.tookMs, ticket.patienceMs / 2))
  return askAgainAfter(state, context.attemptMs(state.attempts, firstMs), at)
}

/** Plans the next question. Returns when it is due. */
export function askAgainAfter(state: Waiting, pauseMs: number, from: Instant): number {
  state.askAgainAt = from.monotonicMs + pauseMs
  state.slackMs = Math.min(pauseMs / 4, LONGEST_SLACK_MS)
  return state.askAgainAt
}

/** Whether the store does not answer, so that nobody knows whether the key is still taken. */
export function isSilent({ attempts, unansweredSince, lastError }: Waiting, at: number): boolean {
  // A wake has it asked once more while a renewal is on its way, so several attempts alone say nothing.
  return lastError !== undefined || (attempts > 0 && at - unansweredSince > SILENCE_MS)
}

/** How much earlier than necessary a waiter may be asked about, to share a request with others. */
const LONGEST_SLACK_MS = 500
/** A request that is unanswered for this long says that the store is silent, and not that the key is taken. */
export const SILENCE_MS = 500

/** What the events tell of a wait as it ends. `isUnanswered`: its last renewals have neither an answer nor failed. */
export function lastNewsOf(state: Asking | Waiting): {
  readonly ahead: number | undefined
  readonly isUnanswered: boolean
} {
  if (state.tag === 'asking') return { ahead: undefined, isUnanswered: false }
  return { ahead: state.ahead, isUnanswered: state.attempts > 0 && state.lastError === undefined }
}

/** When the store has to be asked again. Whatever a store says, nobody asks without a pause. */
export function pauseAfter({ askAgainMs }: { readonly askAgainMs: number }): number {
  return askAgainMs >= 1 ? askAgainMs : SILENCE_MS
}
