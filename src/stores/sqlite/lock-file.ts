import { existsSync, statSync } from 'node:fs'
import { StoreError } from '../../errors.ts'
import type { StoreTime } from '../../law/room.ts'
import {
  APPLICATION_ID,
  createFile,
  createTables,
  nearestFolder,
  rollBack,
  SCHEMA_VERSION,
} from './create-file.ts'
import { type Moment, momentAfterReboot } from './fence-clock.ts'
import { refuseNetworkFileSystem } from './file-system.ts'
import { realLockPath } from './real-path.ts'
import { type Database, openDatabase, type PreparedStatement, type SqliteEngine } from './sqlite-engine.ts'
import { prepareStatements, type SqliteStatements } from './statements.ts'

export interface LockFileOptions {
  readonly path: string
  readonly engine: SqliteEngine | undefined
  /** Names the boot that the clock counts from; empty when the system has no name for it. */
  readonly boot: string
  readonly now: () => StoreTime
}

/** A connection to a lock file. */
export class LockFile {
  readonly #options: LockFileOptions
  /** The file that the path of the options leads to, if that path is a link. */
  readonly #path: string
  readonly #database: Database
  /** Of the file itself, and not of its name. `undefined` if it was deleted just after it was made. */
  readonly identity: string | undefined
  /** SQLite's two files beside it, which exist while any process has it open. */
  #companions: string | undefined
  #facts: PreparedStatement | undefined
  #writeAhead: PreparedStatement | undefined
  #statements: SqliteStatements | undefined

  /** Makes the file and its folders if they are missing. */
  constructor(options: LockFileOptions) {
    const { engine, now } = options
    // First, because it throws where the processes of the machine share no clock.
    now()
    const path = realLockPath(options.path)
    refuseNetworkFileSystem(nearestFolder(path))
    if (!existsSync(path)) createFile(path, engine)
    else if (!statSync(path).isFile()) {
      const file = JSON.stringify(path)
      const kind = statSync(path).isDirectory() ? 'a folder' : 'a device, a pipe or a socket'
      throw new StoreError('store-refused', `Expected the lock file ${file} to be a file, got ${kind}.`)
    }
    this.#options = options
    this.#path = path
    // Before it is opened. If the file is replaced in between, it is taken for another one, and opened anew.
    this.identity = identityOf(path)
    this.#database = openDatabase(path, engine)
  }

  /**
   * Opens a file that is certainly a lock file, of this version and of this boot. The file may be busy during the first look.
   * Then this asks again on the same connection, because the package keeps a closed one open until its statements are
   * collected as garbage.
   */
  get statements(): SqliteStatements {
    if (this.#statements === undefined) {
      this.#statements = this.#prepare()
      this.#companions = this.#companionsNow()
    }
    return this.#statements
  }

