import pg from 'pg'
import { advisoryLockId } from '../../src/stores/postgres/index.ts'
import type { Adapter, Surroundings } from '../adapter.ts'

/** The baseline in a transaction: the three statements. It waits for ever, and takes an autocommitting client for a transaction. */
export async function openBareAdvisoryXact({ postgresUrl }: Surroundings): Promise<Adapter> {
  const tx = new pg.Client({ connectionString: postgresUrl })
  await tx.connect()
  return {
    async acquire(key) {
      await tx.query('BEGIN')
      await tx.query('SELECT pg_advisory_xact_lock($1)', [String(advisoryLockId(key))])
      return async () => {
        await tx.query('COMMIT')
      }
    },
    close: () => tx.end(),
  }
}

/** The baseline on a connection of its own: open, lock, unlock, close. No fence, and no check of the connection. */
export async function openBareAdvisorySession({ postgresUrl }: Surroundings): Promise<Adapter> {
  return {
    async acquire(key) {
      const client = new pg.Client({ connectionString: postgresUrl })
      await client.connect()
      const id = [String(advisoryLockId(key))]
      await client.query('SELECT pg_advisory_lock($1)', id)
      return async () => {
        await client.query('SELECT pg_advisory_unlock($1)', id)
        await client.end()
      }
    },
    close: async () => {},
  }
}
