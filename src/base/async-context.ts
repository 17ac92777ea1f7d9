import { AsyncResource } from 'node:async_hooks'

/**
 * Made when the module is loaded: in nobody's context, as a rule. Where the first `import('holdfast')` of a process is made
 * while a request is served, that one request's context stays, for as long as the process lives. Node.js 20 has no way to
 * run something in no context at all.
 */
const nobody = new AsyncResource('holdfast')

/**
 * Runs work in no caller's async context, but in that of whoever loaded the module. What the engine does later – timers,
 * renewals, abort listeners – belongs to all callers together; started in the context of whoever came first, it would run
 * (and keep alive) that caller's AsyncLocalStorage: another request's trace, user, and scope of held keys.
 */
export function outsideOfCallers<T>(work: () => T): T {
  return nobody.runInAsyncScope(work)
}
