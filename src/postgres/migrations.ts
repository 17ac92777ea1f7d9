import { StoreError } from '../errors.ts'
import type { OwnConnection, PostgresConnections } from './connections.ts'
import type { SqlExecutor } from './executor.ts'
import { sqlState, storeErrorOf } from './failures.ts'
import { parseSchema, quoteIdentifier } from './identifiers.ts'

export interface Migration {
  /** Created if it is missing. */
  readonly schema: string
  /** Each component has tables and a version of its own in the schema. */
  readonly component: 'store' | 'guard' | 'jobs' | 'advisory'
  /**
   * The n-th text leads from version n - 1 to version n. A published text never changes. The schema is written `"{schema}"`. Every
   * name has to be qualified with it, because the search path is empty.
   */
  readonly migrations: readonly string[]
}

/**
 * Brings the tables of a component to the version of this library, in one transaction: all of it or nothing. Any number of
 * processes may call it at every start. When there is nothing to do, it only reads: so a role that may not create anything can
 * call it after another role has.
 *
 * @throws {InvalidArgumentError} when `schema` is not a name.
 * @throws {StoreError} when the schema is newer than this library, or PostgreSQL does not let us.
 */
export async function migrate(
  connections: PostgresConnections,
  { schema, component, migrations }: Migration,
): Promise<void> {
  const target = new ComponentTables(parseSchema(schema), component, migrations)
  try {
    if ((await target.versionNow(connections)) === migrations.length) return
    // On a connection with a longer limit: another process may be migrating large tables.
    const connection = await connections.reserve({ limitMs: LIMIT_MS })
    try {
      await upgrade(connection, target)
    } finally {
      connection.close()
    }
  } catch (error) {
    const doing = `preparing the schema ${schema} for the ${component}`
    throw storeErrorOf(error, { doing, page: PAGES[component] })
  }
}

async function upgrade(connection: OwnConnection, target: ComponentTables): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await connection.transaction((transaction) => target.upgrade(transaction))
    } catch (error) {
      // A client that does not take our lock made the same schema or table at the same time.
      if (attempt === MOST_ATTEMPTS || !RACES.has(sqlState(error) ?? '')) throw error
    }
  }
}

/**
 * Changes nothing.
 *
 * @throws {StoreError} when the tables are not those of this version of the library.
 */
export async function assertMigrated(connections: PostgresConnections, migration: Migration): Promise<void> {
  const { schema, component, migrations } = migration
  const version = await assertKnown(connections, migration)
  if (version === migrations.length) return
  throw new StoreError(
    'store-refused',
    `The tables of the ${component} in the schema ${schema} have version ${version}, and this version of Holdfast needs ` +
      `${migrations.length}. Run migrate() with a role that may create them.`,
  )
}

/**
 * Changes nothing. Resolves with the version of the tables, which is 0 where there are none.
 *
 * @throws {StoreError} when a newer version of the library has made them.
 */
export async function assertKnown(
  connections: PostgresConnections,
  { schema, component, migrations }: Migration,
): Promise<number> {
  const target = new ComponentTables(parseSchema(schema), component, migrations)
  try {
    return await target.versionNow(connections)
  } catch (error) {
    throw storeErrorOf(error, { doing: `looking at the schema ${schema}`, page: PAGES[component] })
  }
}

/** A statement with its schema put in. */
export function inSchema(text: string, schema: string): string {
  return text.replaceAll('"{schema}"', () => quoteIdentifier(schema))
}

const PAGES = {
  store: 'docs/postgres.md',
  advisory: 'docs/advisory.md',
  guard: 'docs/guard.md',
  jobs: 'docs/jobs.md',
} as const
const LIMIT_MS = 60_000
const MOST_ATTEMPTS = 5
const RACES: ReadonlySet<string> = new Set(['23505', '42P06', '42P07', '42723', '40001', '40P01'])

/** The table, or the schema, does not exist yet. */
const ABSENT: ReadonlySet<string> = new Set(['42P01', '3F000'])

class ComponentTables {
  readonly #schema: string
  readonly #component: string
  readonly #migrations: readonly string[]

  constructor(schema: string, component: string, migrations: readonly string[]) {
    this.#schema = schema
    this.#component = component
    this.#migrations = migrations
  }

  /** 0 if the schema or its table of versions is missing. */
  async versionNow(executor: SqlExecutor): Promise<number> {
    try {
      return await this.#readVersion(executor)
    } catch (error) {
      if (ABSENT.has(sqlState(error) ?? '')) return 0
      throw error
    }
  }

  async upgrade(transaction: SqlExecutor): Promise<void> {
    // The lock comes before the first look: the second process then finds the work done.
    await transaction.query(`set local search_path = pg_catalog`)
    await transaction.query('select pg_advisory_xact_lock(hashtextextended($1::text, 0))', [
      `holdfast migrate ${this.#schema}`,
    ])
    // CREATE … IF NOT EXISTS needs the right to create, even if there is nothing to create.
    const [found] = await transaction.query(
      `select to_regnamespace($1::text)::text as schema, to_regclass($1::text || '.holdfast_versions')::text as versions`,
      [quoteIdentifier(this.#schema)],
    )
    if (found?.['schema'] === null)
      await transaction.query(inSchema('create schema "{schema}"', this.#schema))
    if (found?.['versions'] === null) await transaction.query(inSchema(CREATE_VERSIONS, this.#schema))
    const version = await this.#readVersion(transaction)
    for (const statements of this.#migrations.slice(version)) {
      await transaction.query(inSchema(statements, this.#schema))
    }
    await transaction.query(inSchema(SET_VERSION, this.#schema), [
      this.#component,
      String(this.#migrations.length),
    ])
  }

  async #readVersion(executor: SqlExecutor): Promise<number> {
    const [row] = await executor.query(inSchema(GET_VERSION, this.#schema), [this.#component])
    const version = Number(row?.['version'] ?? 0)
    if (version <= this.#migrations.length) return version
    throw new StoreError(
      'store-refused',
      `The tables of the ${this.#component} in the schema ${this.#schema} have version ${version}, and this version of Holdfast knows ` +
        `${this.#migrations.length} at most. Update Holdfast in this process, or give it another \`schema\`.`,
    )
  }
}

const CREATE_VERSIONS = `
create table "{schema}".holdfast_versions (component text primary key, version integer not null);
grant select on "{schema}".holdfast_versions to public;
comment on table "{schema}".holdfast_versions is 'Which version of its tables each part of Holdfast has in this schema.';`

const GET_VERSION =
  'select version::text as version from "{schema}".holdfast_versions where component = $1::text'

const SET_VERSION = `
insert into "{schema}".holdfast_versions as known (component, version) values ($1::text, $2::text::integer)
on conflict (component) do update set version = excluded.version where known.version < excluded.version`
