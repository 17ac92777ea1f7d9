import assert from 'node:assert/strict'
import type { Ticket } from '../contract/store.ts'
import {
  type ConformanceScript,
  cancelOf,
  heldFence,
  LONG,
  queuedAnswer,
  releaseOf,
} from './conformance-scene.ts'

/** Messages that are leases; see `Granted`. */
export const grantCases: readonly ConformanceScript[] = [
  {
    name: 'the message to a head that was heard of is its lease, for its full ttl',
    needs: 'grants',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      await scene.introduce(one, other, ears)
      const [holder, head] = [scene.ticket(), scene.ticket({ acceptMs: LONG / 4 })]
      const fence = heldFence(await one.acquire(holder))
      const { storeMs } = queuedAnswer(await other.acquire(head))
      await one.release(releaseOf(holder))
      await ears.hear(head.id)
      const [granted] = ears.granted
      assert.equal(granted?.id, head.id)
      assert.ok(granted.fence > fence)
      assert.ok(storeMs !== undefined && granted.storeMs >= storeMs, 'By the clock of the answer before')
      const [held] = await scene.holders(one)
      assert.equal(held?.state, 'held')
      assert.equal(held.fence, granted.fence)
      assert.ok(held.remainingMs > head.acceptMs, `${held.remainingMs} ms`)
      assert.deepEqual(await other.renew([head]), [{ tag: 'held', fence: granted.fence }])
    },
  },
  {
    name: 'the answer to a release brings its message to the process that released, too',
    needs: 'grants',
    async play(scene) {
      const store = await scene.view()
      const ears = await scene.listen(store)
      const [holder, head] = [scene.ticket(), scene.ticket()]
      heldFence(await store.acquire(holder))
      queuedAnswer(await store.acquire(head))
      await store.release(releaseOf(holder))
      await ears.hear(head.id)
      assert.deepEqual(
        ears.granted.map(({ id }) => id),
        [head.id],
      )
      assert.equal((await scene.holders(store))[0]?.state, 'held')
    },
  },
  {
    name: 'a renewal is as good as a first question: who was heard of by one is granted the key by message',
    needs: 'grants',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      await scene.introduce(one, other, ears)
      const [holder, head] = [scene.ticket(), scene.ticket()]
      heldFence(await one.acquire(holder))
      queuedAnswer(await one.acquire(head))
      const [answer] = await other.renew([head])
      assert.equal(answer?.tag, 'queued')
      assert.ok(answer.storeMs !== undefined)
      await one.release(releaseOf(holder))
      await ears.hear(head.id)
      const [granted] = ears.granted
      assert.ok(granted !== undefined && granted.storeMs >= answer.storeMs)
    },
  },
  {
    name: 'a head that was not heard of for its acceptance term is offered the key, and so costs no more than that term',
    needs: 'grants',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      await scene.introduce(one, other, ears)
      const frees: readonly ((holder: Ticket) => Promise<unknown> | unknown)[] = [
        (holder) => one.release(releaseOf(holder)),
        (holder) => one.release(cancelOf(holder)),
        ({ key, id }) => one.evict({ key, id, reason: 'the case' }),
      ]
      // A store may have a way of its own for each of them.
      for (const free of frees) {
        const [holder, head] = [scene.ticket(), scene.ticket({ acceptMs: scene.span(80) })]
        heldFence(await one.acquire(holder))
        queuedAnswer(await other.acquire(head))
        await scene.outlive(head.acceptMs)
        await free(holder)
        await ears.hear(head.id)
        await other.release(releaseOf(head))
      }
      assert.deepEqual(ears.granted, [])
    },
  },
  {
    name: 'a ticket with a minimum hold or a lock-delay confirms, because these begin with a process that is known to hold',
    needs: 'grants',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      for (const draft of [{ minHoldMs: 1 }, { lockDelayMs: 1 }]) {
        const key = `${scene.key}:${Object.keys(draft)[0]}`
        const [holder, head] = [scene.ticket({ key }), scene.ticket({ key, ...draft })]
        heldFence(await one.acquire(holder))
        queuedAnswer(await other.acquire(head))
        await one.release(releaseOf(holder))
        await ears.hear(head.id)
        assert.equal((await scene.holders(one, key))[0]?.state, 'offered')
        heldFence(await scene.whenWoken(other, head))
      }
      assert.deepEqual(ears.granted, [])
    },
  },
  {
    name: 'every ticket that a release lets in gets its own message',
    needs: 'grants',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      await scene.introduce(one, other, ears)
      const holder = scene.ticket()
      const readers = Array.from({ length: 5 }, () => scene.ticket({ limit: scene.several(9) }))
      heldFence(await one.acquire(holder))
      for (const reader of readers) queuedAnswer(await other.acquire(reader))
      await one.release(releaseOf(holder))
      for (const { id } of readers) await ears.hear(id)
      assert.equal(new Set(ears.granted.map(({ fence }) => fence)).size, readers.length)
      const fences = new Map(ears.granted.map(({ id, fence }) => [id, fence]))
      for (const { id, state, fence } of await scene.holders(one))
        assert.deepEqual([state, fence], ['held', fences.get(id)])
    },
  },
]
