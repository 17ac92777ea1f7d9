import pg from 'pg'
import postgres from 'postgres'
import type { PostgresPool } from '../../../src/postgres/connections.ts'

/** A client of each package, as users have them; nothing here ever connects it. */
export const clients: Readonly<Record<string, (url: string) => PostgresPool>> = {
  'the package pg': (url) => new pg.Pool({ connectionString: url }),
  'the package postgres': (url) => postgres(url),
}
