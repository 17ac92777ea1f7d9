import { AsyncLocalStorage } from 'node:async_hooks'
import { processWide } from '../base/process-wide.ts'
import type { WaitWatch } from '../engine/acquire-request.ts'
import type { Engine } from '../engine/engine.ts'
import type { HeldLease } from '../engine/held-lease.ts'
import { DeadlockError } from '../errors.ts'
import { isHeld, type Scope, Wait, type WaitTerms } from './wait-circles.ts'

/**
 * Scopes nest, so they say which keys the running async context holds. A lease from `acquire()` has no scope, because the caller
 * may pass it to any code.
 *
 * Scopes find two kinds of deadlock. The context waits for a key that it holds already. Or waits depend on one another in a circle:
 * see {@link Wait}. A wait is recorded only when a call is queued, so the usual lock pays for the scope alone.
 */
const running = processWide('running scopes', () => new AsyncLocalStorage<Scope>())

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
  const scope = { engine, lease, outer: heldScope(), waits: undefined }
  return running.run(scope, work, lease)
}

/** The scopes of leases that are held together, one inside the other. Each is made once, however often they are entered. */
export class ScopeChain {
  readonly #engine: Engine
  #innermost: Scope | undefined = heldScope()

  constructor(engine: Engine) {
    this.#engine = engine
  }

  add(lease: HeldLease): void {
    this.#innermost = { engine: this.#engine, lease, outer: this.#innermost, waits: undefined }
  }

  run<T>(work: () => T): T {
    return this.#innermost === undefined ? work() : running.run(this.#innermost, work)
  }
}

/**
 * The innermost scope of the running context that still holds. Takes the scopes whose lease is over out of the chain. Otherwise a
 * timer or a stream that outlives its lock, and locks again and again, would make the chain longer without end.
 */
function heldScope(): Scope | undefined {
  let innermost = running.getStore()
  while (innermost !== undefined && !isHeld(innermost)) innermost = innermost.outer
  for (let scope = innermost; scope !== undefined; scope = scope.outer) {
    while (scope.outer !== undefined && !isHeld(scope.outer)) scope.outer = scope.outer.outer
  }
  return innermost
}

/** The innermost lease on this key that the running context holds, or the innermost one that `suffices`. */
export function heldHere(
  engine: Engine,
  key: string,
  suffices?: (lease: HeldLease) => boolean,
): HeldLease | undefined {
  for (let scope = running.getStore(); scope !== undefined; scope = scope.outer) {
    // A scope outlives its lease if the callback started work that it did not await.
    if (scope.engine !== engine || scope.lease.key !== key || !isHeld(scope)) continue
    if (suffices === undefined || suffices(scope.lease)) return scope.lease
  }
  return undefined
}

export function selfDeadlock(key: string): DeadlockError {
  return new DeadlockError(
    `This async context holds ${JSON.stringify(key)} already, so waiting for it again may never end. Pass the lease along, take all permits at once, or give \`withLock\`, \`read\`, \`write\` or \`withPermits\` the option \`reentrant: true\`.`,
    { key },
  )
}

/** Watches a wait of the running context. Make it before the request is sent. */
export function watchWait(engine: Engine, terms: WaitTerms): WaitWatch {
  return new Wait(engine, terms, running.getStore())
}
