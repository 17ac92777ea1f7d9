import type { ExecutionStats } from './execution.ts'

/** A resource is locked by somebody else. Told as an `error` event, and among the votes of an {@link ExecutionError}. */
export class ResourceLockedError extends Error {
  override readonly name = 'ResourceLockedError'
}

/** An operation could not be done. `cause` is the error of Holdfast that says why. */
export class ExecutionError extends Error {
  override readonly name = 'ExecutionError'
  /** One at most, as nothing is tried over and over: see docs/redlock-compat.md. */
  readonly attempts: readonly Promise<ExecutionStats>[]

  constructor(message: string, attempts: readonly Promise<ExecutionStats>[], cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.attempts = attempts
  }
}
