// A table of pending jobs, drained by four processes: every order is billed exactly once.
// Needs: PostgreSQL at POSTGRES_URL; pg.
// Run: npx tsx examples/pending-jobs.ts
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { createJobs } from 'holdfast/jobs'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env['POSTGRES_URL'] ?? 'postgres://localhost/postgres' })
const jobs = createJobs<{ bill: { order: number } }>(pool, { schema: 'pending_jobs_example' })

if (process.argv[2] === 'worker') await work()
else await main()
await jobs.close()
await pool.end()

async function work(): Promise<void> {
  const worker = jobs.work({
    bill: async (job) => {
      const tx = await pool.connect()
      try {
        await tx.query('BEGIN')
        await tx.query('INSERT INTO example_bill VALUES ($1)', [job.payload.order])
        // Together with the bill. Had another worker taken the job over meanwhile, this would throw and undo the bill.
        await job.complete({ transaction: tx })
        await tx.query('COMMIT')
      } catch (error) {
        await tx.query('ROLLBACK')
        throw error
      } finally {
        tx.release()
      }
    },
  })
  await once(process, 'message')
  await worker.stop()
  process.disconnect()
}

async function main(): Promise<void> {
  await jobs.migrate()
  await pool.query('DROP TABLE IF EXISTS example_bill; CREATE TABLE example_bill ("order" integer)')
  const orders = Array.from({ length: 200 }, (_, order) => order)
  await jobs.enqueueAll(orders.map((order) => ({ name: 'bill' as const, payload: { order } })))

  const workers = [1, 2, 3, 4].map(() => fork(fileURLToPath(import.meta.url), ['worker']))
  const isPending = (state: string) => ['ready', 'delayed', 'running'].includes(state)
  while ((await jobs.count()).some(({ state }) => isPending(state))) {
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  for (const worker of workers) {
    worker.send('stop')
    await once(worker, 'exit')
  }

  const { rows } = await pool.query(
    'SELECT count(*)::int AS bills, count(DISTINCT "order")::int AS orders FROM example_bill',
  )
  console.log(`${rows[0].bills} bills for ${rows[0].orders} orders`)
  if (rows[0].bills !== 200 || rows[0].orders !== 200) throw new Error('an order was not billed exactly once')
}
