/**
 * A store in PostgreSQL, and advisory locks inside your own transactions. See [PostgreSQL](../../../docs/postgres.md), [Advisory locks](../../../docs/advisory.md).
 *
 * @module
 */
export type { PostgresPool } from '../../postgres/connections.ts'
export type {
  DrizzleQueryable,
  KyselyQueryable,
  PgQueryable,
  PostgresJsQueryable,
  PrismaQueryable,
  SqlClient,
  SqlExecutor,
  SqlRow,
} from '../../postgres/executor.ts'
export { advisoryLockId } from './advisory/key.ts'
export type { AdvisoryLease } from './advisory/lease.ts'
export {
  type AdvisorySessionOptions,
  advisorySession,
  type TryAdvisorySessionOptions,
  tryAdvisorySession,
} from './advisory/session.ts'
export {
  type AdvisoryXactOptions,
  advisoryXact,
  type TryAdvisoryXactOptions,
  tryAdvisoryXact,
} from './advisory/transaction.ts'
export { openPostgres, postgresStore } from './open.ts'
export type { PostgresStoreOptions } from './options.ts'
export { type MigrateOptions, migrate } from './tables.ts'
