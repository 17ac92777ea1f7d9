import { checkOptions, parseFlag } from '../../../base/arguments.ts'
import { type Duration, parseDuration, WAIT_RANGE } from '../../../base/duration.ts'
import { AcquireTimeoutError, DeadlockError, InvalidArgumentError, StoreError } from '../../../errors.ts'
import {
  columnOf,
  executorOf,
  inTransaction,
  type SqlClient,
  type SqlExecutor,
  type SqlRow,
  sqlStateOf,
} from '../../../postgres/executor.ts'
import { storeErrorOf } from '../../../postgres/failures.ts'
import { advisoryLockId } from './key.ts'
import { scripts } from './sql/scripts.generated.ts'

/** How to lock a key until the end of a transaction. */
export interface TryAdvisoryXactOptions {
  /** A shared lock holds together with other shared locks, and with no exclusive one. Default: false. */
  readonly shared?: boolean | undefined
}

/** How to lock a key until the end of a transaction, and how long to wait for it. */
export interface AdvisoryXactOptions extends TryAdvisoryXactOptions {
  /** How long to wait for the lock. 0 gives up unless the lock is free, `Infinity` waits for ever. Default: 60 s. */
  readonly wait?: Duration | undefined
}

/**
 * Locks a key until the caller's own transaction ends, by commit or rollback. It is the best lock for data in the same
 * database. The lock ends together with the transaction of the data, so there is nothing to renew, to lose or to fence.
 *
 * `tx` runs the transaction's statements. It is a `PoolClient` of pg, the `sql` of postgres.js's `begin`, or an object
 * with `query(text, parameters)` around any other client. A time-out leaves the transaction usable.
 *
 * Use READ COMMITTED, and read the protected data after this call. A REPEATABLE READ or SERIALIZABLE transaction may
 * see the data as it was before the lock was granted. If it then writes, it fails (40001).
 *
 * ```ts
 * import { advisoryXact } from 'holdfast/postgres'
 * import pg from 'pg'
 *
 * const tx = await new pg.Pool().connect()
 * try {
 *   await tx.query('BEGIN')
 *   await advisoryXact(tx, 'account:42', { wait: '5s' })
 *   await tx.query('UPDATE account SET cents = cents - 100 WHERE id = 42')
 *   await tx.query('COMMIT')
 * } catch (error) {
 *   await tx.query('ROLLBACK')
 *   throw error
 * } finally {
 *   tx.release()
 * }
 * ```
 *
 * @throws {AcquireTimeoutError} when others hold the lock for the whole of `wait`.
 * @throws {DeadlockError} when transactions wait for one another and PostgreSQL chose this one to fail. Roll it back,
 * and run it again. To prevent that, lock several keys in the same order everywhere.
 * @throws {InvalidArgumentError} when `tx` is not in a transaction, so that the lock would have ended at once.
 * @throws {StoreError} `store-refused` when the transaction has failed before, and must be rolled back.
 * `store-unavailable` when the connection is lost, or the statement is cancelled (`statement_timeout`).
 */
export async function advisoryXact(
  tx: SqlClient,
  key: string,
  options: AdvisoryXactOptions = {},
): Promise<void> {
  checkOptions(options, ['shared', 'wait'])
  const waitMs = parseDuration('wait', options.wait ?? '60s', WAIT_RANGE)
  const startedAt = performance.now()
  const request = { tx, key, shared: parseFlag('shared', options.shared, false) }
  for (let leftMs = waitMs; ; leftMs = Math.max(0, waitMs - (performance.now() - startedAt))) {
    const outcome = await lockOnce(request, leftMs)
    if (outcome === 'granted') return
    if (outcome === 'timeout') throw timeoutOf(key, performance.now() - startedAt)
    // Another call on the same transaction came in between, and one of the two has succeeded.
    outcome satisfies 'disturbed'
  }
}

/**
 * Like {@link advisoryXact}, without waiting. Resolves with true if the key is locked now, until the transaction ends.
 *
 * ```ts
 * import { tryAdvisoryXact } from 'holdfast/postgres'
 * import postgres from 'postgres'
 *
 * const sql = postgres()
 * await sql.begin(async (tx) => {
 *   if (!(await tryAdvisoryXact(tx, 'report:daily'))) return
 *   await tx`INSERT INTO report DEFAULT VALUES`
 * })
 * ```
 *
 * @throws {InvalidArgumentError} and {@link StoreError} as {@link advisoryXact} does.
 */
