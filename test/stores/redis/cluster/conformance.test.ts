import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { lawComparison, storeConformance } from '../../../../src/testing/index.ts'
import { type RedisCluster, startCluster } from '../../../servers/redis-cluster.ts'
import { boundStore } from '../../bound-store.ts'
import { clusterClients, newClusterClient } from './clients.ts'

let cluster: RedisCluster
beforeAll(async () => {
  // Nobody fails here. On a busy machine a master may be silent for a second, and a fail-over costs a case its times.
  cluster = await startCluster({ args: ['--cluster-node-timeout', '15000'] })
})
afterAll(() => cluster.close())

// The others are followed through fail-overs in cluster-faults.test.ts.
describe.each(['ioredis 5', 'redis 5'])('a cluster through %s', (name) => {
  const newClient = clusterClients[name] as (typeof clusterClients)[string]

  test('keeps the contract', async () => {
    const cases = storeConformance({
      open: () => redisStore(newClient(cluster)),
      leftovers: async (prefix) => ((await cluster.command('KEYS', `*${prefix}*`)) as string[][]).flat(),
    })
    const failed: unknown[] = []
    const waiting = [...cases]
    const worker = async (): Promise<void> => {
      for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
        const { name, run } = next
        await run().catch((error: unknown) => failed.push([name, error]))
      }
    }
    // A few at a time: most of them wait for something to expire.
    await Promise.all(Array.from({ length: 6 }, worker))
    expect(failed).toEqual([])
  })
})

// Which message is a lease depends on the subscriptions to single slots, which begin when somebody waits there. So the law is
// compared without messages.
test('a cluster follows the law step by step', async () => {
  const store = redisStore(newClusterClient(cluster))
  const { listen: _, ...withoutMessages } = boundStore(store)
  const { answers } = await lawComparison({ store: withoutMessages, histories: 20 })
  expect(Object.keys(answers).length).toBeGreaterThan(8)
  await store.close()
})
