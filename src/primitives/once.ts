import { checkObject } from '../base/arguments.ts'
import { type Duration, parseDuration, TTL_RANGE } from '../base/duration.ts'
import type { Engine } from '../engine/engine.ts'
import type { Lease } from '../engine/lease.ts'
import { ttlFields } from '../engine/ticket-fields.ts'
import { AcquireTimeoutError, isHoldfastError, StoreError } from '../errors.ts'
import { hold, type LocksContext, makeTicket, type Outcome, tryHold, withHold } from './hold.ts'
import {
  EXCLUSIVE,
  type HoldSettings,
  markedKey,
  parseSettings,
  SHARED,
  TAKES,
  type WaitOptions,
} from './options.ts'

/** How long `locks.once` remembers a success, and how it holds and waits. */
export interface OnceOptions extends Omit<WaitOptions, 'minHold' | 'lockDelay'> {
  /** How long a success is remembered: at least as long as a repeated call may come. From 50 ms to 24 days. No default. */
  readonly remember: Duration
}

export interface OnceSettings {
  readonly settings: HoldSettings
  readonly rememberMs: number
}

export function parseOnce(options: OnceOptions, defaults: HoldSettings): OnceSettings {
  checkObject(options, 'remember')
  const { remember, ...rest } = options
  return {
    settings: parseSettings(rest, TAKES.once, { ...defaults, minHoldMs: 0, lockDelayMs: 0 }),
    rememberMs: parseDuration('remember', remember, TTL_RANGE),
  }
}

/**
 * Remembers a success by a second key, the *mark*. The lease of the mark is neither renewed nor released, so the mark stays
 * taken until the store's clock ends it. Every store can do that.
 */
export async function runOnce<T>(
  context: LocksContext,
  key: string,
  { settings, rememberMs }: OnceSettings,
  work: (lease: Lease) => Promise<T> | T,
): Promise<Outcome<T>> {
  const mark = markedKey(key, '#done')
  if (await isTaken(context, mark, settings)) return DONE_BEFORE
  await checkRemember(context, mark, key, rememberMs)
  const request = { key, shape: EXCLUSIVE, settings: { ...settings, reentrant: false } }
  return withHold(context, request, async (lease) => {
    // The earlier holder, for which this call waited, may have succeeded.
    if (await isTaken(context, mark, settings)) return DONE_BEFORE
    // The request for the mark took time: the lease may be over by now.
    lease.assertHeld()
    const value = await work(lease)
    // Also if the lease was lost meanwhile, because the work has succeeded all the same.
    await take(context, mark, key, rememberMs)
    return { ran: true, value }
  })
}

const DONE_BEFORE = { ran: false } as const

/** Tries to take the mark as a reader. A reader does not exclude other calls that look at the same moment. */
async function isTaken(
  context: LocksContext,
  mark: string,
  // The call waits, so this look may wait for a store that can grant nothing yet.
  { ttlMs, waitMs, storeTimeoutMs = waitMs || undefined, signal }: HoldSettings,
): Promise<boolean> {
  const looking = { ...LOOKING, ...ttlFields(Math.min(ttlMs, LOOKING.ttlMs)), storeTimeoutMs, signal }
  const lease = await tryHold(context, { key: mark, shape: SHARED, settings: looking })
  await lease?.release()
  return lease === null
}

/**
 * Asks the store to renew a ticket that does not exist, which changes nothing. If the store does not allow such a long ttl,
 * it refuses now and not after the work. One such request per process is enough, because the answer depends on the store
 * alone.
 */
async function checkRemember(
  context: LocksContext,
  mark: string,
  key: string,
  rememberMs: number,
): Promise<void> {
  const { engine, nextId } = context
  if (rememberMs <= (remembered.get(engine) ?? 0)) return
  const ticket = makeTicket(context, {
    key: mark,
    id: nextId(),
    shape: EXCLUSIVE,
    settings: { ...MARKING, ...ttlFields(rememberMs) },
    patienceMs: 0,
  })
  try {
    await engine.ask('renew', () => engine.store.renew([ticket]), { limitMs: engine.attemptMs(1), key })
    remembered.set(engine, rememberMs)
  } catch (cause) {
    // Without an answer nothing is known. If the store is away, the acquire that follows finds that out.
    if (!isHoldfastError(cause, 'store-refused')) return
    throw new StoreError(
      'store-refused',
      `The work for ${JSON.stringify(key)} was not begun, as the store would not remember it: ${cause.message}`,
      { key, cause },
    )
  }
}

/** The longest ttl that the store of each engine is known to allow. */
const remembered = new WeakMap<Engine, number>()

async function take(context: LocksContext, mark: string, key: string, rememberMs: number): Promise<void> {
  try {
    const settings = { ...MARKING, ...ttlFields(rememberMs) }
    const marked = await hold(context, { key: mark, shape: EXCLUSIVE, settings })
    marked.detach()
  } catch (cause) {
    // Still queued after every reader must be gone: another process holds the mark. It did the work after our lease was lost.
    if (cause instanceof AcquireTimeoutError && cause.ahead !== undefined) return
    throw new StoreError(
      'store-unavailable',
      `The work for ${JSON.stringify(key)} is done, but the store could not be told: the next call will do it again.`,
      { key, cause },
    )
  }
}

/** A call that looks holds the mark for one round trip. If its process dies just then, the mark is taken for this ttl. */
const LOOKING: HoldSettings = { ...parseSettings({ ttl: 2000, renew: false }, TAKES.try), quiet: true }
/** No signal: when the mark is taken the work is done, and to give up would not undo it. */
const MARKING: HoldSettings = { ...parseSettings({ wait: 10_000, renew: false }, TAKES.wait), quiet: true }
