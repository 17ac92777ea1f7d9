import { AsyncResource } from 'node:async_hooks'

/** Made when the module is loaded, which is in nobody's context. */
const nobody = new AsyncResource('holdfast')

/**
 * Runs work in no caller's async context. What the engine does later – timers, renewals, abort listeners – belongs to all
 * callers together; started in the context of whoever came first, it would run (and keep alive) that caller's
 * AsyncLocalStorage: another request's trace, user, and scope of held keys.
 */
export function outsideOfCallers<T>(work: () => T): T {
  return nobody.runInAsyncScope(work)
}
