import { expected } from '../base/arguments.ts'
import { show } from '../base/duration.ts'
import { fieldOf, messageOf } from '../base/thrown.ts'
import { InvalidArgumentError } from '../errors.ts'

/** One row of a result: its values, by the names of their columns. */
export type SqlRow = Readonly<Record<string, unknown>>

/**
 * The part of a SQL client that is used: one statement at a time, on one connection or on any of a pool. Parameters are
 * `$1`, `$2`, …, given as text or `null`, with a cast in the statement. Columns are read as text. Clients differ in how
 * they write and read everything else, and their users can change it.
 */
export interface SqlExecutor {
  /** Runs one statement and resolves with its rows. Rejects with the client's own error. */
  query(text: string, parameters?: readonly (string | null)[]): Promise<readonly SqlRow[]>
}

/** The zone in which a client reads the times of a column without a zone. */
export type ClientZone = 'local' | 'utc'

/** An executor over a client that we may know. */
export interface ClientExecutor extends SqlExecutor {
  readonly zone: ClientZone
}

/** A `Client`, `PoolClient` or `Pool` of the package pg, or an object that behaves like one. */
export interface PgQueryable {
  query(text: string, values: unknown[]): Promise<{ readonly rows: readonly unknown[] }>
}

/** A `sql` of the package postgres, also that of a transaction. */
export interface PostgresJsQueryable {
  unsafe(text: string, parameters: never[]): PromiseLike<readonly unknown[]>
}

/** A `Kysely` or one of its transactions. */
export interface KyselyQueryable {
  executeQuery(query: never): Promise<{ readonly rows: readonly unknown[] }>
}

/** A database of drizzle-orm over the package pg or postgres, or one of its transactions. */
export interface DrizzleQueryable {
  execute(query: never): PromiseLike<unknown>
}

/** A `PrismaClient`, or what its `$transaction` gives to a function. */
export interface PrismaQueryable {
  $queryRawUnsafe(text: string, ...values: never[]): PromiseLike<unknown>
}

/** A client that can send a statement: one of those that we know, or any object with the `query` of {@link SqlExecutor}. */
export type SqlClient =
  | SqlExecutor
  | PgQueryable
  | PostgresJsQueryable
  | KyselyQueryable
  | DrizzleQueryable
  | PrismaQueryable

/** @throws {InvalidArgumentError} when it is no such client. `name`: the name of the argument, for the message. */
export function executorOf(client: SqlClient, name = 'client'): ClientExecutor {
  // Functions only: Prisma has a property for every model, and Drizzle's `query` is an object.
  if (can(client, '$queryRawUnsafe')) return prismaExecutor(client as PrismaQueryable)
  if (can(client, 'executeQuery')) return kyselyExecutor(client as KyselyQueryable)
  if (can(client, 'unsafe')) return postgresJsExecutor(client as PostgresJsQueryable)
  if (can(client, 'query')) return queryExecutor(client as PgQueryable | SqlExecutor)
  if (can(client, 'execute')) return drizzleExecutor(client as DrizzleQueryable)
  throw new InvalidArgumentError(
    `Expected \`${name}\` to be a client of pg, postgres, Kysely, Drizzle or Prisma, or an object with query(text, parameters), got ${show(client)}.`,
  )
}

/**
 * The value of a column of our own, whose name has lower-case letters only. A client may write the name in another case, as
 * postgres.js does with `transform: postgres.pascal`.
 *
 * @throws {InvalidArgumentError} if the client renames the column otherwise: without the value a refusal would look like a success.
 */
export function columnOf(row: SqlRow | undefined, name: string): unknown {
  const columns = Object.entries(row ?? {})
  const column = columns.find(([found]) => isNamed(found, name))
  if (column !== undefined) return column[1]
  const got = row === undefined ? 'no row' : columns.map(([found]) => found).join(', ')
  throw expected('client', `one that leaves the name of the column \`${name}\` as it is`, got)
}

/** Whether the client means the column of this name. */
export function isNamed(column: string, name: string): boolean {
  return column.toLowerCase() === name
}

/**
 * Whether this client sends its statements inside an open transaction: true or false if the client knows, which may need one
 * answer before; undefined if only the server can tell.
 */
export function inTransaction(client: SqlClient): boolean | undefined {
  const { isTransaction } = client as { readonly isTransaction?: unknown }
  if (can(client, 'getTransactionStatus')) {
    // Newer versions of pg keep the status at the end of each answer: I(dle), T(ransaction), E(rror).
    const status = (client as unknown as { getTransactionStatus(): unknown }).getTransactionStatus()
    return typeof status === 'string' ? status !== 'I' : undefined
  }
  if (can(client, '$queryRawUnsafe')) return can(client, '$connect') ? undefined : true
  // The clients know their own transactions, but none that was begun by hand. An executor of the user's own may have any further method.
  const isPostgresJs = can(client, 'unsafe') && can(client, 'savepoint')
  const isDrizzle = can(client, 'execute') && !can(client, 'query') && can(client, 'rollback')
  return isTransaction === true || isPostgresJs || isDrizzle ? true : undefined
}

