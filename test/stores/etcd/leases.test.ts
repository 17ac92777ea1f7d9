import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import { EtcdLeases, lengthFor } from '../../../src/stores/etcd/session/leases.ts'

test.each([
  ['2s', 2000, 4],
  ['10s', 10_000, 13],
  ['30s', 30_000, 38],
  ['1m', 60_000, 75],
  ['100s', 100_000, 130],
  ['5m', 300_000, 380],
  ['1h', 3_600_000, 4400],
])('a ttl of %s makes a lease of etcd of %i ms: %i s', (_, ttlMs, seconds) => {
  expect(lengthFor(ttlMs)).toBe(seconds)
})

test('a lease is longer than its tickets need by a fifth, and a dead holder costs a third more at most', () => {
  fc.assert(
    fc.property(fc.integer({ min: 50, max: 24 * 86_400_000 }), (ttlMs) => {
      const lengthMs = lengthFor(ttlMs) * 1000
      expect(lengthMs).toBeGreaterThanOrEqual(Math.max(2000, ttlMs * 1.2 + 1000))
      expect(lengthMs).toBeLessThan(ttlMs * (4 / 3) + 2200)
    }),
    { numRuns: 2000 },
  )
})

test('tickets of all terms between a second and an hour share a hundred leases', () => {
  const lengths = new Set(Array.from({ length: 3600 }, (_, index) => lengthFor((index + 1) * 1000)))
  expect(lengths.size).toBeLessThanOrEqual(100)
})

test.each([1, 11, 23])(
  'a lease for a minimum hold of %i days is known as one of this process',
  async (days) => {
    const ask = async (_: unknown, { ttl }: { ttl: number }) => ({ reply: { ttl }, isInDoubt: false })
    const leases = new EtcdLeases({ ask: ask as unknown as Cluster['ask'] }, () => {})
    const { id } = await leases.expiring(days * 86_400_000)
    await new Promise((resolve) => setTimeout(resolve, 20))
    expect(leases.isOurs(id)).toBe(true)
    leases.close()
  },
)
