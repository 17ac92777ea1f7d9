import { AsyncLocalStorage } from 'node:async_hooks'
import { processWide } from '../base/process-wide.ts'
import { InvalidArgumentError } from '../errors.ts'
import type { OutgoingResponse } from '../http/index.ts'
import type { Lease } from '../index.ts'

/** The lease and the signal of the running method with `@WithLock`. */
export interface CurrentLock {
  /** The lease on the key of the method. */
  readonly lease: Lease
  /** Aborts when the lease is lost, and when the client of the request has gone. */
  readonly signal: AbortSignal
}

interface Running {
  readonly request?: { readonly response: OutgoingResponse; isOver: boolean }
  readonly background?: { isOver: boolean }
  readonly lock?: CurrentLock
}

const running = processWide('running methods', () => new AsyncLocalStorage<Running>())

/**
 * The lease of the method with `@WithLock` that is running: for its fence, for `assertHeld()`, and for the signal to hand to what
 * can be aborted. The innermost one, where such methods call one another.
 *
 * ```ts
 * import { currentLock } from 'holdfast/nestjs'
 *
 * export async function download(url: string): Promise<string> {
 *   const { lease, signal } = currentLock()
 *   const answer = await fetch(url, { signal })
 *   lease.assertHeld()
 *   return answer.text()
 * }
 * ```
 *
 * @throws {InvalidArgumentError} outside of such a method.
 */
export function currentLock(): CurrentLock {
  const lock = running.getStore()?.lock
  if (lock !== undefined) return lock
  throw new InvalidArgumentError(
    'Expected `currentLock()` to be called in a method with `@WithLock`, or by what that calls, got no lock there.',
  )
}

export function runUnder<T>(lock: CurrentLock, work: () => T): T {
  return running.run({ ...running.getStore(), lock }, work)
}

/** Returns what `work` returns, and a function for the end of the request. */
export function runForRequest<T>(response: OutgoingResponse, work: () => T): [result: T, end: () => void] {
  const request = { response, isOver: false }
  const end = () => {
    request.isOver = true
  }
  return [running.run({ request }, work), end]
}

/**
 * The response of the HTTP request that is being answered, if there is one. What a request has started and not awaited, such as a timer,
 * is no longer part of it.
 */
export function currentResponse(): OutgoingResponse | undefined {
  const request = running.getStore()?.request
  return request?.isOver === false ? request.response : undefined
}

/** For a method with `@Scheduled` or `@OnLeadership`. */
export async function runInBackground(work: () => unknown): Promise<void> {
  const background = { isOver: false }
  try {
    await running.run({ background }, work)
  } finally {
    background.isOver = true
  }
}

/** Whether such a method is running. What it has started, and has not awaited, is no longer part of it. */
export function isInBackground(): boolean {
  return running.getStore()?.background?.isOver === false
}
