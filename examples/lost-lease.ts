// What losing a lease looks like: somebody evicts the holder, its signal aborts, and so does the work.
// Needs: nothing.
// Run: npx tsx examples/lost-lease.ts
import { setTimeout as sleep } from 'node:timers/promises'
import { createLocks, isHoldfastError } from 'holdfast'
import { memoryStore } from 'holdfast/memory'

const locks = createLocks(memoryStore())

const work = locks.withLock('deploy', async (lease) => {
  const eviction = sleep(20).then(() => locks.evict('deploy', lease.id, { reason: 'maintenance' }))
  try {
    await sleep(10_000, undefined, { signal: lease.signal })
  } catch {
    console.log('the work was stopped, the lease is', lease.state)
  }
  await eviction
})

const error = await work.then(
  () => undefined,
  (reason: unknown) => reason,
)
await locks.close()
if (!isHoldfastError(error, 'lease-lost')) throw new Error('expected a lost lease')
console.log(error.message)
console.log('reason:', error.reason)
