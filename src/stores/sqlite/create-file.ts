import { randomUUID } from 'node:crypto'
import { existsSync, linkSync, mkdirSync, rmdirSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { StoreError } from '../../errors.ts'
import { scripts } from './sql/scripts.generated.ts'
import { type Database, openDatabase, type SqliteEngine } from './sqlite-engine.ts'

/** 'Hold' in ASCII: what makes an SQLite database a lock file of ours. */
export const APPLICATION_ID = 0x486f6c64
export const SCHEMA_VERSION = 3

/**
 * Makes a lock file under another name and then links it to its own: nobody ever sees half a lock file, and a failure (a
 * full disk) takes nothing away that somebody else has just begun to use. Where the file system has no links, nothing is
 * made here, and SQLite will make the file in place.
 */
export function createFile(path: string, engine: SqliteEngine | undefined): void {
  const removeFolders = makeFolders(dirname(path))
  const draft = `${path}.${randomUUID()}`
  try {
    // No prepared statements here: the package would leave the file open for them.
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
    // Somebody was faster, or there are no links.
    if (code === 'EEXIST' || code === 'EPERM' || code === 'ENOTSUP' || code === 'ENOSYS') return
    removeFolders()
    throw error
  }
}

function removeDraft(draft: string): void {
  for (const suffix of ['', '-journal']) rmSync(draft + suffix, { force: true })
}

/** In an empty database; two processes may do it to the same one. */
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

/** SQLite has rolled back by itself after some errors; then there is nothing to do, and it says so. */
export function rollBack(database: Database): void {
  try {
    database.exec('ROLLBACK')
  } catch {}
}

/**
 * A step changes one row of 200 bytes, and the page it is on is written to the log. With 1 KB instead of 4 the log, and
 * what a checkpoint brings to the disk while the event loop waits, is a quarter. SQLite's default of a checkpoint every
 * 1,000 pages is right with it: at 4,000 the log falls out of the processor's cache, and each cycle is a tenth slower.
 */
const PAGE_BYTES = 1024

/** Where the file is or will be, as far as it is there already. */
export function nearestFolder(path: string): string {
  let folder = dirname(path)
  while (!existsSync(folder) && folder !== dirname(folder)) folder = dirname(folder)
  return folder
}

/** Returns how to remove them again. */
function makeFolders(folder: string): () => void {
  let first: string | undefined
  try {
    // Who locks what may be nobody else's business.
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
      // Somebody else uses it already.
    }
  }
}
