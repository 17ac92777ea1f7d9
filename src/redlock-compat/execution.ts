import type { IoredisClient } from '../stores/redis/index.ts'

/** A `Redis` or `Cluster` of the package ioredis. */
export type Client = IoredisClient & { quit(): Promise<unknown> }

/** The votes on one attempt, in the shape of redlock. */
export interface ExecutionStats {
  /** How many servers there are. */
  readonly membershipSize: number
  /** How many of them make a majority. */
  readonly quorumSize: number
  /** The servers that agreed. */
  readonly votesFor: Set<Client>
  /** The servers that did not agree, each with its error. */
  readonly votesAgainst: Map<Client, Error>
}

/** Exists so that imports of this type from redlock compile. Nothing here returns one. */
export type ClientExecutionResult =
  | { client: Client; vote: 'for'; value: number }
  | { client: Client; vote: 'against'; error: Error }

/** What redlock's `release` resolves with. */
export interface ExecutionResult {
  /** The votes on each attempt. */
  readonly attempts: readonly Promise<ExecutionStats>[]
}
