// One process with two workers, until it is killed or told to stop. Each job's effect is a row. The transaction that
// completes the job writes it.
import { Pool } from 'pg'
import { createJobs } from '../../src/jobs/index.ts'

const [url = '', schema = ''] = process.argv.slice(2)
const pool = new Pool({ connectionString: url, max: 8 })
pool.on('error', () => {})
const jobs = createJobs<{ effect: { number: number } }>(pool, { schema })
const lost: string[] = []

const workers = [1, 2].map(() =>
  jobs.work(
    {
      effect: async (job) => {
        const client = await pool.connect()
        try {
          await client.query('begin')
          await client.query(`insert into ${schema}.effects (number, attempt) values ($1, $2)`, [
            job.payload.number,
            job.attempt,
          ])
          await job.complete({ transaction: client })
          await client.query('commit')
        } catch (error) {
          await client.query('rollback')
          throw error
        } finally {
          client.release()
        }
      },
    },
    {
      concurrency: 8,
      ttl: '3s',
      onFailure: ({ outcome, error }) => lost.push(`${outcome}: ${String(error)}`),
      onError: (error) => lost.push(String(error)),
    },
  ),
)

process.on('disconnect', () => process.exit(1))
process.on('message', async () => {
  await Promise.all(workers.map((worker) => worker.stop()))
  await jobs.close()
  await pool.end()
  process.send?.(lost)
  process.disconnect()
})
process.send?.('ready')
