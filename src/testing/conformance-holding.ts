import assert from 'node:assert/strict'
import { UNLIMITED } from '../contract/store.ts'
import { isHoldfastError } from '../errors.ts'
import { mayStandTogether, type Share } from '../law/law.ts'
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
  show,
} from './conformance-scene.ts'
import { seededRandom } from './random.ts'

/** Which tickets may hold together, and that every call may be sent again. */
export const holdingCases: readonly ConformanceScript[] = [
  {
    name: 'a free key is held at once, and by nobody else until it is released',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const first = scene.ticket()
      const second = scene.ticket({ patienceMs: 0 })
      const fence = heldFence(await one.acquire(first))
      busyAnswer(await other.acquire(second))
      busyAnswer(await one.acquire(second))
      assert.deepEqual(await one.release(releaseOf(first)), { was: 'held' })
      assert.ok(heldFence(await other.acquire(second)) > fence)
    },
  },
  {
    name: 'a view that was closed refuses whatever it is asked with `store-refused`, and the others go on',
    async play(scene) {
      const [closed, other] = [await scene.view(), await scene.view()]
      // In this process one store may be all views at once: there is nothing to close.
      if (closed === other) return
      const ticket = scene.ticket()
      heldFence(await closed.acquire(ticket))
      await closed.close()
      const questions = {
        acquire: async () => closed.acquire(scene.ticket()),
        renew: async () => closed.renew([ticket]),
        release: async () => closed.release(releaseOf(ticket)),
        inspect: async () => closed.inspect({ prefix: scene.prefix, cursor: undefined, count: 1 }),
        evict: async () => closed.evict({ key: scene.key, id: undefined, reason: 'closed' }),
      }
      for (const [verb, ask] of Object.entries(questions)) {
        await assert.rejects(ask, (error) => isHoldfastError(error, 'store-refused'), verb)
      }
      assert.deepEqual(await other.release(releaseOf(ticket)), { was: 'held' })
    },
  },
  {
    name: 'keys do not disturb one another',
    async play(scene) {
      const store = await scene.view()
      const one = scene.ticket()
      const other = scene.ticket({ key: `${scene.key}:other` })
      heldFence(await store.acquire(one))
      heldFence(await store.acquire(other))
      await store.release(releaseOf(one))
      assert.deepEqual(ids(await scene.holders(store, other.key)), [other.id])
    },
  },
  {
    name: 'a store answers contention with a value: `busy`, and when the earliest holder expires',
    async play(scene) {
      const store = await scene.view()
      heldFence(await store.acquire(scene.ticket({ limit: scene.several(2), ttlMs: LONG })))
      heldFence(await store.acquire(scene.ticket({ limit: scene.several(2), ttlMs: LONG / 2 })))
      const { retryMs } = busyAnswer(await store.acquire(scene.ticket({ patienceMs: 0 })))
      assert.ok(retryMs > LONG / 4 && retryMs <= LONG / 2, `retryMs ${retryMs}`)
      assert.deepEqual(await scene.queue(store), [], 'With patience 0 a ticket is never queued')
    },
  },
  {
    name: 'readers share, a writer is alone',
    async play(scene) {
      const store = await scene.view()
      const readers = [scene.ticket({ limit: UNLIMITED }), scene.ticket({ limit: UNLIMITED })]
      for (const reader of readers) heldFence(await store.acquire(reader))
      busyAnswer(await store.acquire(scene.ticket({ patienceMs: 0 })))
      for (const reader of readers) await store.release(releaseOf(reader))
      heldFence(await store.acquire(scene.ticket({ patienceMs: 0 })))
      busyAnswer(await store.acquire(scene.ticket({ limit: UNLIMITED, patienceMs: 0 })))
    },
  },
  {
    name: 'a semaphore counts units, up to its limit and not beyond',
    needs: 'semaphores',
    async play(scene) {
      const store = await scene.view()
      const pair = scene.ticket({ units: 2, limit: 5 })
      heldFence(await store.acquire(pair))
      heldFence(await store.acquire(scene.ticket({ units: 2, limit: 5 })))
      busyAnswer(await store.acquire(scene.ticket({ units: 2, limit: 5, patienceMs: 0 })))
      heldFence(await store.acquire(scene.ticket({ units: 1, limit: 5, patienceMs: 0 })))
      busyAnswer(await store.acquire(scene.ticket({ units: 1, limit: 5, patienceMs: 0 })))
      await store.release(releaseOf(pair))
      heldFence(await store.acquire(scene.ticket({ units: 2, limit: 5, patienceMs: 0 })))
    },
  },
  {
    name: 'mixed kinds on one key follow the law: the sum of units within the smallest limit',
    needs: 'semaphores',
    async play(scene) {
      const store = await scene.view()
      const random = seededRandom('mixed kinds')
      for (let round = 0; round < 8; round += 1) {
        const key = `${scene.key}:${round}`
        const holding: Share[] = []
        for (let step = 0; step < 8; step += 1) {
          const limit = random.pick([1, 2, 3, 5, 8, UNLIMITED])
          const share = { units: random.between(1, Math.min(limit, 4)), limit }
          const answer = await store.acquire(scene.ticket({ key, ...share, patienceMs: 0 }))
          const expected = mayStandTogether([...holding, share]) ? 'held' : 'busy'
          assert.equal(answer.tag, expected, `${show(share)} beside ${show(holding)}`)
          if (expected === 'held') holding.push(share)
        }
      }
    },
  },
  {
    name: 'the smallest limit counts only as long as its holder is there, and then the next one does',
    needs: 'semaphores',
    async play(scene) {
      const store = await scene.view()
      const [two, three] = [scene.ticket({ limit: 2 }), scene.ticket({ limit: 3 })]
      const narrow = scene.ticket({ limit: 9, patienceMs: 0 })
      const wide = scene.ticket({ units: 3, limit: 9, patienceMs: 0 })
      heldFence(await store.acquire(two))
      heldFence(await store.acquire(three))
      busyAnswer(await store.acquire(narrow))
      await store.release(releaseOf(two))
      busyAnswer(await store.acquire(wide))
      heldFence(await store.acquire(narrow))
      await store.release(releaseOf(three))
      heldFence(await store.acquire(wide))
    },
  },
  {
    name: 'an acquire that is sent again is the same ticket under the same fence',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ticket = scene.ticket({ limit: scene.several(2) })
      const fence = heldFence(await one.acquire(ticket))
      assert.equal(heldFence(await one.acquire(ticket)), fence)
      // A ticket belongs to one process until it has a fence. Another process takes it over by a renewal.
      const view = scene.exactOrder ? other : one
      assert.equal(heldFence(await view.acquire(ticket)), fence)
      assert.equal(heldFence(await view.acquire({ ...ticket, patienceMs: 0 })), fence)
      assert.deepEqual(await other.renew([ticket]), [{ tag: 'held', fence }])
      heldFence(await one.acquire(scene.ticket({ limit: scene.several(2) })))
      assert.equal((await scene.holders(one)).length, 2, 'It was counted once')
    },
  },
  {
    name: 'an acquire of a waiter that is sent again keeps its one place',
    async play(scene) {
      const store = await scene.view()
      const holder = scene.ticket()
      heldFence(await store.acquire(holder))
      const waiters = [scene.ticket(), scene.ticket(), scene.ticket()]
      for (const [ahead, waiter] of waiters.entries())
        assert.equal(queuedAnswer(await store.acquire(waiter)).ahead, ahead)
      for (const [ahead, waiter] of waiters.entries())
        assert.equal(queuedAnswer(await store.acquire(waiter)).ahead, ahead)
      assert.deepEqual(ids(await scene.queue(store)), ids(waiters))
    },
  },
  {
    name: 'a release that is sent again finds nothing and leaves the next holder alone',
    async play(scene) {
      const store = await scene.view()
      const first = scene.ticket()
      const second = scene.ticket()
      heldFence(await store.acquire(first))
      queuedAnswer(await store.acquire(second))
      assert.deepEqual(await store.release(releaseOf(first)), { was: 'held' })
      heldFence(await store.acquire(second))
      assert.deepEqual(await store.release(releaseOf(first)), { was: 'unknown' })
      assert.deepEqual(await store.release(cancelOf(first)), { was: 'unknown' })
      assert.deepEqual(ids(await scene.holders(store)), [second.id])
    },
  },
  {
    name: 'a release of an unknown ticket or an unknown key is answered, not refused',
    async play(scene) {
      const store = await scene.view()
      const stranger = scene.ticket()
      assert.deepEqual(await store.release(releaseOf(stranger)), { was: 'unknown' })
      const holder = scene.ticket()
      heldFence(await store.acquire(holder))
      assert.deepEqual(await store.release(releaseOf(stranger)), { was: 'unknown' })
      assert.deepEqual(ids(await scene.holders(store)), [holder.id])
    },
  },
  {
    name: 'a cancel that overtakes its acquire leaves that acquire without effect',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const late = scene.ticket()
      assert.deepEqual(await one.release(cancelOf(late)), { was: 'unknown' })
      assertGone(await other.acquire(late))
      assertGone(await other.acquire({ ...late, patienceMs: 0 }))
      assert.equal(await scene.room(one), undefined)
      heldFence(await other.acquire(scene.ticket()))
    },
  },
  {
    name: 'a cancel of a holder lets the next one in, and the ticket never comes back',
    async play(scene) {
      const store = await scene.view()
      const [holder, next] = [scene.ticket(), scene.ticket()]
      heldFence(await store.acquire(holder))
      queuedAnswer(await store.acquire(next))
      assert.deepEqual(await store.release(cancelOf(holder)), { was: 'held' })
      assertGone(await store.acquire(holder))
      assertGone((await store.renew([holder]))[0])
      heldFence(await store.acquire(next))
    },
  },
  {
    name: 'a cancel of a waiter closes the gap in the queue',
    async play(scene) {
      const store = await scene.view()
      const [holder, quitter, next] = [scene.ticket(), scene.ticket(), scene.ticket()]
      heldFence(await store.acquire(holder))
      queuedAnswer(await store.acquire(quitter))
      queuedAnswer(await store.acquire(next))
      assert.deepEqual(await store.release(cancelOf(quitter)), { was: 'queued' })
      assertGone(await store.acquire(quitter))
      assert.equal(queuedAnswer(await store.acquire(next)).ahead, 0)
      await store.release(releaseOf(holder))
      heldFence(await store.acquire(next))
    },
  },
  {
    name: 'fences are integers that rise with every new holder and are as large as µs since 1970',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      let last = BigInt(Date.now() - 24 * 3_600_000) * 1_000n
      for (let round = 0; round < 20; round += 1) {
        const ticket = scene.ticket()
        const fence = heldFence(await (round % 2 === 0 ? one : other).acquire(ticket))
        assert.ok(fence > last, `${fence} after ${last}`)
        last = fence
        await one.release(releaseOf(ticket))
      }
      assert.ok(last < BigInt(Date.now() + 24 * 3_600_000) * 1_000n, `${last} is far in the future`)
    },
  },
  {
    name: 'each of several holders has a fence of its own, in order of admission',
    async play(scene) {
      const store = await scene.view()
      const fences: bigint[] = []
      for (let reader = 0; reader < 10; reader += 1)
        fences.push(heldFence(await store.acquire(scene.ticket({ limit: UNLIMITED }))))
      for (const [index, fence] of fences.slice(1).entries()) assert.ok(fence > (fences[index] ?? fence))
    },
  },
]
