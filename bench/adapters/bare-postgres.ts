import { Pool } from 'pg'
import type { Adapter, Surroundings } from '../adapter.ts'

/** The baseline for a free key: a row that is inserted and deleted. It has no queue, no renewal, no expiry and no fence. */
export async function openBareRow({ postgresUrl }: Surroundings): Promise<Adapter> {
  const pool = new Pool({ connectionString: postgresUrl, max: 1 })
  await pool.query(
    'create table if not exists bare_lock (key text primary key, id text, expires_at timestamptz)',
  )
  let count = 0
  return {
    async acquire(key) {
      count += 1
      const id = `${process.pid}-${count}`
      await pool.query({
        name: 'take',
        text: `insert into bare_lock values ($1, $2, clock_timestamp() + interval '30 s') on conflict do nothing`,
        values: [key, id],
      })
      return async () => {
        await pool.query({
          name: 'give back',
          text: 'delete from bare_lock where key = $1 and id = $2',
          values: [key, id],
        })
      }
    },
    close: () => pool.end(),
  }
}

/** The baseline for waiters: PostgreSQL's own lock, on a connection for each waiter. Nothing is written, so nothing is kept. */
export async function openBareAdvisoryQueue({ postgresUrl }: Surroundings): Promise<Adapter> {
  const pool = new Pool({ connectionString: postgresUrl, max: 100 })
  return {
    async acquire(key) {
      const client = await pool.connect()
      await client.query({
        name: 'lock',
        text: 'select pg_advisory_lock(hashtextextended($1, 0))',
        values: [key],
      })
      return async () => {
        await client.query({
          name: 'unlock',
          text: 'select pg_advisory_unlock(hashtextextended($1, 0))',
          values: [key],
        })
        client.release()
      }
    },
    close: () => pool.end(),
  }
}
