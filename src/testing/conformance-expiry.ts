import assert from 'node:assert/strict'
import type { Store } from '../contract/store.ts'
import {
  assertGone,
  busyAnswer,
  type ConformanceScript,
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
      const [holder, late, renewedLate, next] = [
        scene.ticket(),
        scene.ticket({ patienceMs: scene.span(120) }),
        scene.ticket({ patienceMs: scene.span(120) }),
        scene.ticket(),
      ]
      heldFence(await store.acquire(holder))
      for (const ticket of [late, renewedLate, next]) queuedAnswer(await store.acquire(ticket))
      await scene.outlive(scene.span(120))
      const [answer] = await store.renew([{ ...renewedLate, patienceMs: LONG }])
      // Its turn may have come and gone while the one before it was forgotten; then it is certainly gone.
      if (answer?.tag === 'queued') assert.deepEqual(ids(await scene.queue(store)).at(-2), renewedLate.id)
      else assertGone(answer)
    },
  },
  {
    name: 'a minimum hold keeps the key taken after a release, and then hands it over',
    async play(scene) {
      const store = await scene.view()
      const minHoldMs = scene.span(400)
      const [holder, next] = [scene.ticket({ minHoldMs }), scene.ticket()]
      const watch = scene.stopwatch()
      heldFence(await store.acquire(holder))
      queuedAnswer(await store.acquire(next))
      const left = await store.release(releaseOf(holder))
      const again = await store.release(releaseOf(holder))
      const asked = await store.acquire(holder)
      const renewed = await store.renew([holder])
      const views = await scene.holders(store)
      const early = await store.acquire(next)
      watch.within(minHoldMs)
      assert.deepEqual([left, again], [{ was: 'held' }, { was: 'unknown' }])
      assertGone(asked)
      assertGone(renewed[0])
      assert.deepEqual([views[0]?.id, views[0]?.state], [holder.id, 'leaving'])
      queuedAnswer(early)
      await scene.outlive(minHoldMs)
      heldFence(await store.acquire(next))
    },
  },
  {
    name: 'a minimum hold that is over does not delay the release, and a ttl shorter than it does not cut it',
    async play(scene) {
      const store = await scene.view()
      const [over, short] = [
        scene.ticket({ minHoldMs: scene.span(100) }),
        scene.ticket({ key: `${scene.key}:short`, minHoldMs: LONG / 4, ttlMs: scene.span(50) }),
      ]
      heldFence(await store.acquire(over))
      heldFence(await store.acquire(short))
      await scene.outlive(over.minHoldMs)
      await store.release(releaseOf(over))
      assert.deepEqual(await scene.holders(store), [])
      assert.deepEqual(ids(await scene.holders(store, short.key)), [short.id])
      await store.evict({ key: short.key, id: short.id, reason: 'the end of the case' })
    },
  },
  {
    name: 'a lock-delay keeps the key closed after an expiry, and then the queue goes on',
    async play(scene) {
      const store = await scene.view()
      const lockDelayMs = scene.span(600)
      const [dead, next] = [scene.ticket({ ttlMs: scene.span(120), lockDelayMs }), scene.ticket()]
      heldFence(await store.acquire(dead))
      const watch = scene.stopwatch()
      await scene.outlive(dead.ttlMs)
      const busy = await store.acquire(scene.ticket({ patienceMs: 0 }))
      const queued = await store.acquire(next)
      const room = await scene.room(store)
      const renewed = await store.renew([dead])
      watch.within(lockDelayMs)
      const { retryMs } = busyAnswer(busy)
      assert.ok(retryMs > 0 && retryMs <= lockDelayMs, `retryMs ${retryMs}`)
      const { askAgainMs } = queuedAnswer(queued)
      assert.ok(askAgainMs > 0 && askAgainMs <= lockDelayMs, `askAgainMs ${askAgainMs}`)
      assert.ok(
        room !== undefined && room.closedMs > 0 && room.closedMs <= lockDelayMs,
        `closed ${room?.closedMs} ms`,
      )
      assertGone(renewed[0])
      await scene.outlive(lockDelayMs)
      heldFence(await store.acquire(next))
    },
  },
  {
    name: 'a lock-delay follows an eviction, but neither a release nor an offer that nobody took',
    async play(scene) {
      const store = await scene.view()
      const lockDelayMs = scene.span(500)
      const evicted = scene.ticket({ lockDelayMs })
      heldFence(await store.acquire(evicted))
      const watch = scene.stopwatch()
      await store.evict({ key: evicted.key, id: evicted.id, reason: 'stuck' })
      const closed = await store.acquire(scene.ticket({ patienceMs: 0 }))
      watch.within(lockDelayMs)
      busyAnswer(closed)

      const key = `${scene.key}:released`
      const released = scene.ticket({ key, lockDelayMs: LONG })
      const dead = scene.ticket({ key, lockDelayMs: LONG, acceptMs: scene.span(80) })
      const next = scene.ticket({ key })
      heldFence(await store.acquire(released))
      queuedAnswer(await store.acquire(dead))
      queuedAnswer(await store.acquire(next))
      await store.release(releaseOf(released))
      assert.deepEqual(ids(await scene.holders(store, key)), [dead.id])
      await scene.outlive(dead.acceptMs)
      heldFence(await store.acquire(next))
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
