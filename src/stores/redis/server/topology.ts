import type { StoreError } from '../../../errors.ts'
import type { MessageListener, MessageSubscription } from './client-link.ts'
import type { Script, Scripts } from './scripts.ts'
import type { StoredRooms } from './stored-rooms.ts'

/** The servers of a store: one, or those of a cluster. */
export interface Topology {
  readonly scripts: Scripts
  /** Groups requests by the partition of their rooms. Each group keeps their order. */
  divide<Asked extends { readonly key: string }>(
    asked: readonly Asked[],
  ): readonly (readonly [Partition, readonly Asked[]])[]
  /** For the wakes of this store object. */
  subscribe(inbox: string, listener: MessageListener): MessageSubscription
  /** A step through the Redis keys that match a pattern. */
  scan(from: string, request: ScanRequest): Promise<Scanned>
  /** Whether the rooms are read from a replica. */
  isReplica(): Promise<boolean>
  /** @throws {StoreError} when it was closed. */
  assertOpen(): void
  /** The error for the caller of a request that failed with `error`. */
  failure(error: unknown, key?: string): StoreError
  close(): void
}

/** The keys that one script may reach: those of a whole server, or those of one slot of a cluster. */
export interface Partition {
  /** The name of the key that holds the last fence of this partition's rooms. */
  readonly fence: string
  /** Runs a script. `args[0]` is left empty and is filled here; then come the number of keys, the keys, and the rest. */
  run(script: Script, args: string[]): Promise<unknown>
  /** What is stored under the names of rooms. Needs no right to write. */
  read(names: readonly string[]): Promise<StoredRooms>
  /** A ticket of this process waits for a key of this partition, and asks again after so long at the latest. */
  awaited?(askAgainMs: number): void
}

export interface ScanRequest {
  readonly pattern: string
  readonly count: number
}

export interface Scanned {
  readonly names: readonly string[]
  /** Where this step really began: not at `from` if the server of `from` is gone. */
  readonly at: string
  /** Where the next step begins; undefined after the last one. */
  readonly next: string | undefined
}

/** Where the first step of every scan begins. */
export const SCAN_START = ''
