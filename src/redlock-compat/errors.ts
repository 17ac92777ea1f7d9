import type { ExecutionStats } from './execution.ts'

/** A resource is locked by another holder. Emitted as an `error` event, and one of the votes of an {@link ExecutionError}. */
export class ResourceLockedError extends Error {
  /** The name of the class. */
  override readonly name = 'ResourceLockedError'
}

/** An operation failed. `cause` is the error of Holdfast that says why. */
export class ExecutionError extends Error {
  /** The name of the class. */
  override readonly name = 'ExecutionError'
  /** As many as redlock would have made, up to 1000, all with the result of the one that was made. */
  readonly attempts: readonly Promise<ExecutionStats>[]

  constructor(message: string, attempts: readonly Promise<ExecutionStats>[], cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.attempts = attempts
  }
}
