import type { StoreError } from '../../../errors.ts'
import type { MessageListener, Subscription } from './client-link.ts'
import type { Script, Scripts } from './scripts.ts'

/** Where the rooms of a store are: on one server, or on those of a cluster. */
export interface Servers {
  readonly scripts: Scripts
  /** Requests by where their rooms are, in their order. */
  divide<Asked extends { readonly key: string }>(
    asked: readonly Asked[],
  ): readonly (readonly [Place, readonly Asked[]])[]
  /** For the wakes of this store object. */
  subscribe(inbox: string, listener: MessageListener): Subscription
  /** Some of the Redis keys that are like a pattern, and where to go on: `undefined` when there are no more. */
  scan(from: string, request: ScanRequest): Promise<Scanned>
  /** @throws {StoreError} when it was closed. */
  assertOpen(): void
  /** The error for the caller of a request that failed with `error`. */
  failure(error: unknown, key?: string): StoreError
  close(): void
}

/** What a script may reach at once: a whole server, or one slot of a cluster. */
export interface Place {
  /** The last fence that was given for a room of this place. */
  readonly fence: string
  /** `args` begins with a place for the script's name, then come the number of keys, the keys, and the rest. */
  run(script: Script, args: string[]): Promise<unknown>
  /** For a script that only reads. */
  runUnproven(script: Script, args: string[]): Promise<unknown>
  /** Somebody here waits for a key of this place, and asks again after so long at the latest. */
  awaited?(askAgainMs: number): void
}

export interface ScanRequest {
  readonly pattern: string
  readonly count: number
}

export interface Scanned {
  readonly names: readonly string[]
  /** From where that really was: elsewhere if the server of `from` is not there any more. */
  readonly at: string
  readonly next: string | undefined
}

/** Where every scan begins. */
export const SCAN_START = ''
