import { connectionsOf, type PostgresConnections, type PostgresPool } from '../../postgres/connections.ts'
import { type Migration, migrate as migrateComponent } from '../../postgres/migrations.ts'
import { scripts as advisory } from './advisory/sql/scripts.generated.ts'
import { scripts } from './sql/scripts.generated.ts'

/**
 * One entry for each version. A published entry never changes. A later version keeps every function that an older one calls,
 * because older processes go on working while a fleet is updated.
 */
const MIGRATIONS: readonly string[] = [
  [
    scripts.schema,
    scripts.waitGroups,
    scripts.room,
    scripts.acquire,
    scripts.renew,
    scripts.release,
    scripts.evict,
    scripts.sweep,
  ].join('\n'),
]

export function migrateTables(connections: PostgresConnections, schema: string): Promise<void> {
  return migrateComponent(connections, tablesIn(schema))
}

/** The tables of `postgresStore`. */
export function tablesIn(schema: string): Migration {
  return { schema, component: 'store', migrations: MIGRATIONS }
}

/** The table of fences of `advisorySession`. */
export function migrateAdvisory(connections: PostgresConnections, schema: string): Promise<void> {
  return migrateComponent(connections, {
    schema,
    component: 'advisory',
    migrations: [advisory.version1],
  })
}

/** Where `migrate` makes the tables. */
export interface MigrateOptions {
  /** Default: `holdfast`. */
  readonly schema?: string | undefined
}

/**
 * Makes or updates the schema, the tables and the functions of `postgresStore` and `advisorySession`. All that belongs to one of
 * the two changes in one transaction, or nothing does. For a deployment step with a role that may create them, if the role of
 * the application may not (`postgresStore(client, { migrate: false })`). Any number of processes may run it at any time.
 *
 * ```ts
 * import { migrate } from 'holdfast/postgres'
 * import pg from 'pg'
 *
 * const owner = new pg.Client({ connectionString: 'postgres://owner@localhost/app' })
 * await migrate(owner)
 * ```
 *
 * @throws {InvalidArgumentError} when the client or the schema is not what it should be.
 * @throws {StoreError} when the schema is newer than this library, or PostgreSQL does not let us.
 */
export async function migrate(
  client: PostgresPool,
  { schema = 'holdfast' }: MigrateOptions = {},
): Promise<void> {
  const connections = connectionsOf(client, { max: 1, applicationName: 'holdfast migrate' })
  try {
    await migrateTables(connections, schema)
    await migrateAdvisory(connections, schema)
  } finally {
    await connections.close()
  }
}
