export { defaultSqlitePath } from './file-path.ts'
export { openSqlite, type SqliteStoreOptions, sqliteStore } from './sqlite-store.ts'
