import { Redis } from 'ioredis'
import { expect, test } from 'vitest'
import type { HolderView } from '../../../src/contract/store.ts'
import { createLocks, type Locks } from '../../../src/index.ts'
import { redlockStore } from '../../../src/stores/redlock/index.ts'
import { undisturbed } from '../../base/measured.ts'
import { type FaultProxy, startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { startMasters } from './masters.ts'

interface Scene {
  /** The proxies in front of all three servers. */
  readonly proxies: readonly FaultProxy[]
  /** The locks of a process that reaches the servers only through the proxies. */
  readonly locks: Locks
  /** The holder of the key, as the servers have it. */
  holderOf(key: string): Promise<HolderView | undefined>
}

function inScene(body: (scene: Scene) => Promise<void>): () => Promise<void> {
  return async () => {
    await using masters = await startMasters(3)
    const proxies = await Promise.all(masters.servers.map(({ port }) => startProxy({ targetPort: port })))
    const clients = proxies.map(({ port }) => new Redis({ port, lazyConnect: true }))
    const locks = createLocks(redlockStore(clients, { maxTtl: '10m' }))
    const direct = masters.store()
    const holderOf = async (key: string) =>
      (await direct.inspect({ prefix: key, cursor: undefined, count: 1 })).rooms[0]?.holders[0]
    try {
      await locks.withLock('warm', () => {})
      await masters.meet(direct)
      await body({ proxies, locks, holderOf })
    } finally {
      for (const proxy of proxies) proxy.normal()
      await locks.close()
      await direct.close()
      await Promise.all(proxies.map((proxy) => proxy.close()))
    }
  }
}

test.concurrent(
  'a grant is never good for longer than the servers keep it, however slow their answers were',
  inScene(async ({ proxies, locks, holderOf }) => {
    for (const proxy of proxies) proxy.delay({ replyMs: 250 })
    const lease = await locks.acquire('slow', { ttl: '5s', renew: false, wait: '20s' })
    const from = performance.now()
    const { remainingMs } = lease
    const kept = await holderOf('slow')
    expect(kept).toMatchObject({ id: lease.id, fence: lease.fence })
    expect(remainingMs).toBeGreaterThan(0)
    expect(remainingMs).toBeLessThan((kept?.remainingMs ?? 0) + performance.now() - from)
    for (const proxy of proxies) proxy.normal()
    await lease.release()
  }),
)

test.concurrent(
  'a grant whose answers come after its ttl is none, and nothing of it is left behind',
  inScene(async ({ proxies, locks, holderOf }) => {
    for (const proxy of proxies) proxy.delay({ replyMs: 1600 })
    await expect(locks.acquire('late', { ttl: 1500, wait: '3s' })).rejects.toMatchObject({ key: 'late' })
    for (const proxy of proxies) proxy.normal()
    await until('nobody holds it', async () => (await holderOf('late')) === undefined)
    const lease = await locks.acquire('late')
    await lease.release()
  }),
)

test.concurrent(
  'a renewal whose answers come after the ttl was none: the holder is told while the servers still keep its key',
  inScene(async ({ proxies, locks, holderOf }) => {
    // The servers have carried out the renewals, and keep the lease for another ttl. On a busy machine that is over, too.
    const kept = await undisturbed(
      (holder) => holder !== undefined,
      async () => {
        const lease = await locks.acquire('renewed', { ttl: 2500 })
        let isTold = false
        lease.signal.addEventListener('abort', () => {
          isTold = true
        })
        await lease.extend()
        for (const proxy of proxies) proxy.holdReplies()
        await until('the holder is told', () => isTold)
        expect(lease.signal.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
        const holder = await holderOf('renewed')
        for (const proxy of proxies) proxy.normal()
        await until('the key was given back', async () => (await holderOf('renewed')) === undefined)
        expect(lease.state).toBe('lost')
        return holder?.id === lease.id ? holder : undefined
      },
    )
    expect(kept).toMatchObject({ state: 'held' })
  }),
)
