export { defaultSqlitePath } from './file-path.ts'
export { openSqlite, sqliteStore } from './open.ts'
export type { SqliteStoreOptions } from './options.ts'
