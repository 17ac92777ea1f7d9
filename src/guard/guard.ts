import { checkOptions, expected } from '../base/arguments.ts'
import { StoreError } from '../errors.ts'
import {
  executorOf,
  inTransaction,
  type SqlClient,
  type SqlExecutor,
  sqlStateOf,
} from '../postgres/executor.ts'
import { parseSchema } from '../postgres/identifiers.ts'
import { inSchema } from '../postgres/migrations.ts'
import { type Fence, parseFence, parseResource, staleFence } from './fence.ts'

export interface GuardOptions {
  /** The lease under which this transaction writes, or its fence. */
  readonly fence: Fence
  /**
   * What is guarded, as a text of your own: whoever writes to it names it so. Default: the key of the lease.
   */
  readonly resource?: string | undefined
  /** The schema that `migrateGuard` made its table in. Default: `holdfast`. */
  readonly schema?: string | undefined
}

/**
 * Lets this transaction go on only under a fence that is not older than any the resource has seen, and keeps other guarded
 * transactions of the resource waiting until this one ends. Call it first, before anything is read that the writes
 * depend on.
 *
 * A stale fence aborts the transaction on the server: it has no effect even where the error is caught and the transaction
 * committed. (Not so inside a savepoint, which ends the error with a rollback to it.)
 *
 * Any transaction does: of pg, postgres.js, Kysely, Drizzle (over either), Prisma, or what has a `query(text, parameters)`. Outside of
 * one it would guard nothing, and is refused.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { guard } from 'holdfast/guard'
 * import { redisStore } from 'holdfast/redis'
 * import { Redis } from 'ioredis'
 * import postgres from 'postgres'
 *
 * const locks = createLocks(redisStore(new Redis()))
 * const sql = postgres()
 * await locks.withLock('account:42', async (lease) => {
 *   await sql.begin(async (tx) => {
 *     await guard(tx, { fence: lease })
 *     await tx`update account set balance = balance - 10 where id = 42`
 *   })
 * })
 * ```
 *
 * @throws {StaleFenceError} when a later holder was here.
 * @throws {InvalidArgumentError} when an option is wrong, or `tx` is not in a transaction.
 * @throws {StoreError} `store-refused` when the guard's table is missing, may not be used, or cannot be written to. Every other error of the
 * database comes through as it is.
 */
export async function guard(tx: SqlClient, options: GuardOptions): Promise<void> {
  checkOptions(options, ['fence', 'resource', 'schema'])
  const fence = parseFence(options.fence)
  const resource = parseResource(options.resource, options.fence)
  const schema = parseSchema(options.schema ?? DEFAULT_SCHEMA)
  const executor = executorOf(tx, 'tx')
  const [row] = await executor.query(inSchema(GUARD, schema), [resource, fence]).catch((error: unknown) => {
    throw guardError(error, { resource, fence, schema })
  })
  if (await isInTransaction(tx, executor, row?.['transaction'])) return
  throw expected(
    'tx',
    'inside a transaction (after `begin`, and the transaction itself rather than the client or pool it came from), because a guard lasts as long as its transaction',
    tx,
  )
}

export const DEFAULT_SCHEMA = 'holdfast'
const GUARD = 'select "{schema}".guard($1::text, $2::text::bigint)::text as transaction'

/** Of two statements outside a transaction each has one of its own, and the second, which writes nothing, not even a number. */
async function isInTransaction(tx: SqlClient, executor: SqlExecutor, transaction: unknown): Promise<boolean> {
  const known = inTransaction(tx)
  if (known !== undefined) return known
  const [row] = await executor.query('select pg_current_xact_id_if_assigned()::text as transaction')
  return row?.['transaction'] === transaction
}

function guardError(error: unknown, about: { resource: string; fence: string; schema: string }): unknown {
  const { resource, fence, schema } = about
  switch (sqlStateOf(error)) {
    case STALE_FENCE:
      return staleFence(resource, fence, error)
    case '3F000':
    case '42883':
    case '42P01':
      return new StoreError(
        'store-refused',
        `The guard's table is not in the schema "${schema}" of this database: call migrateGuard() once, with the same schema.`,
        { key: resource, cause: error },
      )
    case '42501':
      return new StoreError(
        'store-refused',
        `This role may not use the guard in the schema "${schema}": it needs USAGE on the schema, and SELECT, INSERT and UPDATE on its table guards.`,
        { key: resource, cause: error },
      )
    case '25006':
      return new StoreError(
        'store-refused',
        'This transaction is read-only, and a guard has to write: use the primary, and a transaction that may write.',
        { key: resource, cause: error },
      )
    default:
      return error
  }
}

/** Raised by what refuses a fence, in the tables' function and in {@link guardedUpdate}. */
export const STALE_FENCE = 'ZF001'
