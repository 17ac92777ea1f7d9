import { checkOptions, expected } from '../base/arguments.ts'
import { StoreError } from '../errors.ts'
import {
  columnOf,
  executorOf,
  inTransaction,
  type SqlClient,
  type SqlExecutor,
  sqlStateOf,
} from '../postgres/executor.ts'
import { parseSchema } from '../postgres/identifiers.ts'
import { inSchema } from '../postgres/migrations.ts'
import { type Fence, parseFence, parseResource, staleFence } from './fence.ts'

/** Which fence {@link guard} checks, and for which resource. */
export interface GuardOptions {
  /** The lease under which this transaction writes, or its fence. */
  readonly fence: Fence
  /**
   * The name of what is guarded: a text of your own. All writers must use the same name. Default: the key of the lease.
   */
  readonly resource?: string | undefined
  /** The schema in which `migrateGuard` made its table. Default: `holdfast`. */
  readonly schema?: string | undefined
}

/**
 * Lets this transaction go on only if no later fence of the resource was seen. Other guarded transactions of the
 * resource then wait until this one ends. Call it first, before you read anything that the writes depend on.
 *
 * A stale fence aborts the transaction on the server: the transaction has no effect, even if your code catches the
 * error and commits. (Inside a savepoint, a rollback to the savepoint ends the error, and the transaction goes on.)
 *
 * It takes any transaction: of pg, postgres.js, Kysely, Drizzle (over either), Prisma, or an object with
 * `query(text, parameters)`. Outside of a transaction it would guard nothing, so such a client is refused.
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
 * @throws {StaleFenceError} when the resource has seen a later fence.
 * @throws {InvalidArgumentError} when an option is wrong, or `tx` is not in a transaction.
 * @throws {StoreError} `store-refused` when the guard's table is missing, or when the role may not use it or write to
 * it. Every other error of the database comes through as it is.
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
  if (await isInTransaction(tx, executor, columnOf(row, 'transaction'))) return
  throw expected(
    'tx',
    'inside a transaction (after `begin`, and the transaction itself rather than the client or pool it came from), because a guard lasts as long as its transaction',
    tx,
  )
}

export const DEFAULT_SCHEMA = 'holdfast'
const GUARD = 'select "{schema}".guard($1::text, $2::text::bigint)::text as transaction'

/**
 * Outside a transaction each of two statements is a transaction of its own. The second one writes nothing, so it has no
 * transaction number.
 */
async function isInTransaction(tx: SqlClient, executor: SqlExecutor, transaction: unknown): Promise<boolean> {
  const known = inTransaction(tx)
  if (known !== undefined) return known
  const [row] = await executor.query('select pg_current_xact_id_if_assigned()::text as transaction')
  return columnOf(row, 'transaction') === transaction
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
        `This role may not use the guard in the schema "${schema}": it needs USAGE on the schema, EXECUTE on its function guard(text, bigint), and SELECT, INSERT and UPDATE on its table guards.`,
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

/**
 * The SQLSTATE of a refused fence: the function beside the guard's table raises it, and so does {@link guardedUpdate}.
 */
export const STALE_FENCE = 'ZF001'
