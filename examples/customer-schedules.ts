// Schedules of two customers in their time zones, fired by two processes: each tick becomes one job.
// Needs: PostgreSQL at POSTGRES_URL; pg.
// Run: npx tsx examples/customer-schedules.ts
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { createJobs } from 'holdfast/jobs'
import { createJobSchedules, type ScheduledPayload } from 'holdfast/jobs/schedules'
import pg from 'pg'

const pool = new pg.Pool({ connectionString: process.env['POSTGRES_URL'] ?? 'postgres://localhost/postgres' })
const jobs = createJobs<{ report: ScheduledPayload<{ customer: string }> }>(pool, {
  schema: 'customer_schedules_example',
})
const schedules = createJobSchedules(jobs)

if (process.argv[2] === 'fire') await fire()
else await main()
await jobs.close()
await pool.end()

async function fire(): Promise<void> {
  schedules.start()
  await once(process, 'message')
  await schedules.stop()
  process.disconnect()
}

async function main(): Promise<void> {
  await jobs.migrate()
  for (const [customer, timezone] of [
    ['acme', 'Europe/Berlin'],
    ['globex', 'Asia/Tokyo'],
  ] as const) {
    const schedule = { job: 'report', payload: { customer }, tenant: customer } as const
    await schedules.put(`nightly:${customer}`, { ...schedule, cron: '0 3 * * *', timezone })
    await schedules.put(`live:${customer}`, { ...schedule, every: '1s' })
  }
  const [first] = await schedules.nextRuns('nightly:globex', 1)
  console.log(`the next night of globex begins at ${first?.toISOString()}`)

  const processes = [1, 2].map(() => fork(fileURLToPath(import.meta.url), ['fire']))
  const reports: string[] = []
  const worker = jobs.work({
    report: async ({ payload: { customer, schedule } }) => {
      reports.push(`${schedule?.id} ${customer} ${schedule?.scheduledAt}`)
    },
  })
  while (reports.length < 6) await new Promise((resolve) => setTimeout(resolve, 100))

  // Together with the customer's own row: both, or neither.
  const tx = await pool.connect()
  await tx.query('BEGIN')
  await schedules.pause({ tenant: 'acme' }, { transaction: tx })
  await schedules.change('live:globex', { every: '10m' }, { transaction: tx })
  await tx.query('COMMIT')
  tx.release()

  for (const child of processes) {
    child.send('stop')
    await once(child, 'exit')
  }
  await worker.stop()
  console.log(`${reports.length} reports, ${new Set(reports).size} different ones`)
  for (const { id, state, runs, last } of (await schedules.list()).schedules)
    console.log(`${id} is ${state}: ${runs} jobs, the last one ${last?.outcome ?? 'not yet'}`)
  await schedules.remove({ tenant: ['acme', 'globex'] })
}
