// Ten calls want the same key; they get it one at a time, in order of arrival.
// Needs: nothing.
// Run: npx tsx examples/first-lock.ts
import { createLocks } from 'holdfast'
import { memoryStore } from 'holdfast/memory'

const locks = createLocks(memoryStore())
const order: number[] = []

await Promise.all(
  Array.from({ length: 10 }, (_, caller) =>
    locks.withLock('printer', async (lease) => {
      order.push(caller)
      console.log(`caller ${caller} prints under fence ${lease.fence}`)
      await new Promise((resolve) => setTimeout(resolve, 5))
    }),
  ),
)

await locks.close()
if (order.join() !== '0,1,2,3,4,5,6,7,8,9') throw new Error(`out of order: ${order.join()}`)
