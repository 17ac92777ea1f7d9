// One process that takes two keys again and again, and adds one to a guarded number under each lease, until it is told to stop.
// Then it tells all it has seen. The order of events is counted by a server of its own.
import { Redis } from 'ioredis'
import { redisGuard } from '../../../../src/guard/index.ts'
import { createLocks, isHoldfastError } from '../../../../src/index.ts'
import { redlockStore } from '../../../../src/stores/redlock/index.ts'

/** One lease: which events it lies between, and what it has written, if it has. */
export interface TakenLease {
  readonly key: string
  readonly beganAt: number
  readonly endedAt: number
  readonly wallMs: number
  readonly fence: string
  readonly wrote: number | null
}

export interface WorkerReport {
  readonly leases: readonly TakenLease[]
  readonly failures: Readonly<Record<string, number>>
}

const [urls = '', registerUrl = '', maxTtl = ''] = process.argv.slice(2)
const register = new Redis(registerUrl)
const clients = urls.split(',').map((url) => new Redis(url, { lazyConnect: true }))
const locks = createLocks(redlockStore(clients, { maxTtl }), { ttl: 1000, wait: 2500 })
const leases: TakenLease[] = []
const failures: Record<string, number> = {}
let isOver = false

const working = [1, 2, 3, 4].map(async (task) => {
  const key = `key ${task % 2}`
  while (!isOver) {
    try {
      await takeOnce(key)
    } catch (error) {
      const name = isHoldfastError(error) ? error.code : String(error)
      failures[name] = (failures[name] ?? 0) + 1
    }
  }
})

async function takeOnce(key: string): Promise<void> {
  const beganAt = await register.incr('events')
  await locks.withLock(key, async (lease) => {
    const endedAt = await register.incr('events')
    const seen = { key, beganAt, endedAt, wallMs: Date.now(), fence: String(lease.fence) }
    const index = leases.push({ ...seen, wrote: null }) - 1
    const guard = { fence: lease, resource: key, keys: [`number of ${key}`] }
    // The read is guarded, too. From then on no process with a lower fence can write, so this read misses no write.
    const before = Number(await redisGuard(register, { ...guard, command: 'GET' }))
    await redisGuard(register, { ...guard, command: 'SET', args: [before + 1] })
    leases[index] = { ...seen, wrote: before + 1 }
  })
}

process.on('disconnect', () => process.exit(1))
process.on('message', async () => {
  isOver = true
  await Promise.all(working)
  await locks.close()
  register.disconnect()
  // A long report is written in pieces. A disconnect before the last piece would cut it off.
  process.send?.({ leases, failures } satisfies WorkerReport, () => process.disconnect())
})
process.send?.('ready')
