import { expected, parseFunction } from '../base/arguments.ts'
import { StoreError } from '../errors.ts'
import {
  type ClientExecutor,
  columnOf,
  executorOf,
  inTransaction,
  isNamed,
  type SqlClient,
  type SqlRow,
  sqlStateOf,
} from '../postgres/executor.ts'
import { type Columns, parseColumns, parseId, quoted, quotedTable, rowText } from '../postgres/rows.ts'
import { isSqlConflict, parseRetryOptions, RETRY_OPTIONS, type RetryOptions, retry } from './retry.ts'

/** Which row to update, and how. */
export interface RowUpdate<Row extends object> extends RetryOptions {
  /** `'account'`, or `'bank.account'` in another schema. Names are quoted, so case counts. */
  readonly table: string
  /** The columns that name the row, with their values: `{ id: 42 }`. */
  readonly id: Columns
  /** The column that counts the changes: an integer, never null. Default: `version`. */
  readonly version?: string | undefined
  /**
   * The columns that shall change, with their new values; or the whole row, of which only what differs is written. `null`,
   * `undefined` or no difference leaves the row alone. Called again for every attempt, so it must only compute.
   */
  change(row: Row): Partial<Row> | null | undefined | Promise<Partial<Row> | null | undefined>
}

/**
 * Reads a row of your own table and calls `change` with it. Writes the result if the version has not changed since the read.
 * Otherwise it starts again with the read. `change` gets the row as your client reads it.
 *
 * ```ts
 * import { updateRow } from 'holdfast/optimistic'
 * import { Pool } from 'pg'
 *
 * interface Account { id: number, balance: number, version: number }
 * const account = await updateRow<Account>(new Pool(), {
 *   table: 'account',
 *   id: { id: 42 },
 *   change: ({ balance }) => (balance < 10 ? null : { balance: balance - 10 }),
 * })
 * console.log(account === null ? 'no such account, or too little on it' : account.balance)
 * ```
 *
 * @returns the row as it is now, or null when nothing was written: there is no such row, or `change` left it alone.
 * @throws {@link ConflictError} when every attempt came too late; the message says how many there were.
 * @throws {@link StoreError} `store-refused` when a policy or a trigger keeps the row from being updated. Errors of the database
 * come through as they are.
 */
export async function updateRow<Row extends object>(
  client: SqlClient,
  update: RowUpdate<Row>,
): Promise<Row | null> {
  const settings = parseRetryOptions(update, ['table', 'id', 'version', 'change', ...RETRY_OPTIONS])
  parseFunction('change', update.change)
  const { version = 'version' } = update
  const id = parseId(update.id)
  const table = quotedTable('table', update.table)
  const target: UpdateTarget = {
    executor: executorOf(client),
    table,
    id,
    version,
    given: `jsonb_populate_record(null::${table}, $1::text::jsonb) as given`,
    isRow: Object.keys(id)
      .map((name) => `t.${quoted('id', name)} = given.${quoted('id', name)}`)
      .join(' and '),
    answer: `t.*, t.${quoted('version', version)}::text as ${VERSION}`,
  }
  /** The versions under which a write found no row. */
  const missed: string[] = []
  const attempt = async () => {
    const found = await read(target)
    if (found === undefined) return null
    // After one miss, the row may have been deleted and inserted again with the same version.
    if (missed.length > 1 && missed.slice(-2).every((version) => version === found.version)) {
      throw heldBack(update.table)
    }
    // Taken before `change` sees the row, because it may write into it.
    const before = new Map(
      Object.entries(found.row).map(([name, value]) => [name, { value, text: textOf(value, target) }]),
    )
    const next = await update.change(found.row as Row)
    if (next === null || next === undefined) return null
    const set = differing(next, before, target)
    if (Object.keys(set).length === 0) return null
    const written = await write(target, set, found.version)
    if (written !== undefined) return written as Row
    missed.push(found.version)
    throw new Overtaken('Somebody else wrote between the read and the write.')
  }
  let conflict: unknown
  try {
    return await retry(attempt, settings, (error) => {
      if (!isSqlConflict(error)) return error instanceof Overtaken
      conflict = error
      // In a transaction of the caller's, such an error has ended the transaction, and only the caller can begin another one.
      return inTransaction(client) !== true
    })
  } catch (error) {
    // This client did not know that it was in a transaction, and only the first of the two errors tells the caller to try again.
    throw conflict !== undefined && sqlStateOf(error) === '25P02' ? conflict : error
  }
}

