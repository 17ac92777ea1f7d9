import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { PATIENT_MASTERS, type RedisCluster, startCluster } from '../../../servers/redis-cluster.ts'
import { conformanceCases } from '../../conformance-cases.ts'
import { followsTheLaw } from '../../law-comparison.ts'
import { clusterClients, newClusterClient } from './clients.ts'

let cluster: RedisCluster
beforeAll(async () => {
  // No master fails in this test. On a busy machine a master may be silent for a second, and a fail-over would spoil
  // the times of a case.
  cluster = await startCluster({ args: PATIENT_MASTERS })
})
afterAll(() => cluster.close())

// The other clients are in faults.test.ts, which follows them through fail-overs.
describe.each(['ioredis 5', 'redis 5'])('a cluster through %s', (name) => {
  const newClient = clusterClients[name] as (typeof clusterClients)[string]

  test('keeps the contract', async () => {
    const cases = conformanceCases({
      open: () => redisStore(newClient(cluster)),
      grants: true,
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
    // Runs a few cases at a time, because most of them wait for an expiry.
    await Promise.all(Array.from({ length: 6 }, worker))
    expect(failed).toEqual([])
  }, 900_000)
})

test('a cluster follows the law step by step', async () => {
  const store = redisStore(newClusterClient(cluster))
  await followsTheLaw({ store, grants: true, histories: 20 })
  await store.close()
}, 600_000)
