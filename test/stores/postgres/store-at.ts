import pg from 'pg'
import { onTestFinished } from 'vitest'
import type { Store } from '../../../src/contract/store.ts'
import { type PostgresStoreOptions, postgresStore } from '../../../src/stores/postgres/index.ts'

export function poolAt(url: string): pg.Pool {
  return new pg.Pool({ connectionString: url })
}

/** A store over a pool of its own. Both end with the test. */
export function storeAt(url: string, options: PostgresStoreOptions = {}): Store {
  const pool = poolAt(url)
  const store = postgresStore(pool, options)
  onTestFinished(async () => {
    await store.close()
    await pool.end()
  })
  return store
}

/** The url of a database for another role. */
export function urlAs(role: string, url: string): string {
  return url.replace('holdfast@', `${role}@`)
}
