/** One of the processes of the fairness scenario: 25 loops on one key, counted. Started by `scenarios/fairness.ts`. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Surroundings } from './adapter.ts'
import { openBareRedisQueue } from './adapters/bare-redis-queue.ts'
import { openRedis } from './adapters/holdfast.ts'
import { openRedisSemaphore } from './adapters/redis-semaphore.ts'
import { openRedlock } from './adapters/redlock.ts'

const LOOPS = 25
const adapters = {
  'bare-redis-queue': openBareRedisQueue,
  holdfast: openRedis,
  'redis-semaphore': openRedisSemaphore,
  redlock: openRedlock,
}

const [adapterName = '', surroundings = '', startAt = '', durationMs = ''] = process.argv.slice(2)
const adapter = await adapters[adapterName as keyof typeof adapters](JSON.parse(surroundings) as Surroundings)
await (await adapter.acquire(`warm:${process.pid}`))()
await sleep(Number(startAt) - Date.now())

const endsAt = Number(startAt) + Number(durationMs)
const counts = Array.from({ length: LOOPS }, () => 0)
const loops = counts.map(async (_, loop) => {
  while (Date.now() < endsAt) {
    const release = await adapter.acquire('fairness')
    // A hold counts only if it began before the end of the measurement.
    if (Date.now() < endsAt) counts[loop] = (counts[loop] ?? 0) + 1
    await release()
  }
})
await Promise.race([Promise.all(loops), sleep(endsAt + 1000 - Date.now())])
process.send?.(counts, () => process.exit(0))
