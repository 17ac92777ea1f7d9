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

export interface OnceOptions extends Omit<WaitOptions, 'minHold' | 'lockDelay'> {
  /** How long a success is remembered: as long as a repetition may come. From 50 ms to 24 days. No default. */
  readonly remember: Duration
}

export interface OnceSettings {
  readonly settings: HoldSettings
  readonly rememberMs: number
}

export function parseOnce(options: OnceOptions, defaults: HoldSettings): OnceSettings {
  checkObject(options)
  const { remember, ...rest } = options
  return {
    settings: parseSettings(rest, TAKES.once, { ...defaults, minHoldMs: 0, lockDelayMs: 0 }),
    rememberMs: parseDuration('remember', remember, TTL_RANGE),
  }
}

/**
 * A success is remembered as a second key that stays taken: by a lease that nobody renews, and that nobody gives back. So
 * every store can do it, and it is forgotten by the store's own clock.
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
  return withHold(context, key, EXCLUSIVE, { ...settings, reentrant: false }, async (lease) => {
    // Whoever we waited for may have succeeded.
    if (await isTaken(context, mark, settings)) return DONE_BEFORE
    // The look took its time.
    lease.assertHeld()
    const value = await work(lease)
    // Also under a lease that was lost meanwhile: what was done is done.
    await take(context, mark, key, rememberMs)
    return { ran: true, value }
  })
}

const DONE_BEFORE = { ran: false } as const

/** Looks as a reader does, because those who look must not see one another. */
async function isTaken(
  context: LocksContext,
  mark: string,
  { ttlMs, signal }: HoldSettings,
): Promise<boolean> {
  const looking = { ...LOOKING, ...ttlFields(Math.min(ttlMs, LOOKING.ttlMs)), signal }
  const lease = await tryHold(context, mark, SHARED, looking)
  await lease?.release()
  return lease === null
}

/**
 * Asks to renew what nobody has, which changes nothing: a store that allows no term that long says so now, and not when the
 * work is done. Once per process, as it depends on the store alone.
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
    await engine.ask('renew', () => engine.store.renew([ticket]), engine.attemptMs(1), key)
    remembered.set(engine, rememberMs)
  } catch (cause) {
    // No answer says nothing; whether the store is there, what comes next will find out.
    if (!isHoldfastError(cause, 'store-refused')) return
    throw new StoreError(
      'store-refused',
      `The work for ${JSON.stringify(key)} was not begun, as the store would not remember it: ${cause.message}`,
      { key, cause },
    )
  }
}

/** The longest that the store of each engine is known to remember. */
const remembered = new WeakMap<Engine, number>()

async function take(context: LocksContext, mark: string, key: string, rememberMs: number): Promise<void> {
  try {
    const marked = await hold(context, mark, EXCLUSIVE, { ...MARKING, ...ttlFields(rememberMs) })
    marked.detach()
  } catch (cause) {
    // Still in the queue after all who look are gone: another one has remembered it, under whom our lease was lost.
    if (cause instanceof AcquireTimeoutError && cause.ahead !== undefined) return
    throw new StoreError(
      'store-unavailable',
      `The work for ${JSON.stringify(key)} is done, but the store could not be told: the next call will do it again.`,
      { key, cause },
    )
  }
}

/** Whoever looks has it for one round trip, or until this if it dies; and giving up would not undo the work. */
const LOOKING: HoldSettings = { ...parseSettings({ ttl: 2000, renew: false }, TAKES.try), quiet: true }
const MARKING: HoldSettings = { ...parseSettings({ wait: 10_000, renew: false }, TAKES.wait), quiet: true }
