import { installing, required } from '../../base/packages.ts'
import { StoreError } from '../../errors.ts'

/** Where SQLite itself comes from: the runtime, or a package that ships it compiled. */
export type SqliteEngine = 'node:sqlite' | '@photostructure/sqlite'

/** A value that both engines bind and return in the same way. */
export type SqlValue = string | number | null

/** The part of `DatabaseSync` that the store uses. Both engines have it, with the same errors. */
export interface Database {
  exec(sql: string): void
  prepare(sql: string): PreparedStatement
  close(): void
}

export interface PreparedStatement {
  run(...values: SqlValue[]): unknown
  get(...values: SqlValue[]): unknown
  all(...values: SqlValue[]): unknown[]
  setReturnArrays(enabled: boolean): void
}

interface SqliteModule {
  readonly DatabaseSync: new (path: string) => Database
  readonly StatementSync?: { readonly prototype: object }
}

/**
 * Opens databases, with `node:sqlite` where the runtime has it, otherwise with the package. A process uses one of the two for
 * all its files: two copies of SQLite in one process undo each other's file locks, because closing a file drops every POSIX
 * lock that the process has on it.
 */
export function openDatabase(path: string, wanted: SqliteEngine | undefined): Database {
  const { DatabaseSync } = loadEngine(wanted)
  return new DatabaseSync(path)
}

/** Whether this process can open a database. */
export function hasEngine(): boolean {
  try {
    loadEngine(undefined)
    return true
  } catch {
    return false
  }
}

function loadEngine(wanted: SqliteEngine | undefined): SqliteModule {
  const builtin = wanted === '@photostructure/sqlite' ? undefined : loadBuiltin()
  if (builtin !== undefined) return builtin
  try {
    if (wanted === 'node:sqlite')
      throw new Error(`Node.js ${process.versions.node} has no node:sqlite with arrays.`)
    // Not an import(), so that the first call of a store answers in the same tick, like every other call.
    const packaged = required('@photostructure/sqlite') as SqliteModule | undefined
    if (packaged !== undefined) return packaged
  } catch (cause) {
    throw noEngine(cause)
  }
  throw noEngine(undefined)
}

function noEngine(cause: unknown): StoreError {
  const advice = installing('@photostructure/sqlite@1')
  return new StoreError(
    'store-refused',
    `The sqlite store needs Node.js 22.16 or newer, or the package @photostructure/sqlite: \`${advice}\`.`,
    { cause },
  )
}

/** `undefined` before Node 22.16: earlier statements cannot return arrays, and Node 20 has no SQLite. */
function loadBuiltin(): SqliteModule | undefined {
  const builtin = withoutExperimentalWarning(() => process.getBuiltinModule('node:sqlite')) as
    | SqliteModule
    | undefined
  const { prototype } = builtin?.StatementSync ?? {}
  return prototype !== undefined && 'setReturnArrays' in prototype ? builtin : undefined
}

/** Loading the module prints a warning, which is of no use to the user of a command line. */
function withoutExperimentalWarning<T>(load: () => T): T {
  const { emitWarning } = process
  process.emitWarning = (warning: string | Error, ...rest: unknown[]) => {
    if (rest[0] !== 'ExperimentalWarning') Reflect.apply(emitWarning, process, [warning, ...rest])
  }
  try {
    return load()
  } finally {
    process.emitWarning = emitWarning
  }
}
