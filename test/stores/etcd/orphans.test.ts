import { expect, onTestFinished, test, vi } from 'vitest'
import { StoreError } from '../../../src/errors.ts'
import type { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import type { KeyValue, TxnReply, TxnRequest } from '../../../src/stores/etcd/grpc/messages.ts'
import { KeyNames } from '../../../src/stores/etcd/rooms/key-names.ts'
import { ticketText, ticketValue } from '../../../src/stores/etcd/rooms/room-entry.ts'
import { Orphans } from '../../../src/stores/etcd/session/orphans.ts'
import { ticket } from './tickets.ts'

test('orphans that etcd refuses to look for are looked for again, after longer and longer pauses', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] })
  onTestFinished(() => {
    vi.useRealTimers()
  })
  const mine = ticket({ ttlMs: 1000, patienceMs: 0 })
  const names = new KeyNames('x/')
  const value = ticketText(ticketValue(mine, { at: 0 }))
  const key = names.ticket(mine.key, mine.id)
  let kept: KeyValue | undefined = { key, value, lease: 7, createRevision: 1, modRevision: 1 }
  let mayAsk = false
  let refusals = 0
  const ask = async (_: unknown, { apply }: TxnRequest): Promise<{ readonly reply: TxnReply }> => {
    if (!mayAsk) {
      refusals += 1
      throw new StoreError('store-refused', 'permission denied')
    }
    const pairs = kept === undefined ? [] : [kept]
    if (apply[0]?.tag === 'delete') kept = undefined
    return { reply: { succeeded: true, revision: 2, ranges: [{ pairs, count: pairs.length, more: false }] } }
  }
  const orphans = new Orphans({
    cluster: { ask: ask as Cluster['ask'] },
    names,
    leases: { isOurs: (id) => id === 7 },
    tickets: new Map(),
  })
  onTestFinished(() => orphans.close())
  orphans.add(mine)
  await vi.advanceTimersByTimeAsync(120_000)
  expect(refusals).toBeGreaterThan(4)
  expect(refusals).toBeLessThan(20)
  mayAsk = true
  await vi.advanceTimersByTimeAsync(30_000)
  expect(kept).toBeUndefined()
})
