// Three Redis servers that know nothing of one another vote on who may count.
// Needs: three Redis servers that know nothing of one another, at REDLOCK_URL; ioredis.
// Run: npx tsx examples/three-redis-servers.ts
import { connect } from 'holdfast'

const url =
  process.env['REDLOCK_URL'] ?? 'redlock:redis://localhost:6379,redis://localhost:6380,redis://localhost:6381'

// As two processes would, each with connections of its own. New servers grant their first lock after half a minute.
const processes = await Promise.all([connect(url, { wait: '1m' }), connect(url, { wait: '1m' })])
let counted = 0
let last = 0n

await Promise.all(
  processes.map(async (locks) => {
    for (let round = 0; round < 5; round += 1) {
      await locks.withLock('counter', async (lease) => {
        if (lease.fence <= last) throw new Error('fences should rise')
        last = lease.fence
        const before = counted
        await new Promise((resolve) => setTimeout(resolve, 2))
        counted = before + 1
        console.log(`${counted} under fence ${lease.fence}`)
      })
    }
  }),
)

for (const locks of processes) await locks.close()
if (counted !== 10) throw new Error(`two counted at once: ${counted}`)
