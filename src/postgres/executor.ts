import { show } from '../base/duration.ts'
import { InvalidArgumentError } from '../errors.ts'

export type SqlRow = Readonly<Record<string, unknown>>

/**
 * One statement at a time, on one connection or on any of a pool: all that is asked of a SQL client. Parameters are `$1`,
 * `$2`, … and are given as text or `null`, with a cast in the statement, and columns are read as text: clients differ in
 * how they write and read everything else, and their users change it.
 */
export interface SqlExecutor {
  query(text: string, parameters?: readonly (string | null)[]): Promise<readonly SqlRow[]>
}

/** A `Client`, `PoolClient` or `Pool` of the package pg, or what behaves like one. */
export interface PgQueryable {
  query(text: string, values: unknown[]): Promise<{ readonly rows: readonly unknown[] }>
}

/** A `sql` of the package postgres, also the one of a transaction. */
export interface PostgresJsQueryable {
  unsafe(text: string, parameters: never[]): PromiseLike<readonly unknown[]>
}

/** What a statement can be sent with: the clients we know, or anything with a {@link SqlExecutor}'s `query`. */
export type SqlClient = SqlExecutor | PgQueryable | PostgresJsQueryable

/** @throws {InvalidArgumentError} when it is none of them. */
export function executorOf(client: SqlClient): SqlExecutor {
  if (has(client, 'unsafe')) return postgresJsExecutor(client as PostgresJsQueryable)
  if (has(client, 'query')) return queryExecutor(client as PgQueryable | SqlExecutor)
  throw new InvalidArgumentError(
    `Expected \`client\` to be a client of the package pg or postgres, or an object with query(text, parameters), got ${show(client)}.`,
  )
}

function postgresJsExecutor(sql: PostgresJsQueryable): SqlExecutor {
  return {
    async query(text, parameters = []) {
      return (await sql.unsafe(text, [...parameters] as never[])) as readonly SqlRow[]
    },
  }
}

/** pg answers with an object that has the rows, an executor of the user's own with the rows themselves. */
function queryExecutor(client: PgQueryable | SqlExecutor): SqlExecutor {
  return {
    async query(text, parameters = []) {
      const result: { readonly rows: readonly unknown[] } | readonly unknown[] = await client.query(text, [
        ...parameters,
      ] as (string | null)[] & unknown[])
      return ('rows' in result ? result.rows : result) as readonly SqlRow[]
    },
  }
}

function has(client: unknown, name: string): boolean {
  return (typeof client === 'object' || typeof client === 'function') && client !== null && name in client
}
