import { existsSync, realpathSync } from 'node:fs'
import { dirname } from 'node:path'
import { expected } from '../base/arguments.ts'
import { type Owner, parseOwner } from '../base/owner.ts'
import { messageOf, reportOf } from '../base/thrown.ts'
import { InvalidArgumentError, isHoldfastError, StoreError } from '../errors.ts'
import type { HistoryFile, SavedHistory } from '../room-watch/history-file.ts'
import type { HoldEnd, HoldRecord, KeyHold } from '../room-watch/hold-record.ts'
import type { WatchedTime } from '../room-watch/watched-times.ts'
import {
  type Database,
  openDatabase,
  type PreparedStatement,
  type SqlValue,
} from '../stores/sqlite/sqlite-engine.ts'
import type { RecordSettings } from './options.ts'

/**
 * The history in an SQLite file. A row that another version or another program has made unreadable is left out. If the file
 * cannot be written, the history goes on in memory, and a warning says so once. Neither happens where another connection has the file
 * locked for less than a minute: the holds are written after a later look.
 */
export class RecordFile implements HistoryFile {
  readonly #path: string
  readonly #database: Database
  readonly #lock: Database
  readonly #statements: Readonly<Record<keyof typeof STATEMENTS, PreparedStatement>>
  readonly #keepMs: number
  #hasWarned = false
  /** When the file was first found locked, since the last write. */
  #busySinceAt: number | undefined
  #trimAt = 0
  #isClosed = false

