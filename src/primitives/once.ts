import { checkObject, parseFlag } from '../base/arguments.ts'
import { type Duration, parseDuration, TTL_RANGE } from '../base/duration.ts'
import { factOf, withFacts } from '../base/owner.ts'
import { messageOf } from '../base/thrown.ts'
import { unlessAborted } from '../base/unless-aborted.ts'
import type { Engine } from '../engine/engine.ts'
import type { Lease } from '../engine/lease.ts'
import { ttlFields } from '../engine/ticket-fields.ts'
import { AcquireTimeoutError, InvalidArgumentError, isHoldfastError, StoreError } from '../errors.ts'
import { hold, type LocksContext, makeTicket, tryHold, withHold } from './hold.ts'
import { roomOf } from './inspected.ts'
import {
  ADMINISTRATION_MS,
  EXCLUSIVE,
  type HoldSettings,
  markedKey,
  parseSettings,
  SHARED,
  TAKES,
  type WaitOptions,
} from './options.ts'
import { SHORTEST_LOOK_MS } from './until-free.ts'

/** How long `locks.once` remembers a success, and how it holds and waits. */
export interface OnceOptions extends Omit<WaitOptions, 'minHold' | 'lockDelay'> {
  /** How long a success is remembered: at least as long as a repeated call may come. From 50 ms to 24 days. No default. */
  readonly remember: Duration
  /**
   * Keeps what the work returns as well, as JSON of at most 8,000 characters, and gives it to the calls that come later. Default:
   * false.
   */
  readonly keepResult?: boolean | undefined
}

/**
 * Whether this call ran the work, and what the work returned. If an earlier call ran it, the value comes back from JSON. It is
 * `undefined` if the work returned nothing, or one of the two calls was made without `keepResult`.
 */
export type OnceOutcome<T> =
  | { readonly ran: true; readonly value: T }
  | { readonly ran: false; readonly value?: T | undefined }

export interface OnceSettings {
  readonly settings: HoldSettings
  readonly rememberMs: number
  readonly keepResult: boolean
}

export function parseOnce(options: OnceOptions, defaults: HoldSettings): OnceSettings {
  checkObject(options, 'remember')
  const { remember, keepResult } = options
  return {
    settings: parseSettings(options, TAKES.once, { ...defaults, minHoldMs: 0, lockDelayMs: 0 }),
    rememberMs: parseDuration('remember', remember, TTL_RANGE),
    keepResult: parseFlag('keepResult', keepResult, false),
  }
}

/**
 * Remembers a success by a second key, the *mark*. The lease of the mark is neither renewed nor released, so the mark stays
 * taken until the store's clock ends it. Every store can do that.
 */
export async function runOnce<T>(
  context: LocksContext,
  key: string,
  { settings, rememberMs, keepResult }: OnceSettings,
  work: (lease: Lease) => Promise<T> | T,
): Promise<OnceOutcome<T>> {
  const mark = markedKey(key, '#done')
  const look = () => doneBefore<T>(context, mark, settings, keepResult)
  const before = await look()
  if (before !== undefined) return before
  await checkRemember(context, mark, key, rememberMs)
  const request = { key, shape: EXCLUSIVE, settings: { ...settings, reentrant: false } }
  return withHold(context, request, async (lease) => {
    // The earlier holder, for which this call waited, may have succeeded.
    const meanwhile = await look()
    if (meanwhile !== undefined) return meanwhile
    // The request for the mark took time: the lease may be over by now.
    lease.assertHeld()
    const value = await work(lease)
    const result = keepResult ? resultOf(key, value) : undefined
    const owner =
      result?.json === undefined
        ? context.owner
        : withFacts(context.owner, { result: JSON.parse(result.json) })
    // Also if the lease was lost meanwhile, because the work has succeeded all the same.
    await take({ ...context, owner }, mark, key, rememberMs)
    if (result?.error !== undefined) throw result.error
    return { ran: true, value }
  })
}

const DONE_BEFORE = { ran: false } as const

/** `undefined`: the work is not done, as far as the store knows. */
async function doneBefore<T>(
  context: LocksContext,
  mark: string,
  settings: HoldSettings,
  keepResult: boolean,
): Promise<OnceOutcome<T> | undefined> {
  if (!(await isTaken(context, mark, settings))) return undefined
  if (!keepResult) return DONE_BEFORE
  const { signal, storeTimeoutMs = answerMs(settings.waitMs) ?? ADMINISTRATION_MS } = settings
  const limitMs = Math.min(storeTimeoutMs, ADMINISTRATION_MS)
  const room = await unlessAborted(roomOf(context.engine, mark, { limitMs }), signal)
  // The mark is asked for when the work is done. So it says the same while it waits for calls that look.
  const tickets = [...(room?.holders ?? []), ...(room?.queue ?? [])]
  const done = tickets.find(({ limit }) => limit === EXCLUSIVE.limit)
  // The mark has run out by now, or is about to be asked for: then the work still holds its key.
  if (done === undefined) return undefined
  return { ran: false, value: factOf(done.owner, 'result') as T | undefined }
}

/** The result as JSON, or why it has none. The work is done in either case, so this must not keep it from being remembered. */
function resultOf(
  key: string,
  value: unknown,
): { readonly json: string | undefined; readonly error?: InvalidArgumentError } {
  try {
    const json: string | undefined = JSON.stringify(value)
    if (json === undefined || json.length <= LONGEST_RESULT) return { json }
    return { json: undefined, error: notKept(key, `got one of ${json.length}`) }
  } catch (error) {
    return { json: undefined, error: notKept(key, messageOf(error)) }
  }
}

function notKept(key: string, why: string): InvalidArgumentError {
  return new InvalidArgumentError(
    `The work for ${JSON.stringify(key)} is done, and is not done again. But its result was not kept. Expected a result of at most ${LONGEST_RESULT} characters as JSON: ${why}.`,
  )
}

/** In characters. Together with the facts about a process, it must not be longer than an owner may be. */
const LONGEST_RESULT = 8000

/** Tries to take the mark as a reader. A reader does not exclude other calls that look at the same moment. */
async function isTaken(
  context: LocksContext,
  mark: string,
  { ttlMs, waitMs, storeTimeoutMs = answerMs(waitMs), signal }: HoldSettings,
): Promise<boolean> {
  const looking = { ...LOOKING, ...ttlFields(Math.min(ttlMs, LOOKING.ttlMs)), storeTimeoutMs, signal }
  const lease = await tryHold(context, { key: mark, shape: SHARED, settings: looking })
  await lease?.release()
  return lease === null
}

/** If the call waits, its look may wait for a store that can grant nothing yet. */
function answerMs(waitMs: number): number | undefined {
  return waitMs === 0 ? undefined : Math.max(waitMs, SHORTEST_LOOK_MS)
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
