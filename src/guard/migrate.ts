import { checkOptions } from '../base/arguments.ts'
import { connectionsOf, type PostgresPool } from '../postgres/connections.ts'
import { migrate } from '../postgres/migrations.ts'
import { DEFAULT_SCHEMA } from './guard.ts'
import { scripts } from './sql/scripts.generated.ts'

export interface MigrateGuardOptions {
  /** Made when it is not there. Default: `holdfast`. */
  readonly schema?: string | undefined
}

/**
 * Makes or updates the table and function of {@link guard}: once, before the first guard, or at every start. Any number of
 * processes may call it at once, and when there is nothing to do it only reads.
 *
 * ```ts
 * import { migrateGuard } from 'holdfast/guard'
 * import { Pool } from 'pg'
 *
 * await migrateGuard(new Pool())
 * ```
 *
 * @param client whose database and role are used, on a connection of its own: a `Pool` or `Client` of the package pg, or
 * a `sql` of the package postgres.
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
