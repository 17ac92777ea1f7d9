import pg from 'pg'
import { advisorySession, advisoryXact } from '../../src/stores/postgres/index.ts'
import type { Adapter, Surroundings } from '../adapter.ts'

/** A key in a transaction of the caller that does nothing else. */
export async function openAdvisoryXact({ postgresUrl }: Surroundings): Promise<Adapter> {
  const tx = new pg.Client({ connectionString: postgresUrl })
  await tx.connect()
  return {
    async acquire(key) {
      await tx.query('BEGIN')
      await advisoryXact(tx, key)
      return async () => {
        await tx.query('COMMIT')
      }
    },
    close: () => tx.end(),
  }
}

/** The same through an executor, which cannot say whether it is in a transaction: a second statement has to ask. */
export async function openAdvisoryXactByExecutor({ postgresUrl }: Surroundings): Promise<Adapter> {
  const client = new pg.Client({ connectionString: postgresUrl })
  await client.connect()
  const tx = {
    query: async (text: string, parameters: readonly (string | null)[] = []) =>
      (await client.query(text, [...parameters])).rows,
  }
  return {
    async acquire(key) {
      await client.query('BEGIN')
      await advisoryXact(tx, key)
      return async () => {
        await client.query('COMMIT')
      }
    },
    close: () => client.end(),
  }
}

export async function openAdvisorySession({ postgresUrl }: Surroundings): Promise<Adapter> {
  const pool = new pg.Pool({ connectionString: postgresUrl })
  return {
    async acquire(key) {
      const lease = await advisorySession(pool, key)
      return () => lease.release()
    },
    close: () => pool.end(),
  }
}
