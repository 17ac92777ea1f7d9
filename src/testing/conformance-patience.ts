import assert from 'node:assert/strict'
import {
  assertGone,
  type ConformanceScript,
  heldFence,
  ids,
  LONG,
  queuedAnswer,
  releaseOf,
} from './conformance-scene.ts'

/** Waiters and time: how long an offer stands, and how long a waiter is remembered. */
export const patienceCases: readonly ConformanceScript[] = [
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
        const head = scene.confirming({ key })
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
        scene.confirming({ acceptMs: scene.span(120) }),
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
      const slow = scene.confirming({ acceptMs: LONG / 2 })
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
        const [holder, head] = [scene.ticket({ key }), scene.confirming({ key, acceptMs: scene.span(200) })]
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
      const limit = scene.several(3)
      heldFence(await store.acquire(scene.ticket({ limit })))
      const wide = scene.ticket({ ...scene.all(3), patienceMs: scene.span(120) })
      const narrow = scene.ticket({ limit })
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
        const watch = scene.stopwatch()
        queuedAnswer(await store.acquire(late))
        queuedAnswer(await store.acquire(scene.ticket({ key })))
        watch.within(late.patienceMs)
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
]
