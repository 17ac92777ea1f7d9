import { createLocks, type Locks } from '../index.ts'
import { redisStore } from '../stores/redis/index.ts'
import { redlockStore } from '../stores/redlock/index.ts'
import type { Client } from './execution.ts'

/** What all `Redlock` objects of this process use that were made with the same clients. */
export interface SharedLocks {
  readonly clients: ReadonlySet<Client>
  readonly maxTtl: number
  readonly locks: Locks
}

/** By each of their clients, and for as long as these are used. */
const known = new WeakMap<Client, Set<SharedLocks>>()

/**
 * The locks on these clients, whatever their order. Programs make a `Redlock` for each lock they take, and that costs a
 * connection only once.
 *
 * @throws {InvalidArgumentError} when a client or `maxTtl` is not what it should be.
 */
export function sharedLocks(clients: ReadonlySet<Client>, maxTtl: number): SharedLocks {
  const [first, ...others] = [...clients] as [Client, ...Client[]]
  for (const shared of known.get(first) ?? []) {
    const isSame =
      shared.clients.size === clients.size && [...clients].every((one) => shared.clients.has(one))
    // One server has no use for the longest ttl.
    if (isSame && (others.length === 0 || shared.maxTtl === maxTtl)) return shared
  }
  const store = others.length === 0 ? redisStore(first) : redlockStore([first, ...others], { maxTtl })
  const shared = { clients, maxTtl, locks: createLocks(store) }
  for (const client of clients) known.set(client, (known.get(client) ?? new Set()).add(shared))
  return shared
}

/** Whoever comes next with these clients gets other ones. */
export function forget(shared: SharedLocks): void {
  for (const client of shared.clients) known.get(client)?.delete(shared)
}
