// Two instances of a service let each user run two exports at once, and begin three within two seconds.
// Needs: Redis at REDIS_URL; ioredis, rate-limiter-flexible.
// Run: npx tsx examples/throttle-per-user.ts
import { createLocks } from 'holdfast'
import { createLimit } from 'holdfast/limits'
import { redisStore } from 'holdfast/redis'
import { Redis } from 'ioredis'
import { RateLimiterRedis } from 'rate-limiter-flexible'

const instances = ['a', 'b'].map((label) => {
  const redis = new Redis(process.env['REDIS_URL'] ?? 'redis://127.0.0.1:6379')
  const locks = createLocks(redisStore(redis), { label })
  const rate = new RateLimiterRedis({ storeClient: redis, keyPrefix: 'exports', points: 3, duration: 2 })
  return { redis, locks, exports: createLimit(locks, 'exports', { concurrency: 2, rate, wait: '10s' }) }
})

const startedAt = Date.now()
const running = new Map<string, number>()

async function exportFor(user: string): Promise<number> {
  const count = (running.get(user) ?? 0) + 1
  running.set(user, count)
  if (count > 2) throw new Error(`Expected two exports of ${user} at once, got ${count}`)
  const begunAfterMs = Date.now() - startedAt
  console.log(`${(begunAfterMs / 1000).toFixed(1)} s: an export of ${user} begins, ${count} at once`)
  await new Promise((resolve) => setTimeout(resolve, 100))
  running.set(user, (running.get(user) ?? 0) - 1)
  return begunAfterMs
}

const asked = ['ada', 'ada', 'ada', 'ada', 'bob'].map((user, index) =>
  instances[index % 2]?.exports.run(user, () => exportFor(user)),
)
const begun = (await Promise.all(asked)).map((afterMs) => afterMs ?? 0)

// Who does not want to wait is told when to come back.
const outcomes = await Promise.all(
  [1, 2, 3].map(() => instances[0]?.exports.tryRun('ada', () => exportFor('ada'))),
)
for (const outcome of outcomes) {
  if (outcome?.ran !== false) continue
  const when = outcome.reason === 'rate' ? `in ${outcome.retryAfterMs} ms` : 'when one of them is done'
  console.log(`429: ada may come back ${when}`)
}

for (const { locks, redis } of instances) {
  await locks.close()
  redis.disconnect()
}
const late = begun.filter((afterMs) => afterMs >= 1900)
if (late.length === 0) throw new Error(`Expected one of ada's to wait for the next window, got ${begun}`)
