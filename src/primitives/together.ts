import { expected } from '../base/arguments.ts'
import { type Duration, LONGEST_MS, show } from '../base/duration.ts'
import type { Abortable } from '../base/signal-watch.ts'
import { unlessAborted } from '../base/unless-aborted.ts'
import type { WaitWatch } from '../engine/acquire-request.ts'
import type { Engine } from '../engine/engine.ts'
import { observed } from '../engine/events.ts'
import type { ClockSample } from '../engine/granted-at.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import type { Lease, LeaseJson, LeaseState } from '../engine/lease.ts'
import { ADVICE } from '../engine/ticket-errors.ts'
import { type HoldfastError, InvalidArgumentError, isHoldfastError, StoreError } from '../errors.ts'
import { heldHere, ScopeChain } from './held-keys.ts'
import { afterInner, hold, type LocksContext, makeTicket, type Outcome, tryHold } from './hold.ts'
import { checkCallback, checkKey, EXCLUSIVE, type HoldSettings } from './options.ts'

/** The leases of several keys that are held together. */
export interface LeaseSet extends AsyncDisposable {
  /** In canonical order, without repetitions. */
  readonly keys: readonly string[]
  /** One lease for each of {@link keys}, in the same order. */
  readonly leases: readonly Lease[]
  /** The worst state of any of the leases: `lost`, `released`, `jeopardy` or `held`, in this order. */
  readonly state: LeaseState
  /** The smallest `remainingMs` of the leases. */
  readonly remainingMs: number
  /** Aborts as soon as one of the leases is lost. */
  readonly signal: AbortSignal
  /** The fence of one of the keys. Each resource takes the fence of its own key. */
  fence(key: string): bigint
  /** Throws unless all of the leases hold now; see {@link Lease.assertHeld}. */
  assertHeld(): void
  /** Renews all leases; see {@link Lease.extend}. */
  extend(ttl?: Duration): Promise<void>
  /** Releases all leases. Never rejects. */
  release(): Promise<void>
  /** The leases as `locks.adopt` takes them one by one, for `JSON.stringify`. */
  toJSON(): LeaseJson[]
}

/**
 * Takes all keys in one step if the store can and all are free. Otherwise takes them one after the other, in canonical
 * order and under one `wait`. The order is the same for every call, so two calls never wait for each other. The leases that
 * are held already are renewed meanwhile, also with `renew: false`: then the ttl of all counts from the grant of the last.
 */
export async function holdTogether(
  context: LocksContext,
  keys: readonly string[],
  settings: HoldSettings,
): Promise<LeaseSet> {
  refuseMinHold(settings)
  const startedAtMs = context.engine.clock.monotonicMs()
  const ordered = canonical(keys)
  const atOnce = await takeAtOnce(context, ordered, settings)
  if (atOnce !== undefined) return atOnce
  const leases: HeldLease[] = []
  const scopes = new ScopeChain(context.engine)
  try {
    for (const key of ordered) {
      const waitedMs = context.engine.clock.monotonicMs() - startedAtMs
      // At least 1 ms: a ticket with `wait: 0` has no patience, so a taken key would refuse it without a place in the queue.
      const waitMs = settings.waitMs === 0 ? 0 : Math.max(1, settings.waitMs - waitedMs)
      const renew = settings.renew || leases.length < ordered.length - 1
      // Inside the scopes of the keys that are held already, so that a cycle through a half-taken set is found, too.
      const request = { key, shape: EXCLUSIVE, settings: { ...settings, waitMs, renew, startedAtMs } }
      const take = () => hold(context, { ...request, watching: (inner) => new LossWatch(leases, inner) })
      const lease = await scopes.run(take)
      leases.push(lease)
      scopes.add(lease)
      // No look at the clocks: with hundreds of keys these looks would block the event loop. They are read at the end.
      for (const one of leases) if (one.isOverForGood) one.assertHeld()
    }
    if (!settings.renew) await renewLast(context.engine, leases.slice(0, -1), { ...settings, startedAtMs })
    // The first may have been lost while the last was awaited.
    for (const lease of leases) lease.assertHeld()
    return new Together(leases)
  } catch (error) {
    await releaseAfter(error, leases, settings)
    throw error
  }
}