/**
 * The SQLSTATE of a failed statement, wherever the client keeps it; undefined if the failure is not the server's answer.
 */
export function sqlStateOf(error: unknown): string | undefined {
  return serverErrorIn(error)?.state
}

/** What the server said, without what the client has added to it. */
export interface ServerError {
  readonly state: string
  readonly message: string
}

/** The error of the server inside of the client's own. */
export function serverErrorIn(error: unknown): ServerError | undefined {
  for (let at = error, depth = 0; typeof at === 'object' && at !== null && depth < 5; depth += 1) {
    const state = ownState(at)
    const said = fieldOf(at, 'originalMessage')
    if (state !== undefined) return { state, message: messageOf(said ?? at) }
    // Drizzle wraps the driver's error, and so does Prisma in its own way.
    const meta = fieldOf(at, 'meta')
    at = fieldOf(at, 'cause') ?? fieldOf(meta, 'driverAdapterError') ?? meta
  }
  return undefined
}

function ownState(error: object): string | undefined {
  for (const state of [fieldOf(error, 'originalCode'), fieldOf(error, 'code')]) {
    if (typeof state === 'string' && SQL_STATE.test(state)) return state
    if (state === PRISMA_CONFLICT) return '40001'
  }
  return undefined
}

/** Neither Prisma's own codes, P1000 to P6999, nor Node's EPIPE. */
const SQL_STATE = /^(?!P[1-9])(?=.*\d)[0-9A-Z]{5}$/
/** Prisma's code for 40001 and 40P01 in its own queries. */
const PRISMA_CONFLICT = 'P2034'

function postgresJsExecutor(sql: PostgresJsQueryable): ClientExecutor {
  return {
    zone: 'local',
    async query(text, parameters = []) {
      return rowsOf(await sql.unsafe(text, [...parameters] as never[]))
    },
  }
}

/** A client of the package pg, or an executor of the user's own. */
function queryExecutor(client: PgQueryable | SqlExecutor): ClientExecutor {
  return {
    zone: 'local',
    async query(text, parameters = []) {
      return rowsOf(await client.query(text, [...parameters] as (string | null)[] & unknown[]))
    },
  }
}

/** `executeQuery` takes a compiled query. This one is what Kysely's own `CompiledQuery.raw` makes of a text. */
function kyselyExecutor(db: KyselyQueryable): ClientExecutor {
  return {
    zone: 'local',
    async query(text, parameters = []) {
      const node = { kind: 'RawNode', sqlFragments: [text], parameters: [] }
      const compiled = { sql: text, query: node, parameters, queryId: { queryId: 'holdfast' } }
      return rowsOf(await db.executeQuery(compiled as never))
    },
  }
}

/** `execute` takes an object with `getSQL()`, and asks it for its text and parameters. */
function drizzleExecutor(db: DrizzleQueryable): ClientExecutor {
  return {
    zone: 'utc',
    async query(text, parameters = []) {
      const statement = {
        getSQL: () => statement,
        toQuery: () => ({ sql: text, params: [...parameters] }),
      }
      return rowsOf(await db.execute(statement as never))
    },
  }
}

function prismaExecutor(prisma: PrismaQueryable): ClientExecutor {
  return {
    zone: 'utc',
    async query(text, parameters = []) {
      return rowsOf(await prisma.$queryRawUnsafe(text, ...(parameters as never[])))
    },
  }
}

/**
 * Some clients answer with an object that has `rows`, some with the rows themselves. TypeORM answers an UPDATE with the rows and
 * their number. Anything else is refused, because the elements of another answer would pass for rows.
 */
function rowsOf(result: unknown): readonly SqlRow[] {
  const { rows = result } = (result ?? {}) as { readonly rows?: unknown }
  const found = isRowsWithNumber(rows) ? rows[0] : rows
  if (Array.isArray(found) && found.every(isRow)) return found
  throw expected('client', 'one that answers with an array of rows, each an object with its columns', found)
}

function isRowsWithNumber(rows: unknown): rows is readonly [readonly unknown[], number] {
  return Array.isArray(rows) && rows.length === 2 && Array.isArray(rows[0]) && typeof rows[1] === 'number'
}

function isRow(row: unknown): row is SqlRow {
  return typeof row === 'object' && row !== null && !Array.isArray(row)
}

function can(client: unknown, name: string): boolean {
  if ((typeof client !== 'object' && typeof client !== 'function') || client === null) return false
  return typeof (client as Record<string, unknown>)[name] === 'function'
}
