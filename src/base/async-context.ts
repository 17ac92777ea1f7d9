import { AsyncResource } from 'node:async_hooks'

/**
 * The async context in which this module was loaded. Usually it is empty. If a program first imports the module while
 * it serves a request, that request's context stays for the life of the process. Node.js 20 cannot run a function
 * without any context.
 */
const moduleContext = new AsyncResource('holdfast')

/**
 * Runs work outside the async context of the caller. All callers share the timers, renewals and abort listeners of the
 * engine. If these started in the context of the first caller, they would run in its AsyncLocalStorage. They would keep
 * alive its trace, its user, and its scope of held keys.
 */
export function outsideOfCallers<T>(work: () => T): T {
  return moduleContext.runInAsyncScope(work)
}

/** Runs a function of the user's that may enter an async context without leaving it (`enterWith`). The caller does not get that context. */
export function inContextOfItsOwn<T>(work: () => T): T {
  return new AsyncResource('holdfast').runInAsyncScope(work)
}