/** Rejects if the store is silent for longer than `storeTimeout`, or else for the rest of `wait`. */
async function renewLast(
  { clock, store }: Engine,
  leases: readonly HeldLease[],
  { waitMs, storeTimeoutMs, signal, startedAtMs }: HoldSettings & { readonly startedAtMs: number },
): Promise<void> {
  const restMs = Math.max(SHORTEST_RENEWAL_MS, startedAtMs + waitMs - clock.monotonicMs())
  const limitMs = Math.min(storeTimeoutMs ?? restMs, LONGEST_MS)
  const silence = new AbortController()
  const timer = clock.startTimer(limitMs, () => {
    const why = `The ${store.name} store did not answer within ${Math.round(limitMs)} ms, so the keys were not renewed. ${ADVICE}`
    silence.abort(new StoreError('store-unavailable', why, { key: leases[0]?.key }))
  })
  timer.keepAlive(true)
  try {
    await unlessAborted(Promise.all(leases.map((lease) => lease.renewLast())), signal, silence.signal)
  } finally {
    timer.stop()
  }
}

/** Also if nothing of `wait` is left, the store has this long to answer. */
const SHORTEST_RENEWAL_MS = 500

export async function tryHoldTogether(
  context: LocksContext,
  keys: readonly string[],
  settings: HoldSettings,
): Promise<LeaseSet | null> {
  refuseMinHold(settings)
  const ordered = canonical(keys)
  const atOnce = await takeAtOnce(context, ordered, { ...settings, waitMs: 0 })
  if (atOnce !== undefined) return atOnce
  const leases: HeldLease[] = []
  try {
    for (const key of ordered) {
      const lease = await tryHold(context, { key, shape: EXCLUSIVE, settings })
      if (lease === null) {
        await releaseAll(leases)
        return null
      }
      leases.push(lease)
    }
    for (const lease of leases) lease.assertHeld()
    return new Together(leases)
  } catch (error) {
    await releaseAfter(error, leases, settings)
    throw error
  }
}

/** An abort is answered at once, and a silent store is not waited for again: the releases go on by themselves. */
async function releaseAfter(
  error: unknown,
  leases: readonly HeldLease[],
  { signal }: HoldSettings,
): Promise<void> {
  const released = releaseAll(leases)
  if (!signal?.aborted && !isHoldfastError(error, 'store-unavailable')) await released
}

/** One request that does not wait, so the order does not matter. `undefined`: the keys have to be taken one by one. */
async function takeAtOnce(
  context: LocksContext,
  keys: readonly string[],
  settings: HoldSettings,
): Promise<LeaseSet | undefined> {
  const { engine } = context
  if (keys.length === 1 || engine.store.acquireAll === undefined) return undefined
  if (keys.some((key) => heldHere(engine, key) !== undefined)) return undefined
  const leases = await engine.acquireAll(
    keys.map((key) => ({
      ticket: makeTicket(context, { key, id: context.nextId(), shape: EXCLUSIVE, settings, patienceMs: 0 }),
      waitMs: settings.waitMs,
      storeTimeoutMs: settings.storeTimeoutMs,
      signal: settings.signal,
      lease: settings,
      watch: undefined,
    })),
  )
  return leases === undefined ? undefined : new Together(leases)
}

export async function withHoldTogether<T>(
  context: LocksContext,
  keys: readonly string[],
  settings: HoldSettings,
  work: (leases: LeaseSet) => Promise<T> | T,
): Promise<T> {
  checkCallback(work)
  return runUnder(context, await holdTogether(context, keys, settings), work)
}

export async function tryWithHoldTogether<T>(
  context: LocksContext,
  keys: readonly string[],
  settings: HoldSettings,
  work: (leases: LeaseSet) => Promise<T> | T,
): Promise<Outcome<T>> {
  checkCallback(work)
  const leases = await tryHoldTogether(context, keys, settings)
  if (leases === null) return { ran: false }
  return { ran: true, value: await runUnder(context, leases, work) }
}

async function runUnder<T>(
  context: LocksContext,
  leases: LeaseSet,
  work: (leases: LeaseSet) => Promise<T> | T,
): Promise<T> {
  const held = leases.leases as readonly HeldLease[]
  try {
    const value = await runObserved(context.engine, held, () => work(leases))
    for (const lease of held) lease.assertNotLost()
    return value
  } finally {
    await afterInner(held, () => leases.release())
  }
}

