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

/** What the store's clock does, and only the store's clock. */
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
        scene.ticket({ limit: 2, ttlMs: scene.span(100) }),
        scene.ticket({ limit: 2, ttlMs: scene.span(500) }),
      ]
      const watch = scene.stopwatch()
      heldFence(await store.acquire(first))
      heldFence(await store.acquire(second))
      await scene.outlive(first.ttlMs)
      const answer = await store.acquire(scene.ticket({ units: 2, limit: 2, patienceMs: 0 }))
      const holders = await scene.holders(store)
      watch.within(second.ttlMs)
      busyAnswer(answer)
      assert.deepEqual(ids(holders), [second.id])
      await scene.outlive(second.ttlMs)
      heldFence(await store.acquire(scene.ticket({ units: 2, limit: 2, patienceMs: 0 })))
    },
  },
  {
    name: 'an eviction does not name those who had expired',
    async play(scene) {
      const store = await scene.view()
      const [dead, alive] = [scene.ticket({ limit: 2, ttlMs: scene.span(80) }), scene.ticket({ limit: 2 })]
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
    name: 'an expiry admits the head with the next call of anybody, whatever it asks',
    async play(scene) {
      const store = await scene.view()
      const calls: readonly ((key: string) => unknown)[] = [
        (key) => store.acquire(scene.ticket({ key, patienceMs: 0 })),
        (key) => store.renew([scene.ticket({ key })]),
        (key) => store.release({ key, id: crypto.randomUUID(), cancel: false }),
        (key) => store.release({ key, id: crypto.randomUUID(), cancel: true }),
        (key) => store.evict({ key, id: crypto.randomUUID(), reason: 'unknown to it' }),
      ]
      const heads = []
      const ttlMs = scene.span(200)
      for (const [index] of calls.entries()) {
        const key = `${scene.key}:${index}`
        const head = scene.ticket({ key })
        const watch = scene.stopwatch()
        heldFence(await store.acquire(scene.ticket({ key, ttlMs })))
        const answer = await store.acquire(head)
        watch.within(ttlMs)
        queuedAnswer(answer)
        heads.push(head)
      }
      await scene.outlive(ttlMs)
      for (const [index, head] of heads.entries()) {
        await calls[index]?.(head.key)
        const [holder] = await scene.holders(store, head.key)
        assert.equal(holder?.id, head.id, `after call ${index}`)
        assert.equal(holder.state, 'offered')
      }
    },
  },
  {
    name: 'a head that does not confirm costs its acceptance term, not its ttl',
    async play(scene) {
      const store = await scene.view()
      const [holder, dead, next] = [
        scene.ticket(),
        scene.ticket({ acceptMs: scene.span(120) }),
        scene.ticket(),
      ]
      const fence = heldFence(await store.acquire(holder))
      queuedAnswer(await store.acquire(dead))
      queuedAnswer(await store.acquire(next))
      await store.release(releaseOf(holder))
      await scene.outlive(dead.acceptMs)
      assert.ok(heldFence(await store.acquire(next)) > fence)
      assertGone((await store.renew([dead]))[0])
      assert.deepEqual(ids(await scene.holders(store)), [next.id])
    },
  },
  {
    name: 'the acceptance term is the one of the admitted ticket, not of the one that left',
    async play(scene) {
      const store = await scene.view()
      const hasty = scene.ticket({ acceptMs: scene.span(50) })
      const slow = scene.ticket({ acceptMs: LONG / 2 })
      heldFence(await store.acquire(hasty))
      queuedAnswer(await store.acquire(slow))
      await store.release(releaseOf(hasty))
      await scene.outlive(hasty.acceptMs)
      const [offered] = await scene.holders(store)
      assert.equal(offered?.state, 'offered')
      assert.ok(
        offered.remainingMs > LONG / 4 && offered.remainingMs <= LONG / 2,
        `${offered.remainingMs} ms`,
      )
      heldFence(await store.acquire(slow))
    },
  },
  {
    name: 'a confirmed offer lasts for the full ttl, whether confirmed by acquire or by renew',
    async play(scene) {
      const store = await scene.view()
      for (const way of ['acquire', 'renew']) {
        const key = `${scene.key}:${way}`
        const [holder, head] = [scene.ticket({ key }), scene.ticket({ key, acceptMs: scene.span(200) })]
        heldFence(await store.acquire(holder))
        queuedAnswer(await store.acquire(head))
        const watch = scene.stopwatch()
        await store.release(releaseOf(holder))
        const answer = way === 'acquire' ? await store.acquire(head) : (await store.renew([head]))[0]
        watch.within(head.acceptMs)
        assert.equal(answer?.tag, 'held')
        await scene.outlive(head.acceptMs)
        assert.deepEqual(ids(await scene.holders(store, key)), [head.id])
      }
    },
  },
  {
    name: 'a waiter that is not heard of for its patience is skipped',
    async play(scene) {
      const store = await scene.view()
      const [holder, dead, next] = [
        scene.ticket(),
        scene.ticket({ patienceMs: scene.span(120) }),
        scene.ticket(),
      ]
      heldFence(await store.acquire(holder))
      queuedAnswer(await store.acquire(dead))
      queuedAnswer(await store.acquire(next))
      await scene.outlive(dead.patienceMs)
      assert.deepEqual(ids(await scene.queue(store)), [next.id], 'inspect leaves out who is forgotten')
      await store.release(releaseOf(holder))
      assert.deepEqual(ids(await scene.holders(store)), [next.id])
      assertGone((await store.renew([dead]))[0])
    },
  },
  {
    name: 'a forgotten head lets those behind it in without any release',
    async play(scene) {
      const store = await scene.view()
      heldFence(await store.acquire(scene.ticket({ limit: 3 })))
      const wide = scene.ticket({ units: 3, limit: 3, patienceMs: scene.span(120) })
      const narrow = scene.ticket({ limit: 3 })
      queuedAnswer(await store.acquire(wide))
      await store.acquire(narrow)
      await scene.outlive(wide.patienceMs)
      heldFence(await store.acquire(narrow))
    },
  },
  {
    name: 'a waiter that asks again or is renewed is remembered for its full patience anew',
    async play(scene) {
      const store = await scene.view()
      const patienceMs = scene.span(300)
      const [holder, asking, renewed] = [
        scene.ticket(),
        scene.ticket({ patienceMs }),
        scene.ticket({ patienceMs }),
      ]
      heldFence(await store.acquire(holder))
      const watch = scene.stopwatch()
      queuedAnswer(await store.acquire(asking))
      queuedAnswer(await store.acquire(renewed))
      queuedAnswer(await store.acquire({ ...asking, patienceMs: LONG }))
      await store.renew([{ ...renewed, patienceMs: LONG }])
      watch.within(patienceMs)
      await scene.outlive(patienceMs)
      assert.deepEqual(ids(await scene.queue(store)), ids([asking, renewed]))
      await store.release(releaseOf(holder))
      heldFence(await store.acquire(asking))
    },
  },
  {
    name: 'a waiter that comes back late keeps its place if its turn has not come',
    async play(scene) {
      const store = await scene.view()
      for (const way of ['acquire', 'renew']) {
        const key = `${scene.key}:${way}`
        const late = scene.ticket({ key, patienceMs: scene.span(120) })
        heldFence(await store.acquire(scene.ticket({ key })))
        queuedAnswer(await store.acquire(late))
        queuedAnswer(await store.acquire(scene.ticket({ key })))
        await scene.outlive(late.patienceMs)
        const again = { ...late, patienceMs: LONG }
        const answer = way === 'acquire' ? await store.acquire(again) : (await store.renew([again]))[0]
        assert.equal(answer?.tag, 'queued', way)
        assert.equal(queuedAnswer(await store.acquire(again)).ahead, 0)
      }
    },
  },
  {
    name: 'a waiter behind a holder that expired is kept, whatever happens on other keys',
    async play(scene) {
      const store = await scene.view()
      const [dead, head] = [scene.ticket({ ttlMs: scene.span(150) }), scene.ticket()]
      const watch = scene.stopwatch()
      heldFence(await store.acquire(dead))
      const answer = await store.acquire(head)
      watch.within(dead.ttlMs)
      queuedAnswer(answer)
      await scene.outlive(dead.ttlMs)
      await scene.visitOtherKeys(store)
      assert.equal((await store.renew([head]))[0]?.tag, 'held')
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
