// A worker that records each begin. When it begins a job that is called poison, it kills its own process.
import { appendFileSync } from 'node:fs'
import { Pool } from 'pg'
import { createJobs } from '../../src/jobs/index.ts'

const [url = '', schema = '', begins = ''] = process.argv.slice(2)
const jobs = createJobs(new Pool({ connectionString: url }), { schema })

jobs.work(
  {
    quick: ({ id }) => appendFileSync(begins, `${id}\n`),
    poison: async ({ id }) => {
      appendFileSync(begins, `${id}\n`)
      // Jobs that have a place beside this one begin in the same turn.
      await null
      process.kill(process.pid, 'SIGKILL')
    },
  },
  { concurrency: 4, ttl: '4s', onFailure: () => {}, onError: () => {} },
)

process.on('disconnect', () => process.exit(0))