function heldBack(table: string): StoreError {
  return new StoreError(
    'store-refused',
    `PostgreSQL did not update the row of ${JSON.stringify(table)}, although its version is still the one that was read. ` +
      'A policy or a trigger keeps it from being updated, or the client reads from a standby. Nothing was written.',
  )
}

interface UpdateTarget {
  readonly executor: ClientExecutor
  readonly table: string
  readonly id: Columns
  readonly version: string
  readonly given: string
  readonly isRow: string
  readonly answer: string
}

/** Without an underscore, so that a client that converts column names leaves it as it is. */
const VERSION = 'holdfastversion'

interface Found {
  readonly row: SqlRow
  readonly version: string
}

/** Inside the attempts only. */
class Overtaken extends Error {}

async function read({
  executor,
  table,
  id,
  version,
  given,
  isRow,
  answer,
}: UpdateTarget): Promise<Found | undefined> {
  const rows = await executor.query(`select ${answer} from ${table} as t, ${given} where ${isRow}`, [
    rowText(id, executor.zone),
  ])
  const [row] = rows
  if (row === undefined) return undefined
  if (rows.length > 1) throw expected('id', 'the columns of a unique key', `${rows.length} rows`)
  const found = columnOf(row, VERSION)
  if (typeof found !== 'string')
    throw expected('version', 'a column that is never null', `null in \`${version}\``)
  return { row: withoutVersion(row), version: found }
}

/** A value of the row that was read, and its text, which shows whether `change` has written into the value. */
interface Before {
  readonly value: unknown
  readonly text: string
}

function differing(next: object, before: ReadonlyMap<string, Before>, target: UpdateTarget): Columns {
  const hasSameText = (name: string, value: unknown) => textOf(value, target) === before.get(name)?.text
  // A client may read a value that cannot be written, such as a Map. Left alone, the value may stand in the whole row.
  const isUntouched = (name: string, value: unknown) =>
    value === before.get(name)?.value && hasSameText(name, value)
  const columns = Object.entries(parseColumns('change()', next, isUntouched)).filter(
    ([name, value]) => name !== target.version && !hasSameText(name, value),
  )
  const [moved] = columns.filter(([name]) => Object.hasOwn(target.id, name))
  if (moved !== undefined) throw expected('change()', 'columns other than those of the id', moved[0])
  return Object.fromEntries(columns)
}

function textOf(value: unknown, { executor }: UpdateTarget): string {
  return rowText({ value }, executor.zone)
}

async function write(target: UpdateTarget, set: Columns, seen: string): Promise<SqlRow | undefined> {
  const { executor, table, id, given, isRow, answer } = target
  const version = quoted('version', target.version)
  const values = Object.keys(set)
    .map((name) => quoted('change()', name))
    .map((name) => `${name} = given.${name}`)
  const [row] = await executor.query(
    `update ${table} as t set ${[...values, `${version} = t.${version} + 1`].join(', ')} from ${given}
     where ${isRow} and t.${version} = given.${version} returning ${answer}`,
    [rowText({ ...set, ...id, [target.version]: seen }, executor.zone)],
  )
  return row && withoutVersion(row)
}

function withoutVersion(row: SqlRow): SqlRow {
  return Object.fromEntries(Object.entries(row).filter(([name]) => !isNamed(name, VERSION)))
}
