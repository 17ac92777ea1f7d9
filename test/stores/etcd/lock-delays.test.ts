import { expect, test } from 'vitest'
import type { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import { KeyNames } from '../../../src/stores/etcd/rooms/key-names.ts'
import { EtcdRoom } from '../../../src/stores/etcd/rooms/room.ts'
import { EtcdLease, lengthFor } from '../../../src/stores/etcd/session/leases.ts'
import { LockDelays } from '../../../src/stores/etcd/session/lock-delays.ts'
import { FakeClock } from '../../engine/fake-clock.ts'

test('the end of a lock-delay is tried for as long as its lease lasts, and no longer', async () => {
  for (const isBack of [true, false]) {
    const clock = new FakeClock()
    const names = new KeyNames('x/')
    const room = new EtcdRoom('k')
    const durationMs = 300_000
    const leaseMs = lengthFor(durationMs) * 1000
    const from = clock.monotonicMs()
    let askedAt = 0
    let isOver = false
    const ask = async (): Promise<unknown> => {
      askedAt = clock.monotonicMs()
      if (isBack && askedAt > from + leaseMs - 5000) return {}
      throw new Error('etcd does not answer')
    }
    const delays = new LockDelays({
      clock,
      names,
      cluster: { ask: ask as Cluster['ask'] },
      leases: {
        expiring: async () => new EtcdLease(1, leaseMs, { monotonicMs: from, wallMs: clock.wallMs() }),
      },
      rooms: { get: () => room },
      onOver() {
        isOver = true
      },
    })
    const { key } = await delays.operation('k', 'id', durationMs)
    delays.begin(key, durationMs)
    await clock.advance(leaseMs - 6000)
    expect(isOver).toBe(false)
    await clock.advance(5000)
    expect(isOver).toBe(isBack)
    await clock.advance(60_000)
    expect(isOver).toBe(isBack)
    expect(askedAt).toBeLessThan(from + leaseMs + 15_000)
    delays.close()
  }
})
