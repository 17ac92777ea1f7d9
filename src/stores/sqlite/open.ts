import { opened } from '../../base/opened.ts'
import type { Store } from '../../contract/store.ts'
import { parseOptions, type SqliteStoreOptions } from './options.ts'
import { SqliteStore } from './sqlite-store.ts'

/**
 * A store in a file, for all processes of one machine. It needs no server and no set-up. When the machine goes down, all keys
 * become free.
 *
 * All processes have to see the file on a disk of the same machine: network file systems are refused. Containers have to share
 * the folder and not the file alone, because SQLite keeps two more files beside it.
 *
 * Takes a path or {@link SqliteStoreOptions}. The file is opened by the first call; {@link openSqlite} opens it at once.
 * Calls throw `StoreError`s: `store-refused` when the file cannot be used until a person changes something,
 * `store-unavailable` when the disk is full or another process was stopped in the middle of a transaction.
 *
 * Node.js before 22.16 needs the package `@photostructure/sqlite`, an optional dependency that npm installs with this one.
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

/** Opens a {@link sqliteStore} with its file, for programs that want to know at their start that it works. */
export async function openSqlite(pathOrOptions: string | SqliteStoreOptions): Promise<Store> {
  return opened(new SqliteStore(parseOptions(pathOrOptions)), (store) => store.open())
}
