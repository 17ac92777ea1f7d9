// One process that fires schedules, until it is killed or told to stop. Its wall clock is wrong by so many milliseconds.
import { Pool } from 'pg'
import { setWallClockAhead } from '../../servers/wrong-clock.ts'

const [url = '', schema = '', skew = '0'] = process.argv.slice(2)
setWallClockAhead(Number(skew))

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
