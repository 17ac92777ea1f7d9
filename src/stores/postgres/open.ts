import { opened } from '../../base/opened.ts'
import { look, readOnlyStore } from '../../base/read-only.ts'
import type { Store } from '../../contract/store.ts'
import { clientOfUrl } from '../../postgres/client-of-url.ts'
import { connectionsOf, type PostgresPool } from '../../postgres/connections.ts'
import { assertKnown, assertMigrated } from '../../postgres/migrations.ts'
import { sharedConnectionsOf } from '../../postgres/shared-connections.ts'
import { type PostgresStoreOptions, parseOptions } from './options.ts'
import { PostgresStore } from './postgres-store.ts'
import { migrateTables, tablesIn } from './tables.ts'

/**
 * A store in PostgreSQL 14 or newer, over the client you already have: a `Pool` or `Client` of the package pg, or a `sql` of
 * the package postgres, connected or not. The store uses its configuration only. The store's own connections open when they are
 * first needed, reconnect for ever, and end with `close()`. Neither holders nor waiters occupy a connection.
 *
 * Calls reject with a `StoreError`: `store-unavailable` if asking again may help, `store-refused` if a person has to change
 * something (credentials, grants, the schema). See docs/postgres.md.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { postgresStore } from 'holdfast/postgres'
 * import pg from 'pg'
 *
 * const locks = createLocks(postgresStore(new pg.Pool({ connectionString: 'postgres://localhost/app' })))
 * await locks.withLock('invoice:42', async (lease) => {
 *   console.log('paying under fence', lease.fence)
 * })
 * await locks.close()
 * ```
 *
 * @throws {InvalidArgumentError} when the client or an option is not what it should be.
 */
export function postgresStore(client: PostgresPool, options: PostgresStoreOptions = {}): Store {
  const { schema, migrate, count, durability, readOnly } = parseOptions(options)
  const connect = count === 'shared' ? sharedConnectionsOf : connectionsOf
  const mostCalls = count === 'shared' ? 2 : count
  const connections = connect(client, {
    max: mostCalls,
    applicationName: 'holdfast locks',
    statementLimitMs: STATEMENT_LIMIT_MS,
    isPrompt: true,
    settings: PLANNING,
  })
  const store = new PostgresStore({
    connections,
    schema,
    mostCalls,
    isLogged: durability === 'logged',
    readOnly,
    async prepare() {
      if (readOnly) await assertKnown(connections, tablesIn(schema))
      else if (migrate) await migrateTables(connections, schema)
      else await assertMigrated(connections, tablesIn(schema))
    },
  })
  return readOnly ? readOnlyStore(store) : store
}

/**
 * A store in the database that a URL names, with the package `pg`, or else `postgres`, whichever is installed. It sends a first
 * request before it resolves, which also makes the schema if it is missing: so a wrong password shows at once. `close()` ends all
 * connections.
 *
 * @throws {InvalidArgumentError} when the URL, a certificate that it names, or an option is not what it should be, or neither
 * package is installed.
 * @throws {StoreError} when the server is not there, says nothing, or refuses.
 */
export async function openPostgres(url: string, options: PostgresStoreOptions = {}): Promise<Store> {
  const store = postgresStore(await clientOfUrl(url), options)
  // This request needs all that other requests need. It finds no ticket and changes nothing.
  return opened(store, () =>
    options.readOnly === true
      ? look(store)
      : store.release({ key: 'is anybody there', id: '?', cancel: false }),
  )
}

/** The settings that lock_rooms makes in sessions without them. */
const PLANNING = { enable_seqscan: 'off', enable_bitmapscan: 'off', jit: 'off' }

/** A call takes milliseconds. A call that takes this long waits for something that will not come. */
const STATEMENT_LIMIT_MS = 5000