  /**
   * Whether the path still leads to the files that are open here. One of them may have been deleted or replaced. If a person took
   * `-wal` or `-shm` for leftovers and deleted it, two processes would write without seeing each other's changes.
   */
  isInPlace(): boolean {
    if (identityOf(this.#options.path) !== this.identity) return false
    return this.#companions === undefined || this.#companionsNow() === this.#companions
  }

  rollBack(): void {
    rollBack(this.#database)
  }

  close(): void {
    this.#database.close()
  }

  #companionsNow(): string {
    return ['-wal', '-shm'].map((suffix) => identityOf(`${this.#path}${suffix}`) ?? 'none').join()
  }

  #prepare(): SqliteStatements {
    const database = this.#database
    // The look at whose file it is comes first, because the pragmas below change the file.
    if (!this.#isOurs()) createTables(database, this.#path)
    this.#useWriteAheadLog()
    // No commit waits for the disk. A power cut may lose commits, but it ends every holder and waiter, too. The file has to be
    // sound afterwards, which OFF would not guarantee.
    database.exec('PRAGMA synchronous = NORMAL')
    database.exec('BEGIN IMMEDIATE')
    try {
      this.#dropFormerBoot()
      database.exec('COMMIT')
    } catch (error) {
      this.rollBack()
      throw error
    }
    return prepareStatements(database)
  }

  /** True for a lock file, false for an empty file. */
  #isOurs(): boolean {
    this.#facts ??= this.#database.prepare(
      'SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) AS tables FROM pragma_application_id, pragma_user_version',
    )
    const { application_id, user_version = 0, tables } = this.#facts.get() as Readonly<Record<string, number>>
    if (application_id === APPLICATION_ID && user_version === SCHEMA_VERSION) return true
    const file = JSON.stringify(this.#options.path)
    if (application_id === APPLICATION_ID) {
      const advice =
        user_version < SCHEMA_VERSION
          ? 'Stop the programs with an older version of holdfast and delete the file with its -wal and -shm; nothing but held locks is lost.'
          : 'Use one version of holdfast in all programs that share it.'
      throw new StoreError(
        'store-refused',
        `Expected the lock file ${file} to have format ${SCHEMA_VERSION}, got format ${user_version}. ${advice}`,
      )
    }
    if (application_id === 0 && user_version === 0 && tables === 0) return false
    throw new StoreError(
      'store-refused',
      `Expected ${file} to be a lock file or no file yet, got the database of another program.`,
    )
  }

  #useWriteAheadLog(): void {
    this.#writeAhead ??= this.#database.prepare('PRAGMA journal_mode = WAL')
    const { journal_mode } = this.#writeAhead.get() as { readonly journal_mode: string }
    if (journal_mode === 'wal') return
    throw new StoreError(
      'store-refused',
      `Expected the lock file ${JSON.stringify(this.#options.path)} to be where processes can share memory, got a file system where SQLite has no write-ahead log.`,
    )
  }

  /**
   * Clears the rows of an earlier boot: their processes are gone, and their times mean nothing now. Another name does not prove a
   * reboot: a container may have a name of its own, and a runtime may not be allowed to read it. So either of two things has to come
   * with it: a clock that is behind, or a wall clock that has gained on it. Since the machine's clock begins anew with each boot, the
   * gain is at least what that clock showed last. A machine that sleeps gains, too, but seldom for longer than it ran before. The
   * fence clock of the file stands in for the wall clock. After a reboot it is ahead by ten minutes or more, until the wall clock has
   * caught up. So the next reboot may stay unnoticed: then the rows last for as long as they had been renewed for, and nobody loses a lease.
   */
  #dropFormerBoot(): void {
    const { boot, now } = this.#options
    const time = now()
    const database = this.#database
    const meta = database.prepare('SELECT boot, clock_ms AS ms, clock_us AS us FROM meta').get() as
      | (Moment & { readonly boot: string })
      | undefined
    if (meta === undefined) {
      database.prepare('INSERT INTO meta VALUES (1, ?, ?, ?)').run(boot, time.ms, time.us)
      return
    }
    const isBehind = time.ms < meta.ms
    if (meta.boot === boot && (boot !== '' || !isBehind)) return
    const gainedMs = (time.us - meta.us) / 1000 - (time.ms - meta.ms)
    if (isBehind || (meta.boot !== boot && gainedMs > Math.max(meta.ms, MOST_SET_MS)))
      database.exec('DELETE FROM holder; DELETE FROM waiter; DELETE FROM tombstone; DELETE FROM closure')
    const mayBeNew = isBehind || (meta.boot !== '' && boot !== '')
    const { ms, us } = mayBeNew ? momentAfterReboot(meta, time) : meta
    database.prepare('UPDATE meta SET boot = ?, clock_ms = ?, clock_us = ?').run(boot, ms, us)
  }
}

/** A wall clock is seldom set by more. */
const MOST_SET_MS = 60_000

/** Identifies the file itself, and not its name. */
function identityOf(path: string): string | undefined {
  const stats = statSync(path, { bigint: true, throwIfNoEntry: false })
  return stats && `${stats.dev}:${stats.ino}`
}
