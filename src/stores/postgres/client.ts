import { checkOptions, expected, parseFlag } from '../../base/arguments.ts'
import type { Store } from '../../contract/store.ts'
import { connectionsOf, type PostgresConnections, type PostgresPool } from '../../postgres/connections.ts'
import { parseSchema } from '../../postgres/identifiers.ts'
import { assertMigrated } from '../../postgres/migrations.ts'
import { sharedConnectionsOf } from '../../postgres/shared-connections.ts'
import { PostgresStore } from './postgres-store.ts'
import { MIGRATIONS, migrateTables } from './tables.ts'

export interface PostgresStoreOptions {
  /** Where the tables are. Stores in different schemas do not see each other. Default: `holdfast`. */
  readonly schema?: string | undefined
  /**
   * Whether the first call makes the schema, or brings it to this version, where that is needed. `false` where the role
   * may not: somebody else then runs `migrate()`, and until then calls are refused. Default: `true`.
   */
  readonly migrate?: boolean | undefined
  /**
   * How many connections of its own the store uses at most, besides one for wakes: 1 to 20. `shared`: none but that one,
   * and the application's pool for the rest. Then a renewal waits behind whatever the application does, and a pool whose
   * connections are all taken by code that waits for a lock stands still for ever. Default: 2.
   */
  readonly connections?: number | 'shared' | undefined
  /**
   * `logged`: a grant has reached the disk (and the synchronous standbys, if there are any), also where the role or the
   * database has `synchronous_commit = off`. `asynchronous`: no answer waits for the disk. It is faster by what a disk takes, and when the server crashes
   * the grants of the last half second may be forgotten: their holders learn it from their next renewal, and until then
   * others may hold the same keys. Default: `logged`.
   */
  readonly durability?: 'logged' | 'asynchronous' | undefined
}

/**
 * A store in PostgreSQL 14 or newer, over the client you already have: a `Pool` or `Client` of the package pg, or a `sql` of
 * the package postgres, connected or not. Only its configuration is used: the store's own connections open when they are
 * first needed, reconnect for ever, and end with `close()`. Neither holders nor waiters occupy one.
 *
 * Its calls reject with a `StoreError`: `store-unavailable` where asking again may help, `store-refused` where a person has
 * to change something (credentials, grants, the schema). See docs/postgres.md.
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
  const { schema, migrate, count, durability } = parse(options)
  const connect = count === 'shared' ? sharedConnectionsOf : connectionsOf
  const lanes = count === 'shared' ? 2 : count
  const connections = connect(client, {
    max: lanes,
    applicationName: 'holdfast locks',
    statementLimitMs: STATEMENT_LIMIT_MS,
    settings: PLANNING,
  })
  return new PostgresStore({
    connections,
    schema,
    lanes,
    isLogged: durability === 'logged',
    prepare: () => (migrate ? migrateTables(connections, schema) : assertTables(connections, schema)),
  })
}

/** As lock_rooms has it for sessions that come without. */
const PLANNING = { enable_seqscan: 'off', enable_bitmapscan: 'off', jit: 'off' }

/** A call takes milliseconds; one that takes this long waits for something that will not come. */
const STATEMENT_LIMIT_MS = 5000

function assertTables(connections: PostgresConnections, schema: string): Promise<void> {
  return assertMigrated(connections, { schema, component: 'store', migrations: MIGRATIONS })
}

function parse(options: PostgresStoreOptions): {
  readonly schema: string
  readonly migrate: boolean
  readonly count: number | 'shared'
  readonly durability: 'logged' | 'asynchronous'
} {
  checkOptions(options, ['schema', 'migrate', 'connections', 'durability'])
  const { schema = 'holdfast', connections: count = 2, durability = 'logged' } = options
  if (count !== 'shared' && !(Number.isInteger(count) && count >= 1 && count <= 20)) {
    throw expected('connections', "a whole number from 1 to 20 or 'shared'", count)
  }
  if (durability !== 'logged' && durability !== 'asynchronous') {
    throw expected('durability', "'logged' or 'asynchronous'", durability)
  }
  const migrate = parseFlag('migrate', options.migrate, true)
  return { schema: parseSchema(schema), migrate, count, durability }
}
