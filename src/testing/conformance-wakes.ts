import assert from 'node:assert/strict'
import { type ConformanceScript, heldFence, LONG, queuedAnswer, releaseOf } from './conformance-scene.ts'

/** Wakes: which tickets are woken, and how often. */
export const wakeCases: readonly ConformanceScript[] = [
  {
    name: 'a release wakes the head, in the process that asked for it',
    needs: 'push',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const [earsOfOne, earsOfOther] = [await scene.listen(one), await scene.listen(other)]
      const [holder, head, second] = [scene.ticket(), scene.ticket(), scene.ticket()]
      heldFence(await one.acquire(holder))
      queuedAnswer(await other.acquire(head))
      queuedAnswer(await one.acquire(second))
      await one.release(releaseOf(holder))
      await earsOfOther.hear(head.id)
      heldFence(await scene.whenWoken(other, head))
      await other.release(releaseOf(head))
      await earsOfOne.hear(second.id)
      heldFence(await scene.whenWoken(one, second))
      if (scene.exactOrder)
        assert.equal(earsOfOther.heard.filter((id) => id === head.id).length, 1, 'woken once')
    },
  },
  {
    name: 'every ticket that a release lets in is woken, and no other',
    needs: 'push',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      const holder = scene.ticket()
      const readers = [scene.ticket({ limit: scene.several(9) }), scene.ticket({ limit: scene.several(9) })]
      const writer = scene.ticket()
      heldFence(await one.acquire(holder))
      for (const ticket of [...readers, writer]) queuedAnswer(await other.acquire(ticket))
      await one.release(releaseOf(holder))
      for (const { id } of readers) await ears.hear(id)
      for (const reader of readers) {
        heldFence(await scene.whenWoken(other, reader))
        await other.release(releaseOf(reader))
      }
      await ears.hear(writer.id)
      // Several servers may report one event at different times, and two events in either order. A wake that comes twice costs one request.
      const heard = scene.exactOrder ? ears.heard : [...new Set(ears.heard)].sort()
      const woken = [...readers, writer].map(({ id }) => id)
      assert.deepEqual(heard, scene.exactOrder ? woken : woken.sort())
    },
  },
  {
    name: 'an expiry wakes the head as soon as anybody calls',
    needs: 'push',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      const [dead, head] = [scene.ticket({ ttlMs: scene.span(150) }), scene.ticket()]
      const watch = scene.stopwatch()
      heldFence(await one.acquire(dead))
      const answer = await other.acquire(head)
      watch.within(dead.ttlMs)
      queuedAnswer(answer)
      await scene.outlive(dead.ttlMs)
      await one.acquire(scene.ticket({ patienceMs: 0 }))
      await ears.hear(head.id)
      heldFence(await scene.whenWoken(other, head))
    },
  },
  {
    name: 'whoever gets the key by asking is not woken for it',
    needs: 'lazy-expiry',
    async play(scene) {
      const store = await scene.view()
      const ears = await scene.listen(store)
      const [dead, head, next] = [scene.ticket({ ttlMs: scene.span(150) }), scene.ticket(), scene.ticket()]
      const watch = scene.stopwatch()
      for (const ticket of [dead, head, next]) await store.acquire(ticket)
      watch.within(dead.ttlMs)
      await scene.outlive(dead.ttlMs)
      heldFence(await store.acquire(head))
      await store.release(releaseOf(head))
      await ears.hear(next.id)
      assert.deepEqual(ears.heard, [next.id])
    },
  },
  {
    name: 'an eviction wakes the evicted, holder or waiter, and whoever is next',
    needs: 'push',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      const [holder, head, next] = [scene.ticket(), scene.ticket(), scene.ticket()]
      heldFence(await other.acquire(holder))
      queuedAnswer(await other.acquire(head))
      queuedAnswer(await other.acquire(next))
      await one.evict({ key: head.key, id: head.id, reason: 'first' })
      await ears.hear(head.id)
      await one.evict({ key: holder.key, id: holder.id, reason: 'second' })
      await ears.hear(holder.id)
      await ears.hear(next.id)
      heldFence(await scene.whenWoken(other, next))
    },
  },
  {
    name: 'a cancel wakes whom it lets in',
    needs: 'push',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const ears = await scene.listen(other)
      const limit = scene.several(2)
      heldFence(await one.acquire(scene.ticket({ limit })))
      const [wide, narrow] = [scene.ticket(scene.all(2)), scene.ticket({ limit })]
      queuedAnswer(await one.acquire(wide))
      queuedAnswer(await other.acquire(narrow))
      await one.release({ key: wide.key, id: wide.id, cancel: true })
      await ears.hear(narrow.id)
      heldFence(await scene.whenWoken(other, narrow))
    },
  },
  {
    name: 'two listeners of one view both hear, and one that has stopped hears no more',
    needs: 'push',
    async play(scene) {
      const store = await scene.view()
      const [staying, leaving] = [await scene.listen(store), await scene.listen(store)]
      const tickets = [scene.ticket(), scene.ticket(), scene.ticket()] as const
      const [first, second, third] = tickets
      for (const ticket of tickets) await store.acquire(ticket)
      await store.release(releaseOf(first))
      await Promise.all([staying.hear(second.id), leaving.hear(second.id)])
      leaving.unlisten()
      leaving.unlisten()
      heldFence(await scene.whenWoken(store, second))
      await store.release(releaseOf(second))
      await staying.hear(third.id)
      assert.ok(!leaving.heard.includes(third.id), 'It stopped listening')
    },
  },
  {
    name: 'a ticket that asked again through another view is still woken',
    needs: 'push',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const [ears, earsOfOther] = [await scene.listen(one), await scene.listen(other)]
      const [holder, head] = [scene.ticket(), scene.ticket()]
      heldFence(await one.acquire(holder))
      queuedAnswer(await one.acquire(head))
      queuedAnswer(await other.acquire(head))
      await one.release(releaseOf(holder))
      await Promise.any([ears.hear(head.id), earsOfOther.hear(head.id)])
    },
  },
  {
    name: 'a thousand waiters are served in order, each by one wake and with two calls',
    async play(scene) {
      const views = [await scene.view(), await scene.view()] as const
      const ears = scene.pushes ? [await scene.listen(views[0]), await scene.listen(views[1])] : []
      const holder = scene.ticket()
      const fences = [heldFence(await views[0].acquire(holder))]
      const waiters = Array.from({ length: 1_000 }, (_, index) => ({
        ticket: scene.ticket(),
        via: index % 2,
      }))
      for (const [index, { ticket, via }] of waiters.entries())
        assert.equal(queuedAnswer(await (views[via] ?? views[0]).acquire(ticket)).ahead, index)
      const startedAt = performance.now()
      await views[0].release(releaseOf(holder))
      for (const { ticket, via } of waiters) {
        const store = views[via] ?? views[0]
        await ears[via]?.hear(ticket.id)
        fences.push(heldFence(await scene.whenWoken(store, ticket)))
        await store.release(releaseOf(ticket))
      }
      const tookMs = performance.now() - startedAt
      // Without wakes it would take half a second each, and minutes in all.
      assert.ok(tookMs < LONG, `${Math.round(tookMs)} ms for 1,000 hand-overs`)
      for (const [index, fence] of fences.slice(1).entries()) assert.ok(fence > (fences[index] ?? fence))
      if (scene.exactOrder)
        for (const { heard } of ears)
          assert.equal(new Set(heard).size, heard.length, 'nobody was woken twice')
    },
  },
]
