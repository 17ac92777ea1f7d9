// Three members divide twelve partitions, and one of them leaves.
// Needs: nothing.
// Run: npx tsx examples/partition.ts
import { createLocks } from 'holdfast'
import { createPartition } from 'holdfast/partition'
import { sqliteStore } from 'holdfast/sqlite'

// Usually these are three processes.
const members = ['a', 'b', 'c'].map((name) => {
  const locks = createLocks(sqliteStore('./locks.db'), { label: name })
  const partition = createPartition(locks, 'customers', {
    partitions: 12,
    start: ({ key, fence }) => console.log(`${name} works on partition ${key} under fence ${fence}`),
    stop: ({ key, reason }) => console.log(`${name} has put partition ${key} down: ${reason}`),
  })
  return { name, locks, partition }
})

const sizes = () => members.map(({ partition }) => partition.held.size)
async function divided(wanted: readonly number[]): Promise<void> {
  for (let looks = 0; looks < 3000; looks += 1) {
    if (String(sizes()) === String(wanted)) return
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  throw new Error(`Expected shares of ${wanted}, got ${sizes()}`)
}

for (const { partition } of members) partition.start()
await divided([4, 4, 4])
const [first] = members
const number = first?.partition.of('customer 42') ?? 0
const holder = members.find(({ partition }) => partition.held.has(number))
console.log(`customer 42 is in partition ${number}, which ${holder?.name} works on`)

// Before a deploy ends a process, it hands its partitions over.
await first?.partition.stop()
await divided([0, 6, 6])

for (const { partition } of members) await partition.stop()
for (const { locks } of members) await locks.close()
