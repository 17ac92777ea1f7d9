import { expect, test } from 'vitest'
import { redisStore } from '../../../../src/stores/redis/index.ts'
import { PATIENT_MASTERS, startCluster } from '../../../servers/redis-cluster.ts'
import { fenceOf, releaseOf, ticket } from '../../tickets.ts'
import { clusterClockClient } from '../clock-client.ts'

const HOUR_MS = 3_600_000

test('the clocks of all masters set back and forward: fences rise, and no key is given twice before its time', async () => {
  await using cluster = await startCluster({ replicas: 0, args: PATIENT_MASTERS })
  const startMs = Date.now()
  let aheadMs = 0
  const client = clusterClockClient(() => startMs + aheadMs)
  const store = redisStore(client, { cluster: { nodes: cluster.addresses } })
  // Keys of several masters.
  const keys = Array.from({ length: 9 }, (_, index) => `key:${index}`)
  const masters = new Set(
    await Promise.all(keys.map(async (key) => (await cluster.masterOf(`holdfast:{${key}}`)).port)),
  )
  expect(masters.size).toBe(3)
  const last = new Map<string, bigint>()
  const note = (key: string, fence: bigint): void => {
    expect(fence).toBeGreaterThan(last.get(key) ?? 0n)
    last.set(key, fence)
  }
  for (const jump of [0, -HOUR_MS, HOUR_MS, 0, 2 * HOUR_MS, -2 * HOUR_MS]) {
    const before = keys.map((key) => ticket({ key }))
    for (const mine of before) note(mine.key, fenceOf(await store.acquire(mine)))
    const isForward = jump > aheadMs
    aheadMs = jump
    for (const mine of before) {
      const next = ticket({ key: mine.key })
      const answer = await store.acquire(next)
      if (isForward) {
        // The lease ended early. Its holder hears that, and the fence of the next one is higher.
        note(mine.key, fenceOf(answer))
        expect(await store.renew([mine])).toMatchObject([{ tag: 'gone' }])
      } else {
        expect(answer.tag).toBe('queued')
        expect(await store.release(releaseOf(mine))).toEqual({ was: 'held' })
        note(mine.key, fenceOf((await store.renew([next]))[0]))
      }
      expect(await store.release(releaseOf(next))).toEqual({ was: 'held' })
    }
  }
  await store.close()
})
