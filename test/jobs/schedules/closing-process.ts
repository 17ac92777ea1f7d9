/** Fires schedules, and closes its jobs without a stop of the schedules. Prints what becomes of it. */
import { Pool } from 'pg'
import { createJobs } from '../../../src/jobs/index.ts'
import { createJobSchedules } from '../../../src/jobs/schedules/index.ts'

const [url = '', schema = ''] = process.argv.slice(2)
const pool = new Pool({ connectionString: url })
const jobs = createJobs(pool, { schema })
process.on('exit', () => process.stdout.write('exit\n'))

const schedules = createJobSchedules(jobs, {
  onFire: async () => {
    await jobs.close()
    await pool.end()
    process.stdout.write('closed\n')
  },
  onError: (error) => process.stdout.write(`error: ${error}\n`),
})
schedules.start()
