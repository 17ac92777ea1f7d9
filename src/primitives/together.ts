import { expected } from '../base/arguments.ts'
import { show } from '../base/duration.ts'
import { acquireAll } from '../engine/acquire-all.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import type { Lease, LeaseJson, LeaseState } from '../engine/lease.ts'
import { InvalidArgumentError } from '../errors.ts'
import { heldHere, runInScope } from './held-keys.ts'
import { type Desk, hold, innerDone, makeTicket, type Outcome, tryHold } from './hold.ts'
import { checkCallback, checkKey, EXCLUSIVE, type Terms } from './options.ts'

/** Several keys, held together: all of them, or none. */
export interface LeaseSet extends AsyncDisposable {
  /** In canonical order, without repetitions. */
  readonly keys: readonly string[]
  readonly leases: readonly Lease[]
  /** The worst of the leases' states. */
  readonly state: LeaseState
  /** The least of the leases' times. */
  readonly remainingMs: number
  /** Aborts as soon as one of the leases is lost. */
  readonly signal: AbortSignal
  /** The fence of one of the keys. Guards are per resource, so each takes the fence of its own key. */
  fence(key: string): bigint
  assertHeld(): void
  /** Renews all; see {@link Lease.extend}. */
  extend(ttl?: number | string): Promise<void>
  /** Releases all, in reverse. Never rejects. */
  release(): Promise<void>
  toJSON(): LeaseJson[]
}

/**
 * Takes several keys at once where the store can and all are free. Or else one after the other in canonical order, under
 * one deadline for the wait: everybody takes them in the same order, so two calls never wait for each other; what is held
 * already is renewed while the rest is awaited.
 */
export async function holdTogether(desk: Desk, keys: readonly string[], terms: Terms): Promise<LeaseSet> {
  refuseMinHold(terms)
  const startedAt = desk.engine.clock.monotonicMs()
  const ordered = canonical(keys)
  const atOnce = await takeAtOnce(desk, ordered, terms)
  if (atOnce !== undefined) return atOnce
  const leases: HeldLease[] = []
  try {
    for (const key of ordered) {
      const waitedMs = desk.engine.clock.monotonicMs() - startedAt
      // At least a millisecond: without any patience it would be refused without having waited its turn.
      const waitMs = terms.waitMs === 0 ? 0 : Math.max(1, terms.waitMs - waitedMs)
      // Inside the scopes of what it holds already, so that a circle through a half-taken set is found, too.
      const take = () => hold(desk, key, EXCLUSIVE, { ...terms, waitMs }, startedAt)
      leases.push(await runInScopes(desk.engine, leases, take))
    }
    // The first may have been lost while the last was awaited.
    for (const lease of leases) lease.assertHeld()
    return new Together(leases)
  } catch (error) {
    await releaseAll(leases)
    throw error
  }
}

export async function tryHoldTogether(
  desk: Desk,
  keys: readonly string[],
  terms: Terms,
): Promise<LeaseSet | null> {
  refuseMinHold(terms)
  const ordered = canonical(keys)
  const atOnce = await takeAtOnce(desk, ordered, terms)
  if (atOnce !== undefined) return atOnce
  const leases: HeldLease[] = []
  try {
    for (const key of ordered) {
      const lease = await tryHold(desk, key, EXCLUSIVE, terms)
      if (lease === null) {
        await releaseAll(leases)
        return null
      }
      leases.push(lease)
    }
    for (const lease of leases) lease.assertHeld()
    return new Together(leases)
  } catch (error) {
    await releaseAll(leases)
    throw error
  }
}

/** Nobody waits here, so the order does not matter. Undefined where they have to be taken one by one. */
async function takeAtOnce(desk: Desk, keys: readonly string[], terms: Terms): Promise<LeaseSet | undefined> {
  const { engine } = desk
  if (keys.length === 1 || engine.store.acquireAll === undefined) return undefined
  if (keys.some((key) => heldHere(engine, key) !== undefined)) return undefined
  const leases = await acquireAll(
    engine,
    keys.map((key) => ({
      ticket: makeTicket(desk, key, desk.nextId(), EXCLUSIVE, terms, 0),
      waitMs: terms.waitMs,
      signal: terms.signal,
      lease: terms,
      whileQueued: undefined,
    })),
  )
  return leases === undefined ? undefined : new Together(leases)
}

export async function withHoldTogether<T>(
  desk: Desk,
  keys: readonly string[],
  terms: Terms,
  work: (leases: LeaseSet) => Promise<T> | T,
): Promise<T> {
  checkCallback(work)
  return runUnder(desk, await holdTogether(desk, keys, terms), work)
}

export async function tryWithHoldTogether<T>(
  desk: Desk,
  keys: readonly string[],
  terms: Terms,
  work: (leases: LeaseSet) => Promise<T> | T,
): Promise<Outcome<T>> {
  checkCallback(work)
  const leases = await tryHoldTogether(desk, keys, terms)
  if (leases === null) return { ran: false }
  return { ran: true, value: await runUnder(desk, leases, work) }
}

async function runUnder<T>(
  desk: Desk,
  leases: LeaseSet,
  work: (leases: LeaseSet) => Promise<T> | T,
): Promise<T> {
  const held = leases.leases as readonly HeldLease[]
  try {
    const value = await runObserved(desk.engine, held, () => work(leases))
    for (const lease of held) lease.assertKept()
    return value
  } finally {
    for (const lease of held) await innerDone(lease)
    await leases.release()
  }
}

/** The scopes inside, as for one lease. */
function runObserved<T>(engine: Engine, leases: readonly HeldLease[], work: () => T): T {
  const inScopes = () => runInScopes(engine, leases, work)
  return leases.reduceRight<() => T>((inner, lease) => () => lease.runObserved(inner), inScopes)()
}

function runInScopes<T>(engine: Engine, leases: readonly HeldLease[], work: () => T): T {
  return leases.reduceRight<() => T>((inner, lease) => () => runInScope(engine, lease, inner), work)()
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

  async extend(ttl?: number | string): Promise<void> {
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

/** One of the keys may be given back because another one is busy, and would then stay taken although nothing has run. */
function refuseMinHold({ minHoldMs }: Terms): void {
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

/** In reverse, and side by side: a release that takes long must not keep the others. */
async function releaseAll(leases: readonly HeldLease[]): Promise<void> {
  await Promise.all([...leases].reverse().map((lease) => lease.release()))
}