/** The scopes are innermost, as for one lease. */
function runObserved<T>(engine: Engine, leases: readonly HeldLease[], work: () => T): T {
  const { events } = engine
  const assertHeld = () => {
    for (const lease of leases) lease.assertHeld()
  }
  const inScopes = () => {
    assertHeld()
    const scopes = new ScopeChain(engine)
    for (const lease of leases) scopes.add(lease)
    return scopes.run(work)
  }
  if (!events.working.isHeard) return inScopes()
  // Listeners are not told of work that will not begin.
  assertHeld()
  return observed(
    events,
    leases.map((lease) => lease.asWorking()),
    inScopes,
  )
}

/**
 * Ends the wait for a key when one of the leases is lost. It listens only while the call is queued, because the engine watches a
 * lease whose signal somebody has.
 */
class LossWatch implements WaitWatch {
  readonly #leases: readonly HeldLease[]
  readonly #inner: WaitWatch
  #wait: Abortable | undefined

  constructor(leases: readonly HeldLease[], inner: WaitWatch) {
    this.#leases = leases
    this.#inner = inner
  }

  queued(place: 'new' | 'same', sample: ClockSample | undefined, wait: Abortable): HoldfastError | undefined {
    if (this.#wait === undefined) {
      this.#wait = wait
      for (const { signal } of this.#leases) signal.addEventListener('abort', this.#endIfLost)
      if (this.#endIfLost()) return undefined
    }
    return this.#inner.queued(place, sample, wait)
  }

  left(): void {
    if (this.#wait !== undefined)
      for (const { signal } of this.#leases) signal.removeEventListener('abort', this.#endIfLost)
    this.#wait = undefined
    this.#inner.left()
  }

  readonly #endIfLost = (): boolean => {
    const lost = this.#leases.find(({ signal }) => signal.aborted)
    if (lost !== undefined) this.#wait?.abort(lost.signal.reason)
    return lost !== undefined
  }
}

class Together implements LeaseSet {
  readonly leases: readonly HeldLease[]
  #signal: AbortSignal | undefined

  constructor(leases: readonly HeldLease[]) {
    this.leases = leases
  }

  get keys(): readonly string[] {
    return this.leases.map((lease) => lease.key)
  }

  get state(): LeaseState {
    const states = this.leases.map((lease) => lease.state)
    return WORST_FIRST.find((state) => states.includes(state)) ?? 'held'
  }

  get remainingMs(): number {
    return Math.min(...this.leases.map((lease) => lease.remainingMs))
  }

  get signal(): AbortSignal {
    this.#signal ??= AbortSignal.any(this.leases.map((lease) => lease.signal))
    return this.#signal
  }

  fence(key: string): bigint {
    const lease = this.leases.find((one) => one.key === key)
    if (lease !== undefined) return lease.fence
    throw expected('key', `one of the keys held together (${this.keys.map(show).join(', ')})`, key)
  }

  assertHeld(): void {
    for (const lease of this.leases) lease.assertHeld()
  }

  async extend(ttl?: Duration): Promise<void> {
    await Promise.all(this.leases.map((lease) => lease.extend(ttl)))
  }

  release(): Promise<void> {
    return releaseAll(this.leases)
  }

  toJSON(): LeaseJson[] {
    return this.leases.map((lease) => lease.toJSON())
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }
}

const WORST_FIRST: readonly LeaseState[] = ['lost', 'released', 'jeopardy', 'held']

/** If one key is busy, the others are released. With a minimum hold they would stay taken although no work has run. */
function refuseMinHold({ minHoldMs }: HoldSettings): void {
  if (minHoldMs === 0) return
  throw new InvalidArgumentError(
    `Expected \`minHold\` to be 0 for several keys at once, got ${minHoldMs} ms. Set it where one key is held.`,
  )
}

/** Order of UTF-16 code units: the same in every process, whatever its locale. */
function canonical(keys: readonly string[]): string[] {
  if (!Array.isArray(keys) || keys.length === 0) {
    throw expected('keys', 'an array with at least one key', keys)
  }
  for (const key of keys) checkKey(key)
  return [...new Set(keys)].sort((one, other) => (one < other ? -1 : 1))
}

/** Begins the releases in reverse order, and does not wait in between: a slow release must not delay the others. */
async function releaseAll(leases: readonly HeldLease[]): Promise<void> {
  await Promise.all([...leases].reverse().map((lease) => lease.release()))
}
