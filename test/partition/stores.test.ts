import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { createPartition, type NumberedPartition } from '../../src/partition/index.ts'
import { places } from '../servers/places.ts'
import { until } from '../servers/until.ts'

const KEYS = 16

test.concurrent.each(Object.entries(places))(
  'on %s three members divide the keys, one leaves, and each key has one holder at a time',
  async (_, open) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-partition-'))
    const place = await open(folder)
    const clients = await Promise.all(['a', 'b', 'c'].map((label) => connect(place.url, { label })))
    const errors: unknown[] = []
    const working = new Map<number, bigint>()
    const fences = new Map<number, bigint>()
    const overlaps: number[] = []
    const partitions: NumberedPartition[] = clients.map((locks) =>
      createPartition(locks, 'things', {
        partitions: KEYS,
        ttl: '20s',
        backoff: 50,
        start: ({ key, fence }) => {
          if (working.has(key) || fence <= (fences.get(key) ?? 0n)) overlaps.push(key)
          working.set(key, fence)
          fences.set(key, fence)
        },
        stop: async ({ key }) => {
          await new Promise((resolve) => setImmediate(resolve))
          working.delete(key)
        },
        onError: (error) => errors.push(error),
      }),
    )
    const sizes = () => partitions.map(({ held }) => held.size).sort()
    const settled = (wanted: readonly number[]) =>
      until(`they hold ${wanted}`, () => String(sizes()) === String(wanted) && working.size === KEYS)
    try {
      partitions[0]?.start()
      await settled([0, 0, 16])
      partitions[1]?.start()
      partitions[2]?.start()
      await settled([5, 5, 6])
      await until('all have told their keys', async () => {
        const told = (await partitions[0]?.members()) ?? []
        return told.flatMap(({ keys }) => keys).length === KEYS && told.every(({ keys }) => keys.length > 4)
      })
      await partitions[1]?.stop()
      await settled([0, 8, 8])
      expect({ errors, overlaps }).toEqual({ errors: [], overlaps: [] })
      await Promise.all(partitions.map((partition) => partition.stop()))
      expect(working.size).toBe(0)
      await until('nothing is left', async () => (await clients[0]?.inspect().next())?.done === true)
    } finally {
      await Promise.all(partitions.map((partition) => partition.stop()))
      await Promise.all(clients.map((locks) => locks.close()))
      await place.close()
      rmSync(folder, { recursive: true, force: true })
    }
  },
)
