// Three instances of a service have the same schedule: each tick is run by one of them, also when one is stopped.
// Needs: nothing.
// Run: npx tsx examples/schedule.ts
import { createLocks } from 'holdfast'
import { createSchedule } from 'holdfast/schedule'
import { sqliteStore } from 'holdfast/sqlite'

const ticks: string[] = []
let told: () => void = () => {}

const instances = ['a', 'b', 'c'].map((name) => {
  const locks = createLocks(sqliteStore('./locks.db'), { label: name })
  const schedule = createSchedule(locks, { timezone: 'Europe/Berlin' })
  schedule.add('report', '* * * * * *', async ({ scheduledAt, fence, signal }) => {
    console.log(`${name} reports for ${scheduledAt.toISOString()} under fence ${fence}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
    if (!signal.aborted) ticks.push(scheduledAt.toISOString())
    told()
  })
  schedule.start()
  return { name, locks, schedule }
})

async function ran(count: number): Promise<void> {
  while (ticks.length < count) {
    await new Promise<void>((resolve) => {
      told = resolve
    })
  }
}

await ran(2)
const [first, second] = instances
await first?.schedule.stop()
console.log('a is stopped')
await ran(4)

const status = await second?.schedule.jobs[0]?.status()
console.log(
  `last: ${status?.last?.result} on ${status?.last?.owner['label']}, next: ${status?.nextAt?.toISOString()}`,
)

for (const { schedule, locks } of instances) {
  await schedule.stop()
  await locks.close()
}
if (new Set(ticks).size !== ticks.length) throw new Error(`Expected each tick once, got ${ticks}`)
