import { type Backoff, backoffMs } from '../base/backoff.ts'
import { paused } from '../base/clock.ts'
import type { Duration } from '../base/duration.ts'
import type { RoomView } from '../contract/store.ts'
import type { Engine } from '../engine/engine.ts'
import { AcquireTimeoutError, isHoldfastError } from '../errors.ts'
import { ownerName, parseOwner, roomOf } from './inspected.ts'
import type { HoldSettings } from './options.ts'

export interface UntilFreeOptions {
  /** How long to wait until the key is free. With 0 the call looks once, with `Infinity` it waits for ever. Default: 30 s. */
  readonly wait?: Duration | undefined
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
  engine.onlookers.add(ending)
  if (signal !== undefined) engine.signals.add(signal, ending)
  try {
    await lookUntilFree(engine, key, settings.waitMs, ending.signal)
  } finally {
    engine.onlookers.delete(ending)
    if (signal !== undefined) engine.signals.remove(signal, ending)
  }
}

async function lookUntilFree(
  engine: Engine,
  key: string,
  waitMs: number,
  ending: AbortSignal,
): Promise<void> {
  const { clock, chance } = engine
  const startedAt = clock.monotonicMs()
  const waitedMs = () => clock.monotonicMs() - startedAt
  for (let looks = 1; ; looks += 1) {
    const limitMs = Math.min(engine.attemptMs(looks), Math.max(waitMs - waitedMs(), SHORTEST_LOOK_MS))
    const seen = await unlessAborted(ending, look(engine, key, limitMs))
    if (seen.tag === 'free') return
    const leftMs = waitMs - waitedMs()
    if (leftMs <= 0) throw seen.tag === 'silent' ? seen.error : notFree(key, waitedMs(), seen.room)
    await paused(clock, Math.min(backoffMs(LOOKS, looks, chance), leftMs), ending)
    ending.throwIfAborted()
  }
}

type Seen =
  | { readonly tag: 'free' }
  | { readonly tag: 'taken'; readonly room: RoomView }
  /** The store did not answer, so nobody knows. */
  | { readonly tag: 'silent'; readonly error: unknown }

async function look(engine: Engine, key: string, limitMs: number): Promise<Seen> {
  try {
    const room = await roomOf(engine, key, limitMs)
    return room === undefined ? { tag: 'free' } : { tag: 'taken', room }
  } catch (error) {
    if (!isHoldfastError(error, 'store-unavailable')) throw error
    return { tag: 'silent', error }
  }
}

function notFree(key: string, waitedMs: number, { holders, queue }: RoomView): AcquireTimeoutError {
  const [first] = holders
  const more = holders.length > 1 ? ` and ${holders.length - 1} more hold` : ' holds'
  const who = first === undefined ? '' : `: ${ownerName(parseOwner(first.owner))}${more} it`
  return new AcquireTimeoutError(
    `${JSON.stringify(key)} was not free within ${Math.round(waitedMs)} ms${who}. Wait longer with \`wait\`.`,
    { key, waitedMs: Math.round(waitedMs), ahead: queue.length },
  )
}

function unlessAborted<T>(signal: AbortSignal, asked: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = () => reject(signal.reason)
    signal.addEventListener('abort', end)
    void asked.then(resolve, reject).finally(() => signal.removeEventListener('abort', end))
    if (signal.aborted) end()
  })
}

/** The pauses between looks. With the jitter, processes that began to wait together do not look together. */
const LOOKS: Backoff = { firstMs: 50, longestMs: 1000, jitter: 0.2 }
/** A wait shorter than a round trip still gets an answer, because the key may be free. */
const SHORTEST_LOOK_MS = 500