  /**
   * @throws {InvalidArgumentError} where the folder is missing, or the file is no history, is that of another store, or is
   * open in another dashboard.
   * @throws {StoreError} where the file cannot be opened.
   */
  constructor(path: string, { keepMs, store }: Pick<RecordSettings, 'keepMs' | 'store'>) {
    this.#path = path
    this.#keepMs = keepMs
    const { database, lock } = opened(path, store)
    this.#database = database
    this.#lock = lock
    const entries = Object.entries(STATEMENTS).map(([name, sql]) => [name, this.#database.prepare(sql)])
    this.#statements = Object.fromEntries(entries)
  }

  load(prefix: string): SavedHistory {
    const at = Date.now()
    const sinceAt = at - this.#keepMs
    // The newest ones, as more than that are not kept in memory, either.
    const holds = this.#statements.holds.all(
      prefix,
      prefix,
      sinceAt,
      MOST_HOLDS,
    ) as unknown as readonly HoldRow[]
    const watched = this.#statements.watched.all(sinceAt, at) as unknown as readonly WatchedRow[]
    const { count, oldestAt } = this.#statements.size.get() as { count: number; oldestAt: number | null }
    // From now on, SQLite would wait on the thread that renews the leases of this process.
    this.#database.exec('pragma busy_timeout = 0')
    return {
      holds: holds.toReversed().flatMap((row) => holdIn(row) ?? []),
      // The clock may have been set back since.
      watched: watched.map(({ from_at, until_at }) => ({ fromAt: from_at, untilAt: Math.min(until_at, at) })),
      completeFromAt: count >= MOST_HOLDS ? (oldestAt ?? undefined) : undefined,
    }
  }

  save(changed: readonly KeyHold[], { fromAt, untilAt }: WatchedTime, keptSinceAt: number): boolean {
    if (this.#isClosed) return false
    const { begin, commit, hold, watch, unwatch, trimHolds, trimWatched, most } = this.#statements
    try {
      begin.run()
      for (const each of changed) hold.run(...valuesOf(each))
      watch.run(fromAt, untilAt)
      unwatch.run(untilAt)
      // After the clock was set back, `#trimAt` is far ahead.
      if (untilAt >= this.#trimAt || untilAt < this.#trimAt - TRIM_EVERY_MS) {
        this.#trimAt = untilAt + TRIM_EVERY_MS
        trimHolds.run(keptSinceAt)
        trimWatched.run(keptSinceAt)
        most.run(MOST_HOLDS)
      }
      commit.run()
      this.#busySinceAt = undefined
      return true
    } catch (error) {
      this.#rollBack()
      if (isBusy(error)) {
        this.#busySinceAt ??= untilAt
        if (untilAt - this.#busySinceAt < LONGEST_BUSY_MS) return false
      }
      this.#warn(error)
      return false
    }
  }

  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#database.close()
    this.#lock.close()
  }

  #rollBack(): void {
    try {
      this.#statements.rollback.run()
    } catch {
      // The transaction did not begin, or SQLite has ended it.
    }
  }

  #warn(error: unknown): void {
    if (this.#hasWarned) return
    this.#hasWarned = true
    process.emitWarning(
      `The history of the dashboard cannot be written to ${JSON.stringify(this.#path)}: ${messageOf(error)}. It goes on in memory.`,
      { type: 'HoldfastWarning', code: 'HOLDFAST_DASHBOARD', detail: reportOf(error) },
    )
  }
}

interface OpenedFile {
  readonly database: Database
  /** Its open transaction keeps other dashboards out, and ends with the process. */
  readonly lock: Database
}

function opened(path: string, store: string | undefined): OpenedFile {
  // SQLite says only that it is "unable to open database file".
  if (!existsSync(dirname(path))) throw expected('record.file', 'in a folder that exists', path)
  let database: Database | undefined
  let lock: Database | undefined
  try {
    database = openDatabase(path, undefined)
    checkKind(database, path)
    // Locked in a file of its own, so that other programs can read the history.
    lock = openDatabase(`${realpathSync(path)}-lock`, undefined)
    takeLock(lock, path)
    database.exec(SCHEMA)
    if (store !== undefined) checkStore(database, { path, store })
    return { database, lock }
  } catch (cause) {
    database?.close()
    lock?.close()
    if (isHoldfastError(cause)) throw cause
    throw new StoreError(
      'store-refused',
      `The history of the dashboard cannot be opened at ${JSON.stringify(path)}: ${messageOf(cause)}.`,
      { cause },
    )
  }
}

function checkKind(database: Database, path: string): void {
  const prepared = database.prepare('pragma application_id')
  const { application_id: id } = prepared.get() as { application_id: number }
  const tables = database.prepare('select count(*) as count from sqlite_master')
  const isEmpty = (tables.get() as { count: number }).count === 0
  if (id === APPLICATION_ID || isEmpty) return
  throw new InvalidArgumentError(
    `Expected \`record.file\` to be a file that the dashboard has made, or none yet, got ${JSON.stringify(path)} with something else in it.`,
  )
}

function takeLock(lock: Database, path: string): void {
  try {
    lock.exec('pragma busy_timeout = 0')
    lock.exec('begin exclusive')
  } catch (cause) {
    if (!/database is locked/.test(messageOf(cause))) throw cause
    throw new InvalidArgumentError(
      `Expected \`record.file\` to be a file that no other dashboard has open, got ${JSON.stringify(path)}. Give each dashboard a file of its own.`,
    )
  }
}

/** The first store whose name is given gets the file. */
function checkStore(
  database: Database,
  { path, store }: { readonly path: string; readonly store: string },
): void {
  const row = database.prepare('select name from store').get() as { name: string } | undefined
  if (row === undefined) database.prepare('insert into store values (?)').run(store)
  if (row === undefined || row.name === store) return
  throw new InvalidArgumentError(
    `Expected \`record.file\` to be a history of the store ${JSON.stringify(store)}, got ${JSON.stringify(path)}, which is of ${JSON.stringify(row.name)}. Give each store a file of its own.`,
  )
}

/** Whether another connection has the file locked. */
function isBusy(error: unknown): boolean {
  if (!(error instanceof Error) || !('errcode' in error)) return false
  return typeof error.errcode === 'number' && (error.errcode & 0xff) === SQLITE_BUSY
}

interface HoldRow {
  readonly key: string
  readonly id: string
  readonly fence: string
  readonly owner: string
  readonly units: number
  readonly unit_limit: number
  readonly from_at: number
  readonly until_at: number | null
  readonly end: string | null
  readonly reason: string | null
  readonly ttl_ms: number | null
  readonly renewed_at: number | null
}

interface WatchedRow {
  readonly from_at: number
  readonly until_at: number
}

/** `undefined`: another program has changed the row. */
function holdIn(row: HoldRow): KeyHold | undefined {
  const { key, id, units } = row
  const owner = ownerIn(row.owner)
  if (!/^\d+$/.test(row.fence) || owner === undefined || !hasRightTypes(row)) return undefined
  const optional: Partial<HoldRecord> = {
    ...(row.until_at !== null && { untilAt: row.until_at }),
    ...(row.end !== null && { end: row.end as HoldEnd }),
    ...(row.reason !== null && { reason: row.reason }),
    ...(row.ttl_ms !== null && { ttlMs: row.ttl_ms }),
    ...(row.renewed_at !== null && { renewedAt: row.renewed_at }),
  }
  const hold: HoldRecord = {
    id,
    fence: BigInt(row.fence),
    owner,
    units,
    limit: row.unit_limit,
    fromAt: row.from_at,
    ...optional,
  }
  return { key, hold }
}

/** SQLite does not enforce the types of columns. */
function hasRightTypes(row: HoldRow): boolean {
  const texts = [row.key, row.id, row.reason ?? '']
  const numbers = [row.units, row.unit_limit, row.from_at]
  const optional = [row.until_at, row.ttl_ms, row.renewed_at].map((value) => value ?? 0)
  return (
    texts.every((value) => typeof value === 'string') &&
    [...numbers, ...optional].every((value) => typeof value === 'number') &&
    (row.end === null || ENDS.has(row.end))
  )
}

function ownerIn(text: string): Owner | undefined {
  try {
    const owner: Owner | null = JSON.parse(text)
    if (typeof owner !== 'object' || owner === null) return undefined
    // Of a ticket of another program.
    return typeof owner.text === 'string' ? { text: owner.text } : parseOwner(text)
  } catch {
    return undefined
  }
}

function valuesOf({ key, hold }: KeyHold): SqlValue[] {
  const { id, fence, owner, units, limit, fromAt, untilAt, end, reason, ttlMs, renewedAt } = hold
  const { value: _value, ...process } = owner
  return [
    ...[key, id, String(fence), JSON.stringify(process), units, limit, fromAt],
    ...[untilAt ?? null, end ?? null, reason ?? null, ttlMs ?? null, renewedAt ?? null],
  ]
}

const ENDS: ReadonlySet<string> = new Set<HoldEnd>(['released', 'expired', 'unclear', 'evicted'])

// https://sqlite.org/rescode.html
const SQLITE_BUSY = 5

/** 'Hist' in ASCII: marks an SQLite database as a history. */
const APPLICATION_ID = 0x48697374

/** A transaction that is lost with the power costs a second of history. With `off`, the file itself could be damaged. */
const SCHEMA = `
pragma busy_timeout = 1000;
pragma journal_mode = wal;
pragma synchronous = normal;
pragma application_id = ${APPLICATION_ID};
create table if not exists hold (
  key text not null, id text not null, fence text not null, owner text not null, units real not null,
  unit_limit real not null, from_at real not null, until_at real, end text, reason text, ttl_ms real, renewed_at real,
  primary key (key, id, fence)
);
create index if not exists hold_until on hold (until_at);
create index if not exists hold_from on hold (from_at);
create table if not exists watched (from_at real primary key, until_at real not null);
create table if not exists store (name text not null);`

const STATEMENTS = {
  begin: 'begin immediate',
  commit: 'commit',
  rollback: 'rollback',
  holds: `select * from hold where substr(key, 1, length(?)) = ? and (until_at is null or until_at >= ?)
    order by coalesce(until_at, from_at) desc limit ?`,
  watched: 'select * from watched where until_at >= ? and from_at <= ? order by from_at',
  size: 'select count(*) as count, min(from_at) as oldestAt from hold',
  hold: `insert into hold values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (key, id, fence) do update
    set until_at = excluded.until_at, end = excluded.end, reason = excluded.reason, ttl_ms = excluded.ttl_ms,
      renewed_at = excluded.renewed_at`,
  watch: 'insert into watched values (?, ?) on conflict (from_at) do update set until_at = excluded.until_at',
  // Where the clock was set back, times after now say nothing.
  unwatch: 'delete from watched where from_at > ?',
  trimHolds: 'delete from hold where until_at < ?',
  trimWatched: 'delete from watched where until_at < ?',
  most: 'delete from hold where rowid in (select rowid from hold order by from_at desc limit -1 offset ?)',
}

const TRIM_EVERY_MS = 60_000
const LONGEST_BUSY_MS = 60_000
const MOST_HOLDS = 100_000
