import assert from 'node:assert/strict'
import type { Store } from '../contract/store.ts'
import {
  assertGone,
  busyAnswer,
  type ConformanceScript,
  cancelOf,
  heldFence,
  ids,
  LONG,
  queuedAnswer,
  releaseOf,
  type Scene,
} from './conformance-scene.ts'

/** Holders and fences: only the store's clock decides when a holder expires. */
export const expiryCases: readonly ConformanceScript[] = [
  {
    name: 'a holder that is not heard of for its ttl is gone, and the next one has a higher fence',
    async play(scene) {
      const [store, other] = [await scene.view(), await scene.view()]
      const [dead, next] = [scene.ticket({ ttlMs: scene.span(120) }), scene.ticket()]
      const fence = heldFence(await store.acquire(dead))
      await scene.outlive(dead.ttlMs)
      assert.deepEqual(await scene.holders(store), [], 'inspect leaves out what has expired')
      assert.ok(heldFence(await other.acquire(next)) > fence)
      assertGone((await store.renew([dead]))[0])
      assert.deepEqual(await store.release(releaseOf(dead)), { was: 'unknown' })
      assert.deepEqual(ids(await scene.holders(store)), [next.id])
    },
  },
  {
    name: 'renew never brings an expired holder back, even if the key is still free',
    async play(scene) {
      const store = await scene.view()
      const dead = scene.ticket({ ttlMs: scene.span(120) })
      const fence = heldFence(await store.acquire(dead))
      await scene.outlive(dead.ttlMs)
      assertGone((await store.renew([dead]))[0])
      assert.equal(await scene.room(store), undefined)
      assert.ok(heldFence(await store.acquire({ ...dead, ttlMs: LONG })) > fence, 'A new hold, a new fence')
    },
  },
  {
    name: 'a holder that is renewed, or asks again, has its full ttl anew',
    async play(scene) {
      const store = await scene.view()
      const watch = scene.stopwatch()
      const shortMs = scene.span(300)
      const [renewed, asking] = [
        scene.ticket({ ttlMs: shortMs }),
        scene.ticket({ ttlMs: shortMs, key: `${scene.key}:asking` }),
      ]
      const fences = [heldFence(await store.acquire(renewed)), heldFence(await store.acquire(asking))]
      const [renewal] = await store.renew([{ ...renewed, ttlMs: LONG }])
      const again = await store.acquire({ ...asking, ttlMs: LONG })
      watch.within(shortMs)
      assert.deepEqual(renewal, { tag: 'held', fence: fences[0] })
      assert.equal(heldFence(again), fences[1])
      await scene.outlive(shortMs)
      for (const ticket of [renewed, asking]) {
        const [holder] = await scene.holders(store, ticket.key)
        assert.equal(holder?.id, ticket.id)
        assert.ok(holder.remainingMs > LONG / 2, `${holder.remainingMs} ms remain`)
      }
    },
  },
  {
    name: 'a request with a shorter ttl, which may be a late one, never ends a hold sooner',
    async play(scene) {
      const store = await scene.view()
      const holder = scene.ticket()
      const shorter = { ...holder, ttlMs: scene.span(80), acceptMs: scene.span(80) }
      heldFence(await store.acquire(holder))
      assert.equal((await store.renew([shorter]))[0]?.tag, 'held')
      heldFence(await store.acquire(shorter))
      await scene.outlive(shorter.ttlMs)
      busyAnswer(await store.acquire(scene.ticket({ patienceMs: 0 })))
      const [view] = await scene.holders(store)
      assert.ok(view !== undefined && view.remainingMs > LONG / 2, `${view?.remainingMs} ms remain`)
    },
  },
  {
    name: 'several holders expire each at its own time',
    async play(scene) {
      const store = await scene.view()
      const [first, second] = [
        scene.ticket({ limit: scene.several(2), ttlMs: scene.span(100) }),
        scene.ticket({ limit: scene.several(2), ttlMs: scene.span(500) }),
      ]
      const watch = scene.stopwatch()
      heldFence(await store.acquire(first))
      heldFence(await store.acquire(second))
      await scene.outlive(first.ttlMs)
      const answer = await store.acquire(scene.ticket({ ...scene.all(2), patienceMs: 0 }))
      const holders = await scene.holders(store)
      watch.within(second.ttlMs)
      busyAnswer(answer)
      assert.deepEqual(ids(holders), [second.id])
      await scene.outlive(second.ttlMs)
      heldFence(await store.acquire(scene.ticket({ ...scene.all(2), patienceMs: 0 })))
    },
  },
  {
    name: 'an eviction does not name those who had expired',
    async play(scene) {
      const store = await scene.view()
      const limit = scene.several(2)
      const [dead, alive] = [scene.ticket({ limit, ttlMs: scene.span(80) }), scene.ticket({ limit })]
      heldFence(await store.acquire(dead))
      heldFence(await store.acquire(alive))
      await scene.outlive(dead.ttlMs)
      assert.deepEqual(await store.evict({ key: scene.key, id: undefined, reason: 'reset' }), [alive.id])
      assertGone((await store.renew([dead]))[0])
    },
  },
  {
    name: 'a cancelled and an evicted ticket stay gone for a while, not only for a moment',
    async play(scene) {
      const store = await scene.view()
      const [cancelled, evicted] = [scene.ticket(), scene.ticket()]
      await store.release(cancelOf(cancelled))
      heldFence(await store.acquire(evicted))
      await store.evict({ key: evicted.key, id: evicted.id, reason: 'stuck' })
      await scene.outlive(300)
      assertGone(await store.acquire(cancelled))
      assert.deepEqual(await store.acquire(evicted), { tag: 'gone', evicted: true, reason: 'stuck' })
    },
  },
  {
    name: 'fences rise over expiry, eviction, an empty key and a store that was closed and opened again',
    async play(scene) {
      const first = await scene.view()
      const fences: bigint[] = []
      const expiring = scene.ticket({ ttlMs: scene.span(80) })
      fences.push(heldFence(await first.acquire(expiring)))
      await scene.outlive(expiring.ttlMs)
      const evicted = scene.ticket()
      fences.push(heldFence(await first.acquire(evicted)))
      await first.evict({ key: evicted.key, id: undefined, reason: 'fences' })
      fences.push(await heldOnce(scene, first))
      await first.close()
      const second = await scene.view()
      fences.push(await heldOnce(scene, second))
      fences.push(await heldOnce(scene, second))
      for (const [index, fence] of fences.slice(1).entries())
        assert.ok(fence > (fences[index] ?? fence), fences.join(', '))
    },
  },
  {
    name: 'the clock of the client decides nothing: an hour ahead or behind changes no answer',
    needs: 'own-clock',
    async play(scene) {
      const store = await scene.view()
      const [holder, waiter] = [scene.ticket(), scene.ticket()]
      const fence = heldFence(await store.acquire(holder))
      for (const hours of [1, -1]) {
        await withClientClock(hours * 3_600_000, async () => {
          queuedAnswer(await store.acquire(waiter))
          assert.equal(heldFence(await store.acquire(holder)), fence)
          assert.deepEqual((await store.renew([holder]))[0], { tag: 'held', fence })
        })
        busyAnswer(await store.acquire(scene.ticket({ patienceMs: 0 })))
        const [view] = await scene.holders(store)
        assert.ok(view !== undefined && view.remainingMs <= LONG && view.remainingMs > LONG / 2)
      }
    },
  },
]

async function heldOnce(scene: Scene, store: Store): Promise<bigint> {
  const ticket = scene.ticket()
  const fence = heldFence(await store.acquire(ticket))
  await store.release(releaseOf(ticket))
  return fence
}

const { now } = Date

async function withClientClock(aheadMs: number, body: () => Promise<void>): Promise<void> {
  Date.now = () => now() + aheadMs
  try {
    await body()
  } finally {
    Date.now = now
  }
}
