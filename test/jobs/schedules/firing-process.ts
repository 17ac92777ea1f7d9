// One process that fires schedules, until it is killed or told to stop. Its wall clock is wrong by so many milliseconds.
import { Pool } from 'pg'

const [url = '', schema = '', skew = '0'] = process.argv.slice(2)
const RealDate = Date
globalThis.Date = class extends RealDate {
  constructor(...given: []) {
    super(...(given.length === 0 ? ([RealDate.now() + Number(skew)] as unknown as []) : given))
  }

  static override now(): number {
    return RealDate.now() + Number(skew)
  }
} as DateConstructor

const { createJobs } = await import('../../../src/jobs/index.ts')
const { createJobSchedules } = await import('../../../src/jobs/schedules/index.ts')

const pool = new Pool({ connectionString: url, max: 2 })
pool.on('error', () => {})
const jobs = createJobs(pool, { schema })
const schedules = createJobSchedules(jobs, { onError: () => {} })
schedules.start()

process.on('disconnect', () => process.exit(1))
process.on('message', async () => {
  await schedules.stop()
  await jobs.close()
  await pool.end()
  process.disconnect()
})
process.send?.('ready')
