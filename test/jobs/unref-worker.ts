/**
 * Works, and waits for nothing that keeps a process alive, neither in its only handler nor elsewhere. Prints the jobs
 * that have ended.
 */
import { Pool } from 'pg'
import { createJobs } from '../../src/jobs/index.ts'

const [url = '', schema = ''] = process.argv.slice(2)
const pool = new Pool({ connectionString: url })
const jobs = createJobs(pool, { schema })
process.on('exit', () => process.stdout.write('exit\n'))

const worker = jobs.work(
  {
    a: async () => {
      await new Promise((resolve) => setTimeout(resolve, 2000).unref())
      process.stdout.write('ended\n')
      setImmediate(() => void worker.stop().then(() => jobs.close()))
    },
  },
  { concurrency: 1, pollInterval: 100 },
)
