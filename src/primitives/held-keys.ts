import { AsyncLocalStorage } from 'node:async_hooks'
import { processWide } from '../base/process-wide.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { DeadlockError } from '../errors.ts'
import { excludeEachOther, type Share } from '../law/law.ts'

/**
 * One callback of a callback form (`withLock(key, work)`) while it runs under its lease. Scopes nest, so they say which keys
 * the running async context holds. A lease from `acquire()` has no scope, because the caller may pass it to any code.
 *
 * Scopes find two kinds of deadlock. The context waits for a key that it holds already. Or scopes wait for one another in a
 * cycle: the call that closes the cycle finds it. A wait is recorded only when a call is queued inside a scope, so the
 * usual lock pays for the scope alone.
 */
interface Scope {
  readonly engine: Engine
  readonly lease: HeldLease
  /** The scope around it, if it still holds. */
  outer: Scope | undefined
  /** The waits of calls inside this scope. The scope is assumed not to end before they do. */
  waits: Set<Wait> | undefined
}

interface Wait {
  readonly engine: Engine
  readonly key: string
  readonly share: Share
  readonly scope: Scope
  /** All scopes whose `waits` contain this wait. Some of them may leave the chain of `outer` later. */
  readonly within: Scope[]
  readonly stack: Error
}

const running = processWide('running scopes', () => new AsyncLocalStorage<Scope>())
/** The scopes that contain a wait, by the key of their lease. Only these can be part of a cycle. */
const waitedIn = processWide('waiting scopes', () => new Map<string, Set<Scope>>())

/**
 * Every callback form begins its work here. The clocks are read first, because more than the ttl may have passed between
 * the grant and this call.
 *
 * @throws {LeaseLostError} when the lease is over; the work has not begun.
 */
export function runInScope<T>(engine: Engine, lease: HeldLease, work: (lease: HeldLease) => T): T {
  lease.assertHeld()
  return runInScopeAtOnce(engine, lease, work)
}

/** For a lease that this very call was granted, without an `await` in between. A third look at the clock would be felt. */
export function runInScopeAtOnce<T>(engine: Engine, lease: HeldLease, work: (lease: HeldLease) => T): T {
  const outer = running.getStore()
  const scope = { engine, lease, outer, waits: undefined }
  if (outer !== undefined) forgetEnded(scope)
  return running.run(scope, work, lease)
}

/**
 * Takes the scopes whose lease is over out of the chain. Otherwise a timer or a stream that outlives its lock, and locks
 * again and again, would make the chain longer without end.
 */
function forgetEnded(innermost: Scope): void {
  for (let scope: Scope | undefined = innermost; scope !== undefined; scope = scope.outer) {
    while (scope.outer !== undefined && !isHeld(scope.outer)) scope.outer = scope.outer.outer
  }
}

/** The lease on this key that the running context holds, if it does. */
export function heldHere(engine: Engine, key: string): HeldLease | undefined {
  for (let scope = running.getStore(); scope !== undefined; scope = scope.outer) {
    // A scope outlives its lease if the callback started work that it did not await.
    if (scope.engine === engine && scope.lease.key === key && isHeld(scope)) return scope.lease
  }
  return undefined
}

export function selfDeadlock(key: string): DeadlockError {
  return new DeadlockError(
    `This async context holds ${JSON.stringify(key)} already, so waiting for it again may never end. Pass the lease along, take all permits at once, or set \`reentrant: true\`.`,
    { key },
  )
}

/**
 * Watches one wait of the running context. `check` records the wait and looks for a cycle. Call it each time the store
 * answers `queued`, because other waits may have closed a cycle meanwhile. `end` removes the wait.
 */
export function beginWait(
  engine: Engine,
  key: string,
  share: Share,
): { check(): DeadlockError | undefined; end(): void } | undefined {
  const scope = running.getStore()
  if (scope === undefined) return undefined
  let wait: Wait | undefined
  return {
    check() {
      wait ??= record({
        engine,
        key,
        share,
        scope,
        within: [],
        stack: new Error(`Waits for ${JSON.stringify(key)} here`),
      })
      return findCycle(wait)
    },
    end() {
      if (wait !== undefined) forget(wait)
    },
  }
}

function record(wait: Wait): Wait {
  for (let scope: Scope | undefined = wait.scope; scope !== undefined; scope = scope.outer) {
    scope.waits ??= new Set()
    scope.waits.add(wait)
    wait.within.push(scope)
    const scopes = waitedIn.get(scope.lease.key)
    if (scopes === undefined) waitedIn.set(scope.lease.key, new Set([scope]))
    else scopes.add(scope)
  }
  return wait
}

function forget(wait: Wait): void {
  for (const scope of wait.within) {
    scope.waits?.delete(wait)
    if (scope.waits !== undefined && scope.waits.size > 0) continue
    const scopes = waitedIn.get(scope.lease.key)
    scopes?.delete(scope)
    if (scopes?.size === 0) waitedIn.delete(scope.lease.key)
  }
}

function findCycle(start: Wait): DeadlockError | undefined {
  const visited = new Set<Wait>([start])
  const search = (wait: Wait): readonly Wait[] | undefined => {
    for (const holder of blockersOf(wait)) {
      if (encloses(holder, start.scope)) return [wait]
      for (const next of holder.waits ?? []) {
        if (visited.has(next)) continue
        visited.add(next)
        const path = search(next)
        if (path !== undefined) return [wait, ...path]
      }
    }
    return undefined
  }
  const path = search(start)
  return path === undefined ? undefined : cycleError(path)
}

/** The scopes of this process that must end before this wait can: they hold its key, and exclude its share. */
function* blockersOf(wait: Wait): Generator<Scope> {
  for (const scope of waitedIn.get(wait.key) ?? []) {
    if (scope.engine === wait.engine && isHeld(scope) && excludeEachOther(scope.lease.ticket, wait.share))
      yield scope
  }
}

function encloses(outer: Scope, inner: Scope): boolean {
  for (let scope: Scope | undefined = inner; scope !== undefined; scope = scope.outer)
    if (scope === outer) return true
  return false
}

function isHeld(scope: Scope): boolean {
  const state = scope.lease.state
  return state === 'held' || state === 'jeopardy'
}

function cycleError(path: readonly Wait[]): DeadlockError {
  const sides = path.map(
    (wait) => `one holds ${keysOf(wait.scope)} and waits for ${JSON.stringify(wait.key)}`,
  )
  const first = path[0]
  const last = path.at(-1)
  return new DeadlockError(
    `Calls in this process wait for one another: ${sides.join(', ')}. Take several keys with withLocks([…]), or always in the same order.`,
    { key: first?.key, cause: last === first ? undefined : last?.stack },
  )
}

function keysOf(inner: Scope): string {
  const keys: string[] = []
  for (let scope: Scope | undefined = inner; scope !== undefined; scope = scope.outer) {
    if (isHeld(scope)) keys.unshift(JSON.stringify(scope.lease.key))
  }
  return keys.join(' and ')
}
