import { createLocks, type Locks } from '../index.ts'
import { redisStore } from '../stores/redis/index.ts'
import { redlockStore } from '../stores/redlock/index.ts'
import type { Client } from './execution.ts'

/** The locks that all `Redlock` objects with the same clients share in this process. */
export interface SharedLocks {
  readonly clients: ReadonlySet<Client>
  readonly maxTtl: number
  readonly locks: Locks
}

/** The shared locks by each of their clients, for as long as the client lives. */
const known = new WeakMap<Client, Set<SharedLocks>>()

/**
 * The locks on these clients, in whatever order. Some programs make a `Redlock` for each lock that they take; sharing makes
 * that cost a connection only once.
 *
 * @throws {InvalidArgumentError} when a client or `maxTtl` is invalid.
 */
export function sharedLocks(clients: ReadonlySet<Client>, maxTtl: number): SharedLocks {
  const [first, ...others] = [...clients] as [Client, ...Client[]]
  for (const shared of known.get(first) ?? []) {
    const isSame =
      shared.clients.size === clients.size && [...clients].every((one) => shared.clients.has(one))
    // A lock on one server does not use `maxTtl`.
    if (isSame && (others.length === 0 || shared.maxTtl === maxTtl)) return shared
  }
  const store = others.length === 0 ? redisStore(first) : redlockStore([first, ...others], { maxTtl })
  const shared = { clients, maxTtl, locks: createLocks(store) }
  for (const client of clients) known.set(client, (known.get(client) ?? new Set()).add(shared))
  return shared
}

/** The next `Redlock` with these clients gets locks of its own. */
export function forget(shared: SharedLocks): void {
  for (const client of shared.clients) known.get(client)?.delete(shared)
}
