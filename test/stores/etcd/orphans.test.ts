import { expect, onTestFinished, test, vi } from 'vitest'
import { StoreError } from '../../../src/errors.ts'
import type { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import type { KeyValue, TxnReply, TxnRequest } from '../../../src/stores/etcd/grpc/messages.ts'
import { etcdStore } from '../../../src/stores/etcd/index.ts'
import { KeyNames } from '../../../src/stores/etcd/rooms/key-names.ts'
import { ticketText, ticketValue } from '../../../src/stores/etcd/rooms/room-entry.ts'
import { Orphans } from '../../../src/stores/etcd/session/orphans.ts'
import { startEtcd } from '../../servers/etcd-server.ts'
import { fenceOf, releaseOf, ticket } from './tickets.ts'

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

test('a ticket whose key was never sent is no orphan', async () => {
  await using server = await startEtcd()
  const store = etcdStore({ endpoints: [server.url] })
  onTestFinished(() => store.close())
  const first = ticket({ ttlMs: 1000 })
  fenceOf(await store.acquire(first))
  await store.release(releaseOf(first))
  const add = vi.spyOn(Orphans.prototype, 'add')
  onTestFinished(() => add.mockRestore())
  await server.stop()
  // A key is written under a lease that lasts for its ttl. Without etcd there is none.
  const [unsent, unsentToo] = [ticket({ ttlMs: 600_000 }), ticket({ ttlMs: 600_000 })]
  await expect(store.acquire(unsent)).rejects.toMatchObject({ code: 'store-unavailable' })
  await expect(store.acquireAll?.([unsentToo])).rejects.toMatchObject({ code: 'store-unavailable' })
  expect(add).not.toHaveBeenCalled()
})

test('waiters that are given up while they stand in line are not written', async () => {
  await using server = await startEtcd()
  const store = etcdStore({ endpoints: [server.url] })
  onTestFinished(() => store.close())
  const holder = ticket({ key: 'k' })
  fenceOf(await store.acquire(holder))
  const waiters = Array.from({ length: 50 }, () => ticket({ key: 'k' }))
  const before = (await server.requests())['Txn'] ?? 0
  const asked = waiters.map((each) => store.acquire(each))
  const released = waiters.map(({ key, id }) => store.release({ key, id, cancel: true }))
  const was = (await Promise.all(released)).map((answer) => answer.was)
  const answers = (await Promise.all(asked)).map(({ tag }) => tag)
  // The first one is under way already.
  expect(new Set(was.slice(1))).toEqual(new Set(['unknown']))
  expect(new Set(answers.slice(1))).toEqual(new Set(['gone']))
  // A look and a tombstone for each, and the first one's key.
  expect(((await server.requests())['Txn'] ?? 0) - before).toBeLessThan(2 * waiters.length + 10)
})
