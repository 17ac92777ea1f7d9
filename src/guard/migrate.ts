import { checkOptions } from '../base/arguments.ts'
import { connectionsOf, type PostgresPool } from '../postgres/connections.ts'
import { migrate } from '../postgres/migrations.ts'
import { DEFAULT_SCHEMA } from './guard.ts'
import { scripts } from './sql/scripts.generated.ts'

/** Where `migrateGuard` makes its table. */
export interface MigrateGuardOptions {
  /** The schema of the table; made if it does not exist. Default: `holdfast`. */
  readonly schema?: string | undefined
}

/**
 * Makes or updates the table and the function of {@link guard}. Call it once before the first guard, or at every start.
 * Any number of processes may call it at once. If there is nothing to do, it only reads.
 *
 * ```ts
 * import { migrateGuard } from 'holdfast/guard'
 * import { Pool } from 'pg'
 *
 * await migrateGuard(new Pool())
 * ```
 *
 * @param client a `Pool` or `Client` of the package pg, or a `sql` of the package postgres. The call opens a connection
 * of its own to the same database, under the same role.
 * @throws {StoreError} when the tables are newer than this library, or the role may not make them.
 */
export async function migrateGuard(client: PostgresPool, options: MigrateGuardOptions = {}): Promise<void> {
  checkOptions(options, ['schema'])
  const connections = connectionsOf(client, { max: 1, applicationName: 'holdfast guard' })
  try {
    const { schema = DEFAULT_SCHEMA } = options
    await migrate(connections, { schema, component: 'guard', migrations: [scripts.version1] })
  } finally {
    await connections.close()
  }
}
