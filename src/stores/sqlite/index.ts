/**
 * A store in one file, for the processes of one machine. See [SQLite](../../../docs/sqlite.md).
 *
 * @module
 */
export { defaultSqlitePath } from './file-path.ts'
export { openSqlite, sqliteStore } from './open.ts'
export type { SqliteStoreOptions } from './options.ts'
