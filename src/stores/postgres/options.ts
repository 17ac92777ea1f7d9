import { checkOptions, expected, parseFlag } from '../../base/arguments.ts'
import { parseSchema } from '../../postgres/identifiers.ts'

/** How the store uses the database. All options are optional. */
export interface PostgresStoreOptions {
  /** Where the tables are. Stores in different schemas do not see each other. Default: `holdfast`. */
  readonly schema?: string | undefined
  /**
   * Whether the first call makes the schema, or updates it. With `false`, for a role that may not, calls are refused until
   * another role has run `migrate()`. Default: `true`.
   */
  readonly migrate?: boolean | undefined
  /**
   * How many connections of its own the store uses at most, besides one for wakes: 1 to 20. `shared`: only the one for wakes, and
   * the application's pool for the rest. Then a renewal waits behind whatever the application does. And if code that waits for
   * locks takes all connections of the pool, the pool stands still for ever. Default: 2.
   */
  readonly connections?: number | 'shared' | undefined
  /**
   * `logged`: a grant has reached the disk, and the synchronous standbys if there are any, even if the role or the database has
   * `synchronous_commit = off`. `asynchronous`: no answer waits for the disk, which is faster. But when the server crashes, it
   * may forget the grants of the last half second. Their holders learn that from their next renewals, and until then others
   * may hold the same keys. Default: `logged`.
   */
  readonly durability?: 'logged' | 'asynchronous' | undefined
  /**
   * Whether the store is only looked at. Then a role that may `select` from the tables is enough, and a standby will do. No table
   * is made, and calls that would change something are refused. See docs/inspect.md. Default: `false`.
   */
  readonly readOnly?: boolean | undefined
}

interface StoreSettings {
  readonly schema: string
  readonly migrate: boolean
  readonly count: number | 'shared'
  readonly durability: 'logged' | 'asynchronous'
  readonly readOnly: boolean
}

export function parseOptions(options: PostgresStoreOptions): StoreSettings {
  checkOptions(options, ['schema', 'migrate', 'connections', 'durability', 'readOnly'])
  const { schema = 'holdfast', connections: count = 2, durability = 'logged' } = options
  if (count !== 'shared' && !(Number.isInteger(count) && count >= 1 && count <= 20)) {
    throw expected('connections', "a whole number from 1 to 20 or 'shared'", count)
  }
  if (durability !== 'logged' && durability !== 'asynchronous') {
    throw expected('durability', "'logged' or 'asynchronous'", durability)
  }
  const migrate = parseFlag('migrate', options.migrate, true)
  const readOnly = parseFlag('readOnly', options.readOnly, false)
  return { schema: parseSchema(schema), migrate, count, durability, readOnly }
}
