import { join } from 'node:path'
import { DatabaseSync } from '@photostructure/sqlite'
import type { Adapter, Surroundings } from '../adapter.ts'

/** The baseline for a file: two immediate transactions, one that inserts a row and one that deletes it. */
export async function openBareSqlite({ folder }: Surroundings): Promise<Adapter> {
  const database = new DatabaseSync(join(folder, 'bare.db'))
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL')
  database.exec(
    'CREATE TABLE IF NOT EXISTS lock (key TEXT PRIMARY KEY, id TEXT NOT NULL, expires REAL NOT NULL) WITHOUT ROWID',
  )
  const begin = database.prepare('BEGIN IMMEDIATE')
  const commit = database.prepare('COMMIT')
  const insert = database.prepare('INSERT INTO lock (key, id, expires) VALUES (?, ?, ?)')
  const remove = database.prepare('DELETE FROM lock WHERE key = ? AND id = ?')
  let count = 0
  return {
    async acquire(key) {
      count += 1
      const id = `${process.pid}-${count}`
      begin.run()
      insert.run(key, id, performance.now() + 30_000)
      commit.run()
      return () => {
        begin.run()
        remove.run(key, id)
        commit.run()
      }
    },
    async close() {
      database.close()
    },
  }
}
