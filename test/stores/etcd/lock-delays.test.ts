import { beforeEach, expect, onTestFinished, test } from 'vitest'
import type { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import type { KeyValue, TxnReply, TxnRequest } from '../../../src/stores/etcd/grpc/messages.ts'
import { KeyNames } from '../../../src/stores/etcd/rooms/key-names.ts'
import { EtcdRoom } from '../../../src/stores/etcd/rooms/room.ts'
import { entryOf } from '../../../src/stores/etcd/rooms/room-entry.ts'
import { EtcdLease } from '../../../src/stores/etcd/session/leases.ts'
import { LockDelays } from '../../../src/stores/etcd/session/lock-delays.ts'
import { FakeClock } from '../../engine/fake-clock.ts'

let clock: FakeClock
/** The lock-delay in etcd. */
let kept: KeyValue | undefined
let isAway: boolean
/** Runs while a deletion is on its way. */
let beforeDeletion: () => void
let overs: number
let lastLease: number

beforeEach(() => {
  clock = new FakeClock()
  kept = undefined
  isAway = false
  beforeDeletion = () => {}
  overs = 0
  lastLease = 0
})

async function ask(_: unknown, { when, apply }: TxnRequest): Promise<{ readonly reply: TxnReply }> {
  if (isAway) throw new Error('etcd does not answer')
  const isDeletion = apply[0]?.tag === 'delete'
  if (isDeletion) beforeDeletion()
  const isAsKnown = when.every((one) => 'revision' in one && one.revision === kept?.modRevision)
  const pairs = kept === undefined ? [] : [kept]
  if (isDeletion && isAsKnown) kept = undefined
  return {
    reply: { succeeded: isAsKnown, revision: 9, ranges: [{ pairs, count: pairs.length, more: false }] },
  }
}

function newDelays(): LockDelays {
  const room = new EtcdRoom('k')
  const delays = new LockDelays({
    clock,
    names: new KeyNames('x/'),
    cluster: { ask: ask as Cluster['ask'] },
    leases: {
      expiring: async (ms) =>
        new EtcdLease(++lastLease, ms, { monotonicMs: clock.monotonicMs(), wallMs: clock.wallMs() }),
    },
    rooms: { get: () => room },
    onOver() {
      overs += 1
    },
  })
  onTestFinished(() => delays.close())
  return delays
}

async function begin(delays: LockDelays, durationMs: number, revision: number): Promise<void> {
  const operation = await delays.operation('k', 'id', durationMs)
  delays.begin(operation, durationMs)
  const { key, value, lease } = operation
  kept = { key, value, lease, createRevision: revision, modRevision: revision }
}

test('a lock-delay ends as soon as etcd is back, however long it was away', async () => {
  const delays = newDelays()
  await begin(delays, 300_000, 1)
  isAway = true
  await clock.advance(3_600_000)
  expect(overs).toBe(0)
  isAway = false
  await clock.advance(5000)
  expect(kept).toBeUndefined()
  expect(overs).toBe(1)
  await clock.advance(60_000)
  expect(overs).toBe(1)
})

test('once closed, the end of a lock-delay is not tried any more', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  isAway = true
  await clock.advance(5000)
  delays.close()
  isAway = false
  await clock.advance(60_000)
  expect(kept).toBeDefined()
})

test('the end of a lock-delay that comes late leaves the next one of the same ticket alone', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  isAway = true
  await clock.advance(5000)
  await begin(delays, 60_000, 2)
  isAway = false
  await clock.advance(59_000)
  expect(kept?.modRevision).toBe(2)
  expect(overs).toBe(0)
  await clock.advance(1000)
  expect(kept).toBeUndefined()
  expect(overs).toBe(1)
})

test('a first write that arrives between the look at the key and its deletion is deleted, too', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  beforeDeletion = () => {
    if (kept?.modRevision === 1) kept = { ...kept, modRevision: 2 }
  }
  await clock.advance(5000)
  expect(kept).toBeUndefined()
  expect(overs).toBe(1)
})

test('the next lock-delay is left alone, also if it begins while the one before is being deleted', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  const first = kept
  beforeDeletion = () => {
    beforeDeletion = () => {}
    void begin(delays, 60_000, 2).then(() => {
      // The first write is carried out once more.
      kept = first && { ...first, modRevision: 3 }
    })
    kept = first && { ...first, modRevision: 2 }
  }
  await clock.advance(5000)
  expect(kept).toBeDefined()
  await clock.advance(60_000)
  expect(kept).toBeUndefined()
  expect(overs).toBe(1)
})

test('a lock-delay whose key goes by itself in the middle of its deletion is over', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  beforeDeletion = () => {
    kept = undefined
  }
  await clock.advance(5000)
  expect(overs).toBe(1)
})

test('a deletion that arrives after the next lock-delay of the same ticket was written leaves that alone', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  beforeDeletion = () => {
    kept = kept && { ...kept, lease: 77, modRevision: 2 }
  }
  await clock.advance(5000)
  expect(kept?.modRevision).toBe(2)
  expect(overs).toBe(0)
})

test('a lock-delay that another process has begun for the same ticket is left alone', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  kept = kept && { ...kept, lease: 77, modRevision: 2 }
  expect(delays.leftMs(entryOf(kept as KeyValue, new KeyNames('x/')))).toBe(1000)
  await clock.advance(5000)
  expect(kept).toBeDefined()
  expect(overs).toBe(0)
})

test('a lock-delay whose first write arrives after the second one ends, too', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  const first = kept
  await begin(delays, 900, 2)
  kept = first && { ...first, modRevision: 3 }
  await clock.advance(5000)
  expect(kept).toBeUndefined()
  expect(overs).toBe(1)
})

test('a lock-delay whose key is being deleted has no time left', async () => {
  const delays = newDelays()
  await begin(delays, 1000, 1)
  const entry = entryOf(kept as KeyValue, new KeyNames('x/'))
  isAway = true
  await clock.advance(400)
  expect(delays.leftMs(entry)).toBe(600)
  await clock.advance(1000)
  expect(delays.leftMs(entry)).toBe(0)
})
