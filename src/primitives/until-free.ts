import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused } from '../base/clock.ts'
import type { Duration } from '../base/duration.ts'
import { parseOwner } from '../base/owner.ts'
import type { RoomView } from '../contract/store.ts'
import type { Engine } from '../engine/engine.ts'
import { closedDuring } from '../engine/ticket-errors.ts'
import { AcquireTimeoutError, isHoldfastError } from '../errors.ts'
import { roomOf } from './inspected.ts'
import type { HoldSettings } from './options.ts'

/** How long `locks.waitUntilFree` waits. */
export interface UntilFreeOptions {
  /** How long to wait until the key is free. With 0 the call looks once, with `Infinity` it waits for ever. Default: 60 s. */
  readonly wait?: Duration | undefined
  /**
   * How long a store may give no answer, before the call rejects with a `StoreError`. Default: as long as `wait`, and 5 s with
   * `wait: 0`.
   */
  readonly storeTimeout?: Duration | undefined
  /** Ends the wait: the call rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Looks at the key until nobody has it. It asks and does not queue: a ticket of its own would have to hold the key for a
 * moment. Then a `tryAcquire` of another process would fail, and the next waiter would wait longer.
 */
export async function untilFree(engine: Engine, key: string, settings: HoldSettings): Promise<void> {
  const { signal } = settings
  signal?.throwIfAborted()
  const ending = new AbortController()
  const onClose = () => ending.abort(closedDuring(key, 'waited for'))
  engine.onlookers.add(onClose)
  if (signal !== undefined) engine.signals.add(signal, ending)
  try {
    await lookUntilFree(engine, key, settings, ending.signal)
  } finally {
    engine.onlookers.delete(onClose)
    if (signal !== undefined) engine.signals.remove(signal, ending)
  }
}

async function lookUntilFree(
  engine: Engine,
  key: string,
  { waitMs, storeTimeoutMs = waitMs === 0 ? ANSWER_MS : Number.POSITIVE_INFINITY }: HoldSettings,
  ending: AbortSignal,
): Promise<void> {
  const { clock, chance } = engine
  const startedAt = clock.monotonicMs()
  const waitUntil = startedAt + waitMs
  /** When the first look in a row without an answer began. */
  let silentSince: number | undefined
  for (let looks = 1; ; looks += 1) {
    const beganAt = clock.monotonicMs()
    const silentUntil = (silentSince ?? beganAt) + storeTimeoutMs
    const leastMs = waitMs === 0 ? storeTimeoutMs : Math.min(SHORTEST_LOOK_MS, storeTimeoutMs)
    const mostMs = Math.min(engine.attemptMs(looks), waitUntil - beganAt, silentUntil - beganAt)
    const limitMs = Math.max(leastMs, mostMs)
    const seen = await look(engine, key, { limitMs, signal: ending })
    if (seen.tag === 'free') return
    silentSince = seen.tag === 'silent' ? (silentSince ?? beganAt) : undefined
    const at = clock.monotonicMs()
    const until = seen.tag === 'silent' ? Math.min(waitUntil, silentUntil) : waitUntil
    if (at >= until) throw seen.tag === 'silent' ? seen.error : notFree(key, at - startedAt, seen.room)
    await paused(clock, Math.min(backoffMs(LOOKS, looks, chance), until - at), ending)
    ending.throwIfAborted()
  }
}

type RoomLook =
  | { readonly tag: 'free' }
  | { readonly tag: 'taken'; readonly room: RoomView }
  /** The store did not answer, so nobody knows. */
  | { readonly tag: 'silent'; readonly error: unknown }

async function look(
  engine: Engine,
  key: string,
  options: { readonly limitMs: number; readonly signal: AbortSignal },
): Promise<RoomLook> {
  try {
    const room = await roomOf(engine, key, options)
    return room === undefined ? { tag: 'free' } : { tag: 'taken', room }
  } catch (error) {
    if (!isHoldfastError(error, 'store-unavailable')) throw error
    return { tag: 'silent', error }
  }
}

function notFree(key: string, waitedMs: number, { holders, queue }: RoomView): AcquireTimeoutError {
  const [first] = holders
  const holder = first && {
    owner: parseOwner(first.owner),
    heldMs: Math.round(first.heldMs),
    others: holders.length - 1,
  }
  return new AcquireTimeoutError(
    `${JSON.stringify(key)} was not free within ${Math.round(waitedMs)} ms. Wait longer with \`wait\`.`,
    { key, waitedMs: Math.round(waitedMs), ahead: queue.length, holder },
  )
}

/** The pauses between looks. With the jitter, processes that began to wait together do not look together. */
const LOOKS: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0.2 }
/** A wait shorter than a round trip still gets an answer, because the key may be free. */
export const SHORTEST_LOOK_MS = 500
/** How long a store may take to answer a call that does not wait for the key. */
const ANSWER_MS = 5000
