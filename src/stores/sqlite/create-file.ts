import { randomUUID } from 'node:crypto'
import { existsSync, linkSync, mkdirSync, rmdirSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { StoreError } from '../../errors.ts'
import { scripts } from './sql/scripts.generated.ts'
import { type Database, openDatabase, type SqliteEngine } from './sqlite-engine.ts'

/** 'Hold' in ASCII: marks an SQLite database as a lock file. */
export const APPLICATION_ID = 0x486f6c64
export const SCHEMA_VERSION = 5

/**
 * Makes a lock file under another name and then links it to its own name. So no process ever sees half a lock file, and a
 * failure (a full disk) removes nothing that another process has just begun to use. On a file system without links this makes
 * nothing, and SQLite makes the file in place.
 */
export function createFile(path: string, engine: SqliteEngine | undefined): void {
  const removeFolders = makeFolders(dirname(path))
  const draft = `${path}.${randomUUID()}`
  try {
    // No prepared statements: the package would keep the file open for them.
    const database = openDatabase(draft, engine)
    try {
      createTables(database)
    } finally {
      database.close()
    }
    linkSync(draft, path)
    removeDraft(draft)
  } catch (error) {
    removeDraft(draft)
    const code = error instanceof Error && 'code' in error ? error.code : undefined
    // Another process was faster, or the file system has no links.
    if (code === 'EEXIST' || code === 'EPERM' || code === 'ENOTSUP' || code === 'ENOSYS') return
    removeFolders()
    throw error
  }
}

function removeDraft(draft: string): void {
  for (const suffix of ['', '-journal']) rmSync(draft + suffix, { force: true })
}

/** Makes the tables in an empty database. Two processes may do it in the same one. */
export function createTables(database: Database): void {
  try {
    database.exec(`
      PRAGMA page_size = ${PAGE_BYTES};
      BEGIN IMMEDIATE;
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
