import { existsSync, mkdirSync, rmdirSync, rmSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { StoreError } from '../../errors.ts'
import type { StoreTime } from '../../law/room.ts'
import { type Moment, momentAfterReboot } from './fence-clock.ts'
import { refuseNetworkFileSystem } from './file-system.ts'
import { scripts } from './sql/scripts.generated.ts'
import { type Database, openDatabase, type SqliteEngine } from './sqlite-engine.ts'
import { prepareStatements, type Statements } from './statements.ts'

export interface LockFileOptions {
  readonly path: string
  readonly engine: SqliteEngine | undefined
  /** Names the boot that the clock counts from; empty when the system has no name for it. */
  readonly boot: string
  readonly now: () => StoreTime
}

/** A connection to a lock file that is certainly ours, of this version, and of this boot. */
export class LockFile {
  readonly statements: Statements
  readonly #database: Database
  readonly #path: string
  readonly #identity: string | undefined

  /** Makes the file, and the folders it lies in, when there is none; leaves none behind when it fails. */
  constructor(options: LockFileOptions) {
    const { path } = options
    refuseNetworkFileSystem(nearestFolder(path))
    const undo = makeFolders(path)
    let database: Database | undefined
    try {
      database = openDatabase(path, options.engine)
      prepareFile(database, options)
      this.statements = prepareStatements(database)
    } catch (error) {
      database?.close()
      undo()
      throw error
    }
    this.#database = database
    this.#path = path
    this.#identity = identityOf(path)
  }

  /** Whether the path still leads to the file that is open here: it may have been deleted or replaced. */
  isInPlace(): boolean {
    return identityOf(this.#path) === this.#identity
  }

  rollBack(): void {
    rollBack(this.#database)
  }

  close(): void {
    this.#database.close()
  }
}

/** 'Hold' in ASCII: what makes an SQLite database a lock file of ours. */
const APPLICATION_ID = 0x486f6c64
const SCHEMA_VERSION = 1

function prepareFile(database: Database, { path, boot, now }: LockFileOptions): void {
  if (!isOurs(database, path)) {
    // A step changes two or three rows of 200 bytes, and each page it touches goes to the log: pages of 1 KB instead of
    // 4 KB make the log and the fsync of a checkpoint four times smaller (2 ms instead of 5 at worst, on an SSD).
    database.exec('PRAGMA page_size = 1024')
  }
  const { journal_mode: mode } = pragma(database, 'journal_mode = WAL')
  if (mode !== 'wal') {
    throw new StoreError(
      'store-refused',
      `Expected the lock file ${JSON.stringify(path)} to be where processes can share memory, got a file system where SQLite has no write-ahead log.`,
    )
  }
  // No commit waits for the disk: whatever a power cut takes, it ends every holder and waiter, too. But the file has to
  // be sound afterwards, which OFF would not guarantee.
  database.exec('PRAGMA synchronous = NORMAL')
  database.exec('BEGIN IMMEDIATE')
  try {
    // Asked again now that nobody can be just about to do the same.
    if (!isOurs(database, path)) createTables(database)
    dropFormerBoot(database, boot, now())
    database.exec('COMMIT')
  } catch (error) {
    rollBack(database)
    throw error
  }
}

/** True for a lock file, false for an empty file. */
function isOurs(database: Database, path: string): boolean {
  const { application_id: application } = pragma(database, 'application_id')
  const { user_version: version } = pragma(database, 'user_version')
  if (application === APPLICATION_ID && version === SCHEMA_VERSION) return true
  if (application === APPLICATION_ID) {
    throw new StoreError(
      'store-refused',
      `Expected the lock file ${JSON.stringify(path)} to have format ${SCHEMA_VERSION}, got format ${version}. Use one version of holdfast in all programs that share it.`,
    )
  }
  const { tables } = database.prepare('SELECT count(*) AS tables FROM sqlite_schema').get() as Pragma
  if (application === 0 && version === 0 && tables === 0) return false
  throw new StoreError(
    'store-refused',
    `Expected ${JSON.stringify(path)} to be a lock file or no file yet, got the database of another program.`,
  )
}

function createTables(database: Database): void {
  database.exec(scripts.schema)
  database.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${SCHEMA_VERSION}`)
}

/** Whoever was there before the machine was started anew is gone, and the times in their rows mean nothing now. */
function dropFormerBoot(database: Database, boot: string, time: StoreTime): void {
  const meta = database.prepare('SELECT boot, clock_ms AS ms, clock_us AS us FROM meta').get() as
    | (Moment & { readonly boot: string })
    | undefined
  if (meta === undefined) {
    database.prepare('INSERT INTO meta VALUES (1, ?, ?, ?)').run(boot, time.ms, time.us)
    return
  }
  // Without a name for it: a clock that is behind has started anew.
  const sameBoot = boot === '' ? meta.ms <= time.ms : meta.boot === boot
  if (sameBoot) return
  database.exec('DELETE FROM holder; DELETE FROM waiter; DELETE FROM tombstone; DELETE FROM closure')
  const { ms, us } = momentAfterReboot(meta, time)
  database.prepare('UPDATE meta SET boot = ?, clock_ms = ?, clock_us = ?').run(boot, ms, us)
}

type Pragma = Readonly<Record<string, unknown>>

function pragma(database: Database, text: string): Pragma {
  return database.prepare(`PRAGMA ${text}`).get() as Pragma
}

/** SQLite has rolled back by itself after some errors; then there is nothing to do, and it says so. */
function rollBack(database: Database): void {
  try {
    database.exec('ROLLBACK')
  } catch {}
}

function identityOf(path: string): string | undefined {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false })
  return stats && `${stats.dev}:${stats.ino}`
}

function nearestFolder(path: string): string {
  let folder = dirname(path)
  while (!existsSync(folder) && folder !== dirname(folder)) folder = dirname(folder)
  return folder
}

/** Returns how to remove what was made, and the file if nothing was written to it. */
function makeFolders(path: string): () => void {
  const existed = existsSync(path)
  const folder = dirname(path)
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
    try {
      if (!existed && statSync(path, { throwIfNoEntry: false })?.size === 0) rmSync(path)
      if (first === undefined) return
      for (let made = folder; made.startsWith(first); made = dirname(made)) rmdirSync(made)
    } catch {
      // Somebody else uses it already.
    }
  }
}
