import { afterEach, expect, onTestFinished } from 'vitest'
import { systemClock } from '../../src/base/clock.ts'
import type { Clock } from '../../src/contract/clock.ts'
import type { RoomView, Store } from '../../src/contract/store.ts'
import { Engine } from '../../src/engine/engine.ts'
import { nextTicketId } from '../../src/engine/ids.ts'
import { Locks } from '../../src/primitives/locks.ts'
import { type LocksOptions, parseSettings, TAKES } from '../../src/primitives/options.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock, settled } from './fake-clock.ts'
import { ScriptedStore } from './scripted-store.ts'

/** One process that uses a store: its engine, and the locks on it. */
export interface Process {
  readonly engine: Engine
  readonly locks: Locks
}

export function startProcess(
  store: Store,
  clock: Clock,
  chance: () => number = () => 0.5,
  defaults: LocksOptions = {},
): Process {
  const engine = new Engine(store, { clock, chance })
  const context = { engine, owner: '{"label":"test"}', nextId: nextTicketId }
  return { engine, locks: new Locks(context, parseSettings(defaults, TAKES.locks)) }
}

export interface Scene extends Process {
  readonly clock: FakeClock
  readonly store: ScriptedStore
  /** Another process. Its own connection is never disturbed. */
  readonly other: Process
  rooms(): Promise<readonly RoomView[]>
}

export interface SceneOptions {
  readonly takesAll?: boolean
  /** Whether messages may be leases. Otherwise all of them are hints, as those of PostgreSQL and etcd. Default: true. */
  readonly grants?: boolean
}

/**
 * Fake time, and two processes at one store: one behind a scripted network, and one whose requests always get through.
 */
export function scene({ takesAll = false, grants = true }: SceneOptions = {}): Scene {
  const clock = new FakeClock()
  const real = memoryStore({ now: clock.storeTime, reaches: () => grants })
  const store = new ScriptedStore(real, { takesAll })
  const here = startProcess(store, clock)
  const other = startProcess(new ScriptedStore(real), clock)
  onTestFinished(async () => {
    await settled()
    expect(await roomsOf(real)).toEqual([])
    for (const { engine } of [here, other]) expect(engine.waiting).toEqual([])
    expect(clock.timers.keepingAlive).toBe(0)
  })
  return { ...here, clock, store, other, rooms: () => roomsOf(real) }
}

/** Real time, and a memory store that answers at once. */
export function realScene(): Process & { readonly store: Store } {
  const store = memoryStore()
  const here = startProcess(store, systemClock)
  onTestFinished(async () => {
    await settled()
    expect(await roomsOf(store)).toEqual([])
    expect(here.engine.waiting).toEqual([])
  })
  return { ...here, store }
}

/** Lets wakes flow, as the holder does that listens to a signal. */
export async function startWakes(locks: Locks): Promise<void> {
  const lease = await locks.acquire('listened to')
  expect(lease.signal.aborted).toBe(false)
  await lease.release()
}

/** The present state of a promise, without waiting for it. */
export async function outcomeOf(promise: Promise<unknown>): Promise<unknown> {
  promise.catch(() => {})
  await settled()
  const pending = Symbol('pending')
  try {
    const value = await Promise.race([promise, Promise.resolve(pending)])
    return value === pending ? 'pending' : { value }
  } catch (error) {
    return { error }
  }
}

/** The error with which a promise rejects. */
export async function errorOf(promise: Promise<unknown>): Promise<Error & Record<string, unknown>> {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  )
  if ('error' in outcome && outcome.error instanceof Error)
    return outcome.error as Error & Record<string, unknown>
  throw new Error(`Expected a rejection with an error, got ${JSON.stringify(outcome)}`)
}

async function roomsOf(store: Store): Promise<readonly RoomView[]> {
  return (await store.inspect({ prefix: '', cursor: undefined, count: 10_000 })).rooms
}

const unhandled: unknown[] = []
process.on('unhandledRejection', (reason) => unhandled.push(reason))
afterEach(async () => {
  await settled()
  expect(unhandled.splice(0)).toEqual([])
})
