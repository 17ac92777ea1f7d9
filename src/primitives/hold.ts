import type { AcquireRequest } from '../engine/acquisition.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import type { Lease } from '../engine/lease.ts'
import { AcquireTimeoutError, DeadlockError, type HoldfastError } from '../errors.ts'
import { beginWait, heldHere, runInScope, selfDeadlock } from './held-keys.ts'
import { checkKey, type Shape, type Terms } from './options.ts'

/** Makes tickets; one per `createLocks`. */
export interface Desk {
  readonly engine: Engine
  readonly owner: string
  readonly nextId: () => string
}

/** The result of a try: the value of the callback, or that it never ran. */
export type Outcome<T> = { readonly acquired: true; readonly value: T } | { readonly acquired: false }

const NOT_ACQUIRED = { acquired: false } as const

/** Waits for the key. */
export async function hold(desk: Desk, key: string, shape: Shape, terms: Terms): Promise<HeldLease> {
  checkKey(key)
  if (heldHere(desk.engine, key) !== undefined) throw selfDeadlock(key)
  const waiting = beginWait(desk.engine, key, shape)
  try {
    // Asks once even without patience; the engine waits for an answer, but not for the key.
    const patienceMs = terms.waitMs === 0 ? 0 : terms.patienceMs
    const lease = await desk.engine.acquire(
      request(desk, key, shape, { ...terms, patienceMs }, waiting && (() => waiting.check())),
    )
    if (lease === null) throw busy(key)
    return lease
  } finally {
    waiting?.end()
  }
}

/** Does not wait: `null` when it is busy. Returns without a promise when the store answers at once. */
export function tryHold(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
): HeldLease | null | Promise<HeldLease | null> {
  checkKey(key)
  return desk.engine.acquire(request(desk, key, shape, { ...terms, patienceMs: 0, waitMs: 0 }, undefined))
}

export async function withHold<T>(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
  work: (lease: Lease) => Promise<T> | T,
): Promise<T> {
  const outer = terms.reentrant ? heldAlready(desk, key, shape) : undefined
  if (outer !== undefined) return work(outer)
  return runUnder(desk, await hold(desk, key, shape, terms), work)
}

export async function tryWithHold<T>(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
  work: (lease: Lease) => Promise<T> | T,
): Promise<Outcome<T>> {
  const outer = terms.reentrant ? heldAlready(desk, key, shape) : undefined
  if (outer !== undefined) return { acquired: true, value: await work(outer) }
  const lease = await tryHold(desk, key, shape, terms)
  if (lease === null) return NOT_ACQUIRED
  return { acquired: true, value: await runUnder(desk, lease, work) }
}

/**
 * Runs the work and releases. An error of the work comes first; without one, a lease that was lost on the way is an
 * error, because the work may have run side by side with another holder's.
 */
async function runUnder<T>(desk: Desk, lease: HeldLease, work: (lease: Lease) => Promise<T> | T): Promise<T> {
  try {
    const value = await runInScope(desk.engine, lease, () => work(lease))
    if (lease.state !== 'released') lease.assertHeld()
    return value
  } finally {
    const released = lease.releaseNow()
    if (released !== undefined) await released
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

function busy(key: string): AcquireTimeoutError {
  return new AcquireTimeoutError(`${JSON.stringify(key)} is held, and \`wait\` is 0.`, { key, waitedMs: 0 })
}

function request(
  desk: Desk,
  key: string,
  shape: Shape,
  terms: Terms,
  whileQueued: (() => HoldfastError | undefined) | undefined,
): AcquireRequest {
  return {
    ticket: {
      key,
      id: desk.nextId(),
      units: shape.units,
      limit: shape.limit,
      ttlMs: terms.ttlMs,
      acceptMs: terms.acceptMs,
      patienceMs: terms.patienceMs,
      minHoldMs: terms.minHoldMs,
      lockDelayMs: terms.lockDelayMs,
      owner: desk.owner,
    },
    waitMs: terms.waitMs,
    signal: terms.signal,
    lease: terms,
    whileQueued,
  }
}
