import type { Ticket } from '../contract/store.ts'
import type { WaitWatch } from '../engine/acquire-request.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import type { Lease } from '../engine/lease.ts'
import { AcquireTimeoutError, DeadlockError } from '../errors.ts'
import { heldHere, runInScope, runInScopeAtOnce, selfDeadlock, watchWait } from './held-keys.ts'
import { checkCallback, checkKey, type HoldSettings, type Shape } from './options.ts'

/** What `createLocks` passes to everything that it makes. */
export interface LocksContext {
  readonly engine: Engine
  readonly owner: string
  readonly nextId: () => string
}

/**
 * What a caller runs under a lease, under several, or as a leader.
 *
 * @inline
 */
export type Work<L, T> = (held: L) => Promise<T> | T

/** Whether the work ran, and if it did, what it returned. */
export type Outcome<T> = { readonly ran: true; readonly value: T } | { readonly ran: false }

const NOT_RUN = { ran: false } as const

/** The key, how much of it, and the parsed options of the call. */
export interface HoldRequest {
  readonly key: string
  readonly shape: Shape
  readonly settings: HoldSettings
  /** Follows the wait, too. Passes what it hears on to `inner`. */
  readonly watching?: (inner: WaitWatch) => WaitWatch
}

/** Waits for the key. Throws if the call itself is wrong. Returns without a promise when the store answers at once. */
export function hold(
  context: LocksContext,
  { key, shape, settings, watching = itself }: HoldRequest,
): HeldLease | Promise<HeldLease> {
  checkKey(key)
  if (heldHere(context.engine, key) !== undefined) throw selfDeadlock(key)
  // With `wait: 0` it asks once: the engine waits for an answer, but not for the key.
  const patienceMs = settings.waitMs === 0 ? 0 : settings.patienceMs
  const ticket = makeTicket(context, { key, id: context.nextId(), shape, settings, patienceMs })
  const taken = settings.signal === undefined ? context.engine.take(ticket, settings) : undefined
  if (taken !== undefined) return taken
  const lease = context.engine.acquire({
    ticket,
    waitMs: settings.waitMs,
    startedAtMs: settings.startedAtMs,
    storeTimeoutMs: settings.storeTimeoutMs,
    maxWaiting: settings.maxWaiting,
    signal: settings.signal,
    lease: settings,
    watch:
      patienceMs === 0 ? undefined : watching(watchWait(context.engine, { ticket, waitMs: settings.waitMs })),
  })
  if (!(lease instanceof Promise)) return lease ?? refuse(key)
  // A call that waits never gets `null`, so no second promise is needed.
  return patienceMs > 0 ? (lease as Promise<HeldLease>) : lease.then((one) => one ?? refuse(key))
}

/** Does not wait: `null` when it is busy. Returns without a promise when the store answers at once. */
export function tryHold(
  context: LocksContext,
  { key, shape, settings }: HoldRequest,
): HeldLease | null | Promise<HeldLease | null> {
  checkKey(key)
  const ticket = makeTicket(context, { key, id: context.nextId(), shape, settings, patienceMs: 0 })
  const taken = settings.signal === undefined ? context.engine.take(ticket, settings) : undefined
  if (taken !== undefined) return taken
  return context.engine.acquire({
    ticket,
    waitMs: 0,
    startedAtMs: undefined,
    storeTimeoutMs: settings.storeTimeoutMs,
    signal: settings.signal,
    lease: settings,
    watch: undefined,
  })
}

/**
 * Returns the promise of `take`, or a promise of its value or its error. An async function would add a second promise for
 * each waiter, and two more turns of the microtask queue after each hand-over.
 */
export function promised<T>(take: () => T | Promise<T>): Promise<T> {
  try {
    const taken = take()
    return taken instanceof Promise ? taken : Promise.resolve(taken)
  } catch (error) {
    return Promise.reject(error)
  }
}

/** Waits for the key, runs the work and releases the key. Throws if the call itself is wrong. */
export function withHold<T>(
  context: LocksContext,
  request: HoldRequest,
  work: (lease: Lease) => Promise<T> | T,
): Promise<T> {
  checkCallback(work)
  const outer = request.settings.reentrant ? heldAlready(context, request) : undefined
  if (outer !== undefined) return runInside(context, outer, work)
  const held = hold(context, request)
  if (held instanceof Promise) return held.then((lease) => runAndRelease(context, lease, work))
  if (context.engine.events.working.isHeard) return runAndRelease(context, held, work)
  return thenRelease(held, () => runInScopeAtOnce(context.engine, held, work))
}

export async function tryWithHold<T>(
  context: LocksContext,
  request: HoldRequest,
  work: (lease: Lease) => Promise<T> | T,
): Promise<Outcome<T>> {
  checkCallback(work)
  const outer = request.settings.reentrant ? heldAlready(context, request) : undefined
  if (outer !== undefined) return { ran: true, value: await runInside(context, outer, work) }
  const held = tryHold(context, request)
  const lease = held instanceof Promise ? await held : held
  if (lease === null) return NOT_RUN
  return { ran: true, value: await runAndRelease(context, lease, work) }
}

