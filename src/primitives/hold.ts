import type { Ticket } from '../contract/store.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import type { Lease } from '../engine/lease.ts'
import { AcquireTimeoutError, DeadlockError } from '../errors.ts'
import { beginWait, heldHere, runInScope, selfDeadlock } from './held-keys.ts'
import { checkCallback, checkKey, type Shape, type Terms } from './options.ts'

/** Makes tickets; one per `createLocks`. */
export interface Desk {
  readonly engine: Engine
  readonly owner: string
  readonly nextId: () => string
}

/** Whether the work ran, and if it did, what it returned. */
export type Outcome<T> = { readonly ran: true; readonly value: T } | { readonly ran: false }

const NOT_RUN = { ran: false } as const

/** Waits for the key. Throws what is wrong with the call; returns without a promise when the store answers at once. */
export function hold(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
  startedAtMs?: number,
): HeldLease | Promise<HeldLease> {
  checkKey(key)
  if (heldHere(desk.engine, key) !== undefined) throw selfDeadlock(key)
  const waiting = beginWait(desk.engine, key, shape)
  // Asks once even without patience; the engine waits for an answer, but not for the key.
  const patienceMs = terms.waitMs === 0 ? 0 : terms.patienceMs
  const lease = desk.engine.acquire({
    ticket: makeTicket(desk, key, desk.nextId(), shape, terms, patienceMs),
    waitMs: terms.waitMs,
    startedAtMs,
    signal: terms.signal,
    lease: terms,
    whileQueued: waiting === undefined ? undefined : () => waiting.check(),
  })
  if (!(lease instanceof Promise)) return lease ?? refuse(key)
  // Nobody who is willing to wait gets `null`, and outside of a scope there is nothing to end: no need for another promise.
  if (waiting === undefined && patienceMs > 0) return lease as Promise<HeldLease>
  return granted(key, lease, waiting)
}

/** Does not wait: `null` when it is busy. Returns without a promise when the store answers at once. */
export function tryHold(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
): HeldLease | null | Promise<HeldLease | null> {
  checkKey(key)
  return desk.engine.acquire({
    ticket: makeTicket(desk, key, desk.nextId(), shape, terms, 0),
    waitMs: 0,
    startedAtMs: undefined,
    signal: terms.signal,
    lease: terms,
    whileQueued: undefined,
  })
}

/**
 * A promise of what is there already, or comes; what is wrong with the call rejects it. Instead of an async function,
 * which would give everybody who waits a second promise, and two more turns of the microtask queue after each hand-over.
 */
export function promised<T>(take: () => T | Promise<T>): Promise<T> {
  try {
    const taken = take()
    return taken instanceof Promise ? taken : Promise.resolve(taken)
  } catch (error) {
    return Promise.reject(error)
  }
}

export async function withHold<T>(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
  work: (lease: Lease) => Promise<T> | T,
): Promise<T> {
  checkCallback(work)
  const outer = terms.reentrant ? heldAlready(desk, key, shape) : undefined
  if (outer !== undefined) return runInside(desk, outer, work)
  const held = hold(desk, key, shape, terms)
  const lease = held instanceof Promise ? await held : held
  try {
    return await runUnder(desk, lease, work, runObserved)
  } finally {
    await letGo(lease)
  }
}

export async function tryWithHold<T>(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
  work: (lease: Lease) => Promise<T> | T,
): Promise<Outcome<T>> {
  checkCallback(work)
  const outer = terms.reentrant ? heldAlready(desk, key, shape) : undefined
  if (outer !== undefined) return { ran: true, value: await runInside(desk, outer, work) }
  const held = tryHold(desk, key, shape, terms)
  const lease = held instanceof Promise ? await held : held
  if (lease === null) return NOT_RUN
  try {
    return { ran: true, value: await runUnder(desk, lease, work, runObserved) }
  } finally {
    await letGo(lease)
  }
}

/**
 * Runs the work, and rejects when the lease was lost meanwhile: the work may have run side by side with another holder's. An
 * error of the work itself comes first.
 */
async function runUnder<T>(
  desk: Desk,
  lease: HeldLease,
  work: (lease: Lease) => Promise<T> | T,
  run: typeof runInScope,
): Promise<T> {
  const value = await run(desk.engine, lease, work)
  lease.assertKept()
  return value
}

/** The scope inside: who listens may have the work run in any async context, and it still knows what it holds. */
export function runObserved<T>(engine: Engine, lease: HeldLease, work: (lease: HeldLease) => T): T {
  return lease.runObserved(() => runInScope(engine, lease, work))
}

/** Runs under a lease that is there already, and is counted: the lease is not released before all of these are done. */
function runInside<T>(desk: Desk, lease: HeldLease, work: (lease: Lease) => Promise<T> | T): Promise<T> {
  lease.inner ??= new Set()
  const { inner } = lease
  const run = runUnder(desk, lease, work, runInScope)
  inner.add(run)
  return run.finally(() => inner.delete(run))
}

async function letGo(lease: HeldLease): Promise<void> {
  await innerDone(lease)
  await lease.release()
}

export async function innerDone(lease: HeldLease): Promise<void> {
  // One that is done may have begun another one.
  while (lease.inner !== undefined && lease.inner.size > 0) await Promise.allSettled(lease.inner)
}

async function granted(
  key: string,
  lease: Promise<HeldLease | null>,
  waiting: { end(): void } | undefined,
): Promise<HeldLease> {
  try {
    return (await lease) ?? refuse(key)
  } finally {
    waiting?.end()
  }
}

/** Covers what is wanted: who holds exclusively may also read, but who reads may not write. */
function heldAlready(desk: Desk, key: string, shape: Shape): HeldLease | undefined {
  checkKey(key)
  const held = heldHere(desk.engine, key)
  if (held === undefined) return undefined
  if (held.ticket.limit <= shape.limit && held.ticket.units >= shape.units) return held
  throw new DeadlockError(
    `This async context holds ${JSON.stringify(key)} in a weaker mode, and a lease cannot be upgraded: two that try would wait for each other. Take the stronger mode from the start.`,
    { key },
  )
}

function refuse(key: string): never {
  throw new AcquireTimeoutError(`${JSON.stringify(key)} is held, and \`wait\` is 0.`, { key, waitedMs: 0 })
}

export function makeTicket(
  desk: Desk,
  key: string,
  id: string,
  shape: Shape,
  terms: Terms,
  patienceMs: number,
): Ticket {
  return {
    key,
    id,
    units: shape.units,
    limit: shape.limit,
    ttlMs: terms.ttlMs,
    acceptMs: terms.acceptMs,
    patienceMs,
    minHoldMs: terms.minHoldMs,
    lockDelayMs: terms.lockDelayMs,
    owner: desk.owner,
  }
}
