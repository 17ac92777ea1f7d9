import { existsSync, mkdirSync, rmdirSync, rmSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { StoreError } from '../../errors.ts'
import { scripts } from './sql/scripts.generated.ts'
import { type Database, openDatabase, type SqliteEngine } from './sqlite-engine.ts'

/** 'Hold' in ASCII: marks an SQLite database as a lock file. */
export const APPLICATION_ID = 0x486f6c64
export const SCHEMA_VERSION = 6

/**
 * Makes an empty file, and the folders that are missing. The tables follow in the first transaction, so a process that is killed in
 * between leaves an empty file, which the next one goes on with. If the file cannot be made, nothing is left behind.
 */
export function createFile(path: string, engine: SqliteEngine | undefined): void {
  const removeFolders = makeFolders(dirname(path))
  try {
    openDatabase(path, engine).close()
  } catch (error) {
    removeFolders()
    throw error
  }
}

/**
 * Makes the tables in an empty database. Two processes may do it in the same one.
 *
 * `-wal` and `-shm` may be those of a deleted lock file: SQLite would write the rows of the one into the new file, and believe what the
 * other says of a log that is gone. No process uses them with a file of zero bytes, and this one has the write lock.
 */
export function createTables(database: Database, path: string): void {
  try {
    database.exec(`PRAGMA page_size = ${PAGE_BYTES}; BEGIN IMMEDIATE`)
    if (statSync(path).size === 0)
      for (const suffix of ['-wal', '-shm']) rmSync(path + suffix, { force: true })
    database.exec(`
      ${scripts.schema}
      PRAGMA application_id = ${APPLICATION_ID};
      PRAGMA user_version = ${SCHEMA_VERSION};
      COMMIT;
      PRAGMA journal_mode = WAL;
    `)
  } catch (error) {
    rollBack(database)
    throw error
  }
}

/** After some errors SQLite has rolled back by itself. Then it refuses this rollback, which is right. */
export function rollBack(database: Database): void {
  try {
    database.exec('ROLLBACK')
  } catch {}
}

/**
 * A step changes one row of 200 bytes, and writes the page of that row to the log. Pages of 1 KB instead of 4 quarter the log,
 * and what a checkpoint writes to the disk while the event loop waits. SQLite's default of a checkpoint every 1,000 pages fits:
 * at 4,000 the log falls out of the processor's cache, and each cycle is a tenth slower.
 */
const PAGE_BYTES = 1024

/** The longest part of the path that exists. */
export function nearestFolder(path: string): string {
  let folder = dirname(path)
  while (!existsSync(folder) && folder !== dirname(folder)) folder = dirname(folder)
  return folder
}

/** Returns a function that removes them again. */
function makeFolders(folder: string): () => void {
  let first: string | undefined
  try {
    // For this user alone: the keys and owners of locks may be private.
    first = mkdirSync(folder, { recursive: true, mode: 0o700 })
  } catch (cause) {
    throw new StoreError(
      'store-refused',
      `The folder ${JSON.stringify(folder)} of the lock file cannot be made. Make it, or give this user write permission.`,
      { cause },
    )
  }
  return () => {
    if (first === undefined) return
    try {
      for (let made = folder; made.startsWith(first); made = dirname(made)) rmdirSync(made)
    } catch {
      // Another process uses it already.
    }
  }
}