export async function tryAdvisoryXact(
  tx: SqlClient,
  key: string,
  options: TryAdvisoryXactOptions = {},
): Promise<boolean> {
  checkOptions(options, ['shared'])
  return (await lockOnce({ tx, key, shared: parseFlag('shared', options.shared, false) }, 0)) === 'granted'
}

const TRY_EXCLUSIVE = scripts.tryXact.replaceAll('{_shared}', '')
const TRY_SHARED = scripts.tryXact.replaceAll('{_shared}', '_shared')

interface XactRequest {
  readonly tx: SqlClient
  readonly key: string
  readonly shared: boolean
}

/** A free lock costs one statement. It costs two if only a second statement can tell whether this is a transaction. */
async function lockOnce(
  { tx, key, shared }: XactRequest,
  waitMs: number,
): Promise<'granted' | 'timeout' | 'disturbed'> {
  const executor = executorOf(tx, 'tx')
  // lock_timeout counts whole milliseconds, and 0 switches it off.
  const lockTimeoutMs = waitMs === Number.POSITIVE_INFINITY ? 0 : Math.ceil(waitMs)
  const id = String(advisoryLockId(key))
  const asked = `${id} ${shared} ${lockTimeoutMs}`
  const row = await ask(executor, key, shared ? TRY_SHARED : TRY_EXCLUSIVE, [id, asked])
  const granted = columnOf(row, 'granted') === 'true'
  if (granted || waitMs === 0) {
    // Marks end with their transaction, so the mark of an earlier call proves that this is the same transaction.
    const before = String(columnOf(row, 'before') ?? '')
    const isProven = before !== '' && before !== asked
    if (!isProven && !(await isTransaction(tx, executor, key))) throw notInTransaction()
    return granted ? 'granted' : 'timeout'
  }
  await ask(executor, key, scripts.waitXact)
  const mark = await readMark(executor, key)
  if (mark === '') throw notInTransaction()
  if (mark === `${asked} granted`) return 'granted'
  if (mark === `${asked} timeout`) return 'timeout'
  return 'disturbed'
}

/**
 * The statement alone cannot tell: a statement that commits by itself looks like the first one of a transaction, also
 * by its clocks. A client that keeps the transaction status of the last answer knows. For all other clients the mark
 * must still be there in the next statement. A client that makes transactions itself is no exception: its `tx` may be
 * used after its transaction has ended.
 */
async function isTransaction(tx: SqlClient, executor: SqlExecutor, key: string): Promise<boolean> {
  const told = 'getTransactionStatus' in tx ? inTransaction(tx) : undefined
  return told ?? (await readMark(executor, key)) !== ''
}

async function readMark(executor: SqlExecutor, key: string): Promise<string> {
  return String(columnOf(await ask(executor, key, scripts.readXact), 'mark') ?? '')
}

async function ask(
  executor: SqlExecutor,
  key: string,
  text: string,
  parameters: readonly string[] = [],
): Promise<SqlRow | undefined> {
  try {
    return (await executor.query(text, parameters))[0]
  } catch (error) {
    throw failureOf(error, key)
  }
}

function failureOf(error: unknown, key: string): Error {
  if (error instanceof InvalidArgumentError) return error
  const shown = JSON.stringify(key)
  switch (sqlStateOf(error)) {
    case '40P01':
      return new DeadlockError(
        `Transactions wait for one another, and PostgreSQL chose the one that asked for ${shown} to fail. ` +
          'Roll it back and run it again; lock several keys in the same order everywhere.',
        { key, cause: error },
      )
    case '25P02':
      return new StoreError(
        'store-refused',
        `The transaction that asked for ${shown} has failed before, and PostgreSQL takes nothing but its rollback. ` +
          'Look for its first error.',
        { key, cause: error },
      )
    case '57014':
      return new StoreError(
        'store-unavailable',
        `The wait for ${shown} was cancelled, by statement_timeout or by somebody. Roll the transaction back; ` +
          'with a `wait` that is shorter than statement_timeout it stays usable.',
        { key, cause: error },
      )
    default:
      return storeErrorOf(error, { key, doing: `locking ${shown}`, page: 'docs/advisory.md' })
  }
}

function notInTransaction(): InvalidArgumentError {
  return new InvalidArgumentError(
    'Expected `tx` to be inside a transaction, got a client that commits each statement by itself: the lock was gone ' +
      'with the statement that took it. Send BEGIN on the same connection first.',
  )
}

function timeoutOf(key: string, waitedMs: number): AcquireTimeoutError {
  return new AcquireTimeoutError(
    `${JSON.stringify(key)} was locked by others for the whole wait of ${Math.round(waitedMs)} ms. ` +
      'Wait longer, or roll back and try later.',
    { key, waitedMs },
  )
}
