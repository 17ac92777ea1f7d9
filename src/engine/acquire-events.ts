import type { HoldfastError, HoldfastErrorCode, LeaseLostError } from '../errors.ts'
import type { AcquireRequest } from './acquire-request.ts'
import { type Events, tellStoreError } from './events.ts'
import type { Withdrawal } from './lock-events.ts'

/** Every request tells `requested`, and then one of `acquired`, `busy`, `timeout` and `withdrawn`. */
export function tellRequested({ requested }: Events, request: AcquireRequest): void {
  if (!requested.isHeard) return
  requested.tell(request, {
    waitMs: request.waitMs,
    ttlMs: request.ticket.ttlMs,
    campaign: request.lease.campaign === true,
  })
}

/** `wokenMs`: how long ago a message came, if the request waited and one came. */
export function tellAcquired(
  { acquired }: Events,
  request: AcquireRequest,
  fence: bigint,
  waitedMs: number,
  waited?: { readonly queued: boolean; readonly wokenMs: number | undefined },
): void {
  if (!acquired.isHeard) return
  acquired.tell(request, { fence, waitedMs, ...(waited ?? NOT_WAITED) })
}

const NOT_WAITED = { queued: false, wokenMs: undefined } as const

/** Why a request ends without a lease. */
export interface GivingUp {
  readonly error: unknown
  readonly reason: Withdrawal | 'timeout'
  readonly waitedMs: number
  readonly ahead: number | undefined
  /** Whether the renewals that kept its place have no answer. */
  readonly isUnanswered?: boolean
}

export function tellGivenUp(
  events: Events,
  request: AcquireRequest,
  { error, reason, waitedMs, ahead, isUnanswered }: GivingUp,
): void {
  const { evicted, timeout, withdrawn } = events
  // An error of a renewal was told when it came. Silence is certain only now.
  if (reason === 'store' && isUnanswered === true)
    tellStoreError(events, {
      verb: 'renew',
      error: undefined,
      key: request.ticket.key,
      id: request.ticket.id,
    })
  if (reason === 'timeout') return timeout.tell(request, { waitedMs, ahead })
  if (reason === 'evicted')
    evicted.tell(request, { was: 'waiter', reason: (error as LeaseLostError).evictedBecause })
  withdrawn.tell(request, { waitedMs, reason, error })
}

/** The reason in an event, from the code of the error. */
export function reasonOf({ code }: HoldfastError): GivingUp['reason'] {
  return REASONS[code] ?? 'store'
}

const REASONS: { readonly [code in HoldfastErrorCode]?: GivingUp['reason'] } = {
  'acquire-timeout': 'timeout',
  'lease-lost': 'evicted',
  deadlock: 'deadlock',
  closed: 'closed',
  'queue-full': 'full',
}