function runAndRelease<T>(
  { engine }: LocksContext,
  lease: HeldLease,
  work: (lease: Lease) => Promise<T> | T,
): Promise<T> {
  return thenRelease(lease, () => runObserved(engine, lease, work))
}

/**
 * Rejects if the lease was lost meanwhile, because another holder may have worked at the same time. An error of the work
 * itself takes precedence. It makes one promise, beside that of the work: once AsyncLocalStorage is in use, as it is here,
 * each of them costs 60 ns more on Node.js 20, and an async function would make a second one.
 */
function thenRelease<T>(lease: HeldLease, run: () => Promise<T> | T): Promise<T> {
  let running: Promise<T>
  try {
    running = Promise.resolve(run())
  } catch (error) {
    running = Promise.reject(error)
  }
  return running.then(
    (value) => {
      const loss = lease.lossSoFar()
      const released = release(lease)
      return released === undefined ? valueUnless(loss, value) : released.then(() => valueUnless(loss, value))
    },
    (error: unknown) => {
      const released = release(lease)
      if (released === undefined) throw error
      return released.then(() => Promise.reject(error))
    },
  )
}

/** Returns `undefined` when there is nothing to wait for. */
function release(lease: HeldLease): Promise<void> | undefined {
  return lease.inner === undefined ? lease.releaseNow() : afterInner([lease], () => lease.releaseNow())
}

function valueUnless<T>(loss: Error | undefined, value: T): T {
  if (loss !== undefined) throw loss
  return value
}

/** The scope is innermost, so the work knows its keys even if a listener runs it in another async context. */
export function runObserved<T>(engine: Engine, lease: HeldLease, work: (lease: HeldLease) => T): T {
  return lease.runObserved(() => runInScope(engine, lease, work))
}

/** Runs under a lease that the caller holds already. The lease is not released before all such work is done. */
function runInside<T>(
  context: LocksContext,
  lease: HeldLease,
  work: (lease: Lease) => Promise<T> | T,
): Promise<T> {
  lease.inner ??= new Set()
  const { inner } = lease
  const run = runUnder(context, lease, work)
  inner.add(run)
  return run.finally(() => inner.delete(run))
}

async function runUnder<T>(
  context: LocksContext,
  lease: HeldLease,
  work: (lease: Lease) => Promise<T> | T,
): Promise<T> {
  const value = await runInScope(context.engine, lease, work)
  // The outer work may have released the lease. Then another holder may have worked at the same time.
  lease.assertHeld()
  return value
}

/**
 * Calls `next` as soon as no re-entrant work runs under any of the leases. The last look and the call are in the same turn, so no
 * such work begins in between if `next` releases the leases.
 */
export async function afterInner<T>(leases: readonly HeldLease[], next: () => T | Promise<T>): Promise<T> {
  for (;;) {
    const inner = leases.flatMap((lease) => [...(lease.inner ?? [])])
    if (inner.length === 0) return next()
    // Inner work that has ended may have begun more inner work.
    await Promise.allSettled(inner)
  }
}

/**
 * The innermost lease that covers the shape, to run under it: a write lock covers a read lock, but not the other way round.
 *
 * @throws {DeadlockError} when the context holds the key, and no lease covers the shape; the reason of the signal, because no
 * request follows that would look at it.
 */
function heldAlready(context: LocksContext, { key, shape, settings }: HoldRequest): HeldLease | undefined {
  checkKey(key)
  const covering = heldHere(
    context.engine,
    key,
    ({ ticket }) => ticket.limit <= shape.limit && ticket.units >= shape.units,
  )
  if (covering !== undefined) {
    settings.signal?.throwIfAborted()
    return covering
  }
  if (heldHere(context.engine, key) === undefined) return undefined
  throw new DeadlockError(
    `This async context holds ${JSON.stringify(key)} in a weaker mode, and a lease cannot be upgraded: two that try would wait for each other. Take the stronger mode from the start.`,
    { key },
  )
}

function itself(watch: WaitWatch): WaitWatch {
  return watch
}

function refuse(key: string): never {
  throw new AcquireTimeoutError(`${JSON.stringify(key)} is held, and \`wait\` is 0.`, { key, waitedMs: 0 })
}

export function makeTicket(
  { owner }: LocksContext,
  { key, id, shape, settings, patienceMs }: NewTicket,
): Ticket {
  return {
    key,
    id,
    units: shape.units,
    limit: shape.limit,
    ttlMs: settings.ttlMs,
    acceptMs: settings.acceptMs,
    patienceMs,
    minHoldMs: settings.minHoldMs,
    lockDelayMs: settings.lockDelayMs,
    owner,
  }
}

interface NewTicket extends HoldRequest {
  readonly id: string
  /** 0: never queue, whatever the settings say. */
  readonly patienceMs: number
}
