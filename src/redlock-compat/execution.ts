import type { IoredisClient } from '../stores/redis/index.ts'

/** A `Redis` or `Cluster` of the package ioredis. */
export type Client = IoredisClient & { quit(): Promise<unknown> }

export interface ExecutionStats {
  readonly membershipSize: number
  readonly quorumSize: number
  readonly votesFor: Set<Client>
  readonly votesAgainst: Map<Client, Error>
}

/** Exists so that imports of this type from redlock compile. Nothing here returns one. */
export type ClientExecutionResult =
  | { client: Client; vote: 'for'; value: number }
  | { client: Client; vote: 'against'; error: Error }

export interface ExecutionResult {
  readonly attempts: readonly Promise<ExecutionStats>[]
}
