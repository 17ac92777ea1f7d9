/**
 * Makes the tables, enqueues its jobs, and works until no job is left. It prints the id of each job that it runs, and
 * ends with 0.
 */
import pg from 'pg'
import { createJobs } from '../../src/jobs/index.ts'

const [, , url = '', schema = ''] = process.argv
const pool = new pg.Pool({ connectionString: url })
const jobs = createJobs(pool, { schema, maxConnections: 1 })
process.on('disconnect', () => process.exit(1))

await jobs.migrate()
await jobs.enqueueAll(Array.from({ length: 5 }, () => ({ name: 'a' })))
jobs.work({ a: ({ id }) => process.stdout.write(`${id}\n`) })
while ((await jobs.count()).some(({ state }) => state !== 'completed')) {
  await new Promise((resolve) => setTimeout(resolve, 100))
}
await jobs.close()
await pool.end()
process.exit(0)
