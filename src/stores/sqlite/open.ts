import { opened } from '../../base/opened.ts'
import type { Store } from '../../contract/store.ts'
import { parseOptions, type SqliteStoreOptions } from './options.ts'
import { SqliteStore } from './sqlite-store.ts'

/**
 * A store in a file, for all processes of one machine. Nothing has to be running, nothing has to be set up, and what was
 * held when the machine went down is free when it comes up.
 *
 * All processes have to see the file on a disk of the same machine: network file systems are refused. In containers, the
 * folder has to be shared, not the file alone, because SQLite keeps two more files beside it.
 *
 * Takes a path or {@link SqliteStoreOptions}. The file is opened by the first call; {@link openSqlite} opens it at once.
 * Calls throw `StoreError`s: `store-refused` when the file cannot be used until somebody changes something,
 * `store-unavailable` when the disk is full or another process was stopped in the middle of a transaction.
 *
 * Needs Node.js 22.16 or newer, or the package `@photostructure/sqlite`, which needs no compiler.
 *
 * ```ts
 * import { createLocks } from 'holdfast'
 * import { sqliteStore } from 'holdfast/sqlite'
 *
 * const locks = createLocks(sqliteStore('./locks.db'))
 * await locks.withLock('report', async () => console.log('one at a time on this machine'))
 * ```
 */
export function sqliteStore(pathOrOptions: string | SqliteStoreOptions): Store {
  return new SqliteStore(parseOptions(pathOrOptions))
}

/** {@link sqliteStore}, once its file could be opened: for programs that want to know at their start. */
export async function openSqlite(pathOrOptions: string | SqliteStoreOptions): Promise<Store> {
  return opened(new SqliteStore(parseOptions(pathOrOptions)), (store) => store.open())
}
