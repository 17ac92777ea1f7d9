// A worker whose first handler blocks the event loop of its process until a file is there. It tells its parent of every
// begin and failure.
import { existsSync } from 'node:fs'
import { Pool } from 'pg'
import { createJobs } from '../../src/jobs/index.ts'

const [url = '', schema = '', gate = ''] = process.argv.slice(2)
const pool = new Pool({ connectionString: url })
const jobs = createJobs(pool, { schema })
const sleep = new Int32Array(new SharedArrayBuffer(4))
let isFirst = true

jobs.work(
  {
    a: (job) => {
      process.send?.({ begun: job.id })
      if (!isFirst) return
      isFirst = false
      while (!existsSync(gate)) Atomics.wait(sleep, 0, 0, 20)
      process.send?.({ told: [job.signal.aborted, thrownBy(job.assertHeld)] })
    },
  },
  {
    ttl: '1s',
    concurrency: 3,
    onFailure: ({ job: { id }, outcome }) => process.send?.({ failed: id, outcome }),
    onError: () => {},
  },
)

process.on('disconnect', () => process.exit(0))

function thrownBy(call: () => void): unknown {
  try {
    call()
    return undefined
  } catch (error) {
    return (error as { code?: unknown }).code
  }
}
