import { checkOptions, expected } from '../base/arguments.ts'
import { columnOf, executorOf, type SqlClient, type SqlExecutor, sqlStateOf } from '../postgres/executor.ts'
import { type Columns, parseColumns, parseId, quoted, quotedTable, rowText } from '../postgres/rows.ts'
import { type Fence, parseFence, staleFence } from './fence.ts'
import { STALE_FENCE } from './guard.ts'

/** Which row to update, and under which fence. */
export interface GuardedUpdateOptions {
  /** `'account'`, or `'bank.account'` in another schema. Names are quoted, so case counts. */
  readonly table: string
  /** The columns that name the row, with their values: `{ id: 42 }`. */
  readonly id: Columns
  /** The columns to write. A Date, a bigint, a Buffer, an array and an object for json are fine; undefined is left alone. */
  readonly set: Columns
  /** The lease under which this is written, or its fence. */
  readonly fence: Fence
  /** The column that remembers the highest fence: a bigint, which may be null. Default: `fence`. */
  readonly fenceColumn?: string | undefined
}

/**
 * Updates one row of your own table, unless it was written under a later fence, and stores the fence in a column. It is one
 * statement, so it needs no transaction. Inside a transaction a stale fence aborts that transaction. Then the transaction has no
 * effect, even if your code catches the error and commits.
 *
 * ```ts
 * import { guardedUpdate } from 'holdfast/guard'
 * import { Pool } from 'pg'
 *
 * const pool = new Pool()
 * export async function publish(fence: bigint): Promise<void> {
 *   const found = await guardedUpdate(pool, { table: 'report', id: { id: 7 }, set: { state: 'published' }, fence })
 *   if (!found) throw new Error('There is no report 7')
 * }
 * ```
 *
 * @returns false when there is no such row (or a policy or trigger kept it from being updated).
 * @throws {StaleFenceError} when the row was written under a later fence.
 * @throws {InvalidArgumentError} when an option is wrong. Errors of the database come through as they are.
 */
export async function guardedUpdate(client: SqlClient, options: GuardedUpdateOptions): Promise<boolean> {
  checkOptions(options, ['table', 'id', 'set', 'fence', 'fenceColumn'])
  const { fenceColumn = 'fence' } = options
  const id = parseId(options.id)
  const set = parseColumns('set', options.set)
  const taken = Object.keys(set).find((name) => name === fenceColumn || Object.hasOwn(id, name))
  if (taken !== undefined) throw expected('set', 'columns other than those of the id and the fence', taken)
  const table = quotedTable('table', options.table)
  const fence = parseFence(options.fence)
  const executor = executorOf(client)
  const statement = {
    executor,
    fence,
    row: rowText({ ...set, ...id }, executor.zone),
    columns: Object.keys(set).map((name) => quoted('set', name)),
    given: `jsonb_populate_record(null::${table}, $1::text::jsonb) as given`,
    table,
    isRow: Object.keys(id)
      .map((name) => quoted('id', name))
      .map((name) => `t.${name} = given.${name}`)
      .join(' and '),
    fenceColumn: quoted('fenceColumn', fenceColumn),
  }
  if (await update(statement)) return true
  // A statement of its own, because it must see what was committed while the update waited for the row.
  const seen = await seenBy(statement)
  if (seen === undefined || seen <= BigInt(fence)) return false
  const resource = `${options.table} ${Object.entries(id).map(([name, value]) => `${name}=${value}`)}`
  return await abort(statement.executor, `fence ${fence} is stale: the row has seen ${seen}`).catch(
    (error: unknown) => {
      throw sqlStateOf(error) === STALE_FENCE ? staleFence(resource, fence, error) : error
    },
  )
}

interface Statement {
  readonly executor: SqlExecutor
  readonly fence: string
  /** The values of the columns and of the id, for {@link Statement.given}. */
  readonly row: string
  readonly columns: readonly string[]
  readonly given: string
  readonly table: string
  readonly isRow: string
  readonly fenceColumn: string
}

async function update({
  executor,
  fence,
  row,
  columns,
  given,
  table,
  isRow,
  fenceColumn,
}: Statement): Promise<boolean> {
  const values = [...columns.map((name) => `${name} = given.${name}`), `${fenceColumn} = $2::text::bigint`]
  const [updated] = await executor.query(
    `update ${table} as t set ${values.join(', ')} from ${given}
     where ${isRow} and (t.${fenceColumn} is null or t.${fenceColumn} <= $2::text::bigint)
       and 1 = (select count(*) from (select from ${table} as t, ${given} where ${isRow} limit 2) as found)
     returning 1 as updated`,
    [row, fence],
  )
  return updated !== undefined && columnOf(updated, 'updated') !== undefined
}

async function seenBy({
  executor,
  row,
  given,
  table,
  isRow,
  fenceColumn,
}: Statement): Promise<bigint | undefined> {
  const [found, another] = await executor.query(
    `select t.${fenceColumn}::text as seen from ${table} as t, ${given} where ${isRow} limit 2`,
    [row],
  )
  if (another !== undefined) throw expected('id', 'the columns of a unique key', 'several rows')
  const seen = found && columnOf(found, 'seen')
  return typeof seen === 'string' ? BigInt(seen) : undefined
}

/**
 * The server raises the error. An error raised only here would let the caller commit what else the transaction has
 * written.
 */
async function abort(executor: SqlExecutor, message: string): Promise<never> {
  await executor.query(
    `do $$ begin raise exception using errcode = '${STALE_FENCE}', message = '${message}'; end $$`,
  )
  throw new Error('Expected the server to raise an error, got none')
}
