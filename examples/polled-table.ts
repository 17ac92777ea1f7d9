// A table of your own that four processes poll: a lock per job and action, so that every mail is sent by one of them.
// Needs: PostgreSQL at POSTGRES_URL; pg.
// Run: npx tsx examples/polled-table.ts
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { createLocks } from 'holdfast'
import { migrate, postgresStore } from 'holdfast/postgres'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env['POSTGRES_URL'] ?? 'postgres://localhost/postgres' })

if (process.argv[2] === 'worker') await work()
else await main()
await pool.end()

async function work(): Promise<void> {
  await using locks = createLocks(postgresStore(pool))
  for (;;) {
    const { rows: pending } = await pool.query('SELECT id FROM example_mail WHERE sent_at IS NULL LIMIT 20')
    if (pending.length === 0) break
    for (const { id } of pending) {
      // Whoever finds it locked goes on with the next one.
      await locks.tryWithLock(`${id}#send`, async (lease) => {
        // Looked at again under the lock: it may have been sent since the list was read.
        const { rows } = await pool.query('SELECT sent_at FROM example_mail WHERE id = $1', [id])
        if (rows[0].sent_at !== null) return
        await send(id)
        lease.assertHeld()
        await pool.query('UPDATE example_mail SET sent_at = now() WHERE id = $1', [id])
      })
    }
  }
  process.disconnect()
}

/** Stands for what cannot be in a transaction. A process that dies behind it leaves the mail to be sent once more. */
async function send(id: number): Promise<void> {
  await pool.query('INSERT INTO example_outbox VALUES ($1)', [id])
}

async function main(): Promise<void> {
  await migrate(pool)
  await pool.query(`
    DROP TABLE IF EXISTS example_mail, example_outbox;
    CREATE TABLE example_mail (id integer PRIMARY KEY, sent_at timestamptz);
    CREATE TABLE example_outbox (id integer);
    INSERT INTO example_mail SELECT generate_series(1, 60)`)
  const workers = [1, 2, 3, 4].map(() => fork(fileURLToPath(import.meta.url), ['worker']))
  await Promise.all(workers.map((worker) => once(worker, 'exit')))
  const { rows } = await pool.query(
    'SELECT count(*)::int AS mails, count(DISTINCT id)::int AS ids FROM example_outbox',
  )
  console.log(`${rows[0].mails} mails for ${rows[0].ids} entries`)
  if (rows[0].mails !== 60 || rows[0].ids !== 60) throw new Error('a mail was not sent exactly once')
}
