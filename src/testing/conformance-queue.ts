import assert from 'node:assert/strict'
import { UNLIMITED } from '../contract/store.ts'
import {
  assertGone,
  busyAnswer,
  type ConformanceScript,
  heldFence,
  ids,
  LONG,
  queuedAnswer,
  releaseOf,
} from './conformance-scene.ts'

/** Order of arrival, and the hand-over inside the release. */
export const queueCases: readonly ConformanceScript[] = [
  {
    name: 'tickets are admitted in order of arrival, whichever view they came through',
    async play(scene) {
      const views = [await scene.view(), await scene.view(), await scene.view()] as const
      const tickets = Array.from({ length: 9 }, () => scene.ticket())
      const viewOf = (index: number) => views[index % 3] ?? views[0]
      for (const [index, ticket] of tickets.entries()) {
        const answer = await viewOf(index).acquire(ticket)
        if (index === 0) heldFence(answer)
        else assert.equal(queuedAnswer(answer).ahead, index - 1)
      }
      let fence = 0n
      for (const [index, ticket] of tickets.entries()) {
        // The last waiter asks first, to show that asking does not overtake.
        for (const waiter of tickets.slice(index + 1).reverse())
          assert.equal((await viewOf(index + 1).acquire(waiter)).tag, 'queued')
        const next = heldFence(await viewOf(index).acquire(ticket))
        assert.ok(next > fence)
        fence = next
        await viewOf(index + 2).release(releaseOf(ticket))
      }
    },
  },
  {
    name: 'a release admits the head in the same step, before anybody asks',
    async play(scene) {
      const store = await scene.view()
      const [holder, head, second] = [scene.ticket(), scene.confirming(), scene.ticket()]
      const fence = heldFence(await store.acquire(holder))
      queuedAnswer(await store.acquire(head))
      queuedAnswer(await store.acquire(second))
      await store.release(releaseOf(holder))
      const [offered, ...others] = await scene.holders(store)
      assert.equal(offered?.id, head.id)
      assert.equal(offered.state, 'offered')
      assert.ok(offered.fence > fence)
      assert.deepEqual(others, [])
      assert.deepEqual(ids(await scene.queue(store)), [second.id])
      busyAnswer(await store.acquire(scene.ticket({ patienceMs: 0 })))
      const confirmed = heldFence(await store.acquire(head))
      assert.ok(confirmed > fence)
      if (scene.exactOrder) assert.equal(confirmed, offered.fence, 'Confirmed under the fence it was offered')
      assert.equal((await scene.holders(store))[0]?.state, 'held')
    },
  },
  {
    name: 'a newcomer does not pass those who wait, even if there is room for it',
    async play(scene) {
      const store = await scene.view()
      const limit = scene.several(3)
      const holder = scene.ticket({ limit })
      heldFence(await store.acquire(holder))
      const wide = scene.ticket(scene.all(3))
      queuedAnswer(await store.acquire(wide))
      busyAnswer(await store.acquire(scene.ticket({ limit, patienceMs: 0 })))
      assert.equal(queuedAnswer(await store.acquire(scene.ticket({ limit }))).ahead, 1)
      await store.release(releaseOf(holder))
      heldFence(await store.acquire(wide))
    },
  },
  {
    name: 'a wide ticket is not starved by narrow ones that keep coming',
    async play(scene) {
      const store = await scene.view()
      const limit = scene.several(3)
      const narrow = [scene.ticket({ limit }), scene.ticket({ limit })]
      for (const ticket of narrow) heldFence(await store.acquire(ticket))
      const wide = scene.ticket(scene.all(3))
      queuedAnswer(await store.acquire(wide))
      for (const ticket of narrow) {
        queuedAnswer(await store.acquire(wide))
        const late = scene.ticket({ limit })
        queuedAnswer(await store.acquire(late))
        await store.release(releaseOf(ticket))
        assert.equal((await store.acquire(late)).tag, 'queued')
      }
      heldFence(await store.acquire(wide))
      await store.release(releaseOf(wide))
      assert.equal((await scene.holders(store)).length, 2, 'The narrow ones follow, together')
    },
  },
  {
    name: 'a writer gets its turn between readers, and the readers behind it enter together',
    async play(scene) {
      const store = await scene.view()
      const reader = () => scene.ticket({ limit: UNLIMITED })
      const [early, earlyToo, writer, late, lateToo, lastWriter] = [
        reader(),
        reader(),
        scene.ticket(),
        reader(),
        reader(),
        scene.ticket(),
      ]
      heldFence(await store.acquire(early))
      heldFence(await store.acquire(earlyToo))
      for (const ticket of [writer, late, lateToo, lastWriter]) queuedAnswer(await store.acquire(ticket))
      await store.release(releaseOf(early))
      assert.deepEqual(ids(await scene.holders(store)), [earlyToo.id])
      await store.release(releaseOf(earlyToo))
      assert.deepEqual(ids(await scene.holders(store)), [writer.id])
      await store.release(releaseOf(writer))
      assert.deepEqual(new Set(ids(await scene.holders(store))), new Set(ids([late, lateToo])))
      const fences = [heldFence(await store.acquire(lateToo)), heldFence(await store.acquire(late))] as const
      if (scene.exactOrder) assert.ok(fences[0] > fences[1], 'in order of admission, not of confirmation')
      assert.deepEqual(ids(await scene.queue(store)), [lastWriter.id])
    },
  },
  {
    name: 'a waiter that leaves lets those behind it in, if it was all they waited for',
    async play(scene) {
      const store = await scene.view()
      const limit = scene.several(3)
      heldFence(await store.acquire(scene.ticket({ limit })))
      const [wide, narrow] = [scene.ticket(scene.all(3)), scene.ticket({ limit })]
      queuedAnswer(await store.acquire(wide))
      queuedAnswer(await store.acquire(narrow))
      await store.release(releaseOf(wide))
      heldFence(await store.acquire(narrow))
    },
  },
  {
    name: 'an offer that nobody takes also passes the waiters right behind it that fell silent',
    async play(scene) {
      const store = await scene.view()
      const acceptMs = scene.span(80)
      const holder = scene.ticket()
      const dead = [
        scene.confirming({ acceptMs }),
        scene.confirming({ acceptMs }),
        scene.confirming({ acceptMs }),
      ]
      const [living, silent] = [scene.ticket(), scene.confirming({ acceptMs })]
      heldFence(await store.acquire(holder))
      for (const ticket of [...dead, living, silent]) queuedAnswer(await store.acquire(ticket))
      await store.release(releaseOf(holder))
      await scene.outlive(acceptMs)
      heldFence(await store.acquire(living))
      assert.deepEqual(ids(await scene.queue(store)), [silent.id], 'behind the living, each keeps its place')
    },
  },
  {
    name: 'the head is told to watch the next expiry, and the others soon after it, because all in front may be dead',
    async play(scene) {
      const store = await scene.view()
      const limit = scene.several(3)
      heldFence(await store.acquire(scene.ticket({ limit, ttlMs: LONG / 6 })))
      heldFence(await store.acquire(scene.ticket({ limit, ttlMs: LONG / 12 })))
      const [head, other] = [scene.ticket(), scene.ticket()]
      const asked = [queuedAnswer(await store.acquire(head)), queuedAnswer(await store.acquire(other))]
      for (const [first, second] of [asked, await store.renew([head, other])]) {
        assert.ok(first?.tag === 'queued' && second?.tag === 'queued')
        assert.ok(first.askAgainMs > 0 && first.askAgainMs <= LONG / 12, `the head: ${first.askAgainMs} ms`)
        assert.ok(
          second.askAgainMs > 0 && second.askAgainMs <= LONG / 6,
          `the other: ${second.askAgainMs} ms`,
        )
      }
    },
  },
  {
    name: 'whoever waits is told to ask while it is still remembered, and while an offer would still stand',
    async play(scene) {
      const store = await scene.view()
      heldFence(await store.acquire(scene.ticket()))
      const drafts = [
        { patienceMs: 30_000 },
        { patienceMs: 30_000 },
        { acceptMs: 30_000 },
        { acceptMs: 30_000 },
      ]
      for (const draft of drafts) {
        const { askAgainMs } = queuedAnswer(await store.acquire(scene.ticket(draft)))
        assert.ok(askAgainMs > 5_000 && askAgainMs < 25_000, `${askAgainMs} ms`)
      }
    },
  },
  {
    name: 'whoever asks only when it is told to is served in its turn, without any wake',
    async play(scene) {
      const store = await scene.view()
      const acceptMs = scene.span(400)
      const [dead, head, next] = [
        scene.ticket({ ttlMs: scene.span(200) }),
        scene.ticket({ acceptMs }),
        scene.ticket({ acceptMs }),
      ]
      const watch = scene.stopwatch()
      heldFence(await store.acquire(dead))
      const told = await store.acquire(head)
      const toldNext = await store.acquire(next)
      watch.within(dead.ttlMs)
      await scene.outlive(queuedAnswer(told).askAgainMs)
      heldFence(await store.acquire(head))
      const { askAgainMs } = queuedAnswer(toldNext)
      const offered = scene.stopwatch()
      await store.release(releaseOf(head))
      await scene.outlive(askAgainMs)
      const answer = await store.acquire(next)
      offered.within(acceptMs)
      heldFence(answer)
    },
  },
  {
    name: 'renew answers each ticket of a batch in its place, whatever became of it',
    async play(scene) {
      const [store, other] = [await scene.view(), await scene.view()]
      const [held, waiting, unknown, cancelled, evicted, offered, before] = [
        scene.ticket(),
        scene.ticket(),
        scene.ticket(),
        scene.ticket({ key: `${scene.key}:cancelled` }),
        scene.ticket({ key: `${scene.key}:evicted` }),
        scene.ticket({ key: `${scene.key}:offered` }),
        scene.ticket({ key: `${scene.key}:offered` }),
      ]
      const fence = heldFence(await store.acquire(held))
      queuedAnswer(await store.acquire(waiting))
      heldFence(await store.acquire(cancelled))
      await store.release({ key: cancelled.key, id: cancelled.id, cancel: true })
      heldFence(await store.acquire(evicted))
      await store.evict({ key: evicted.key, id: evicted.id, reason: 'maintenance' })
      heldFence(await store.acquire(before))
      queuedAnswer(await store.acquire(offered))
      await store.release(releaseOf(before))
      const batch = [evicted, waiting, unknown, held, cancelled, offered]
      for (const view of [store, other]) {
        const answers = await view.renew(batch)
        assert.equal(answers.length, batch.length)
        assert.deepEqual(answers[0], { tag: 'gone', evicted: true, reason: 'maintenance' })
        assert.equal(answers[1]?.tag, 'queued')
        assertGone(answers[2])
        assert.deepEqual(answers[3], { tag: 'held', fence })
        assertGone(answers[4])
        assert.equal(answers[5]?.tag, 'held')
      }
      assert.equal((await scene.holders(store, offered.key))[0]?.state, 'held', 'Confirmed by being renewed')
    },
  },
  {
    name: 'an empty batch is answered with an empty list',
    async play(scene) {
      const store = await scene.view()
      assert.deepEqual(await store.renew([]), [])
    },
  },
  {
    name: 'renew never queues and never brings a released ticket back',
    async play(scene) {
      const store = await scene.view()
      const [holder, released] = [scene.ticket(), scene.ticket({ key: `${scene.key}:free` })]
      heldFence(await store.acquire(holder))
      const [answer] = await store.renew([scene.ticket()])
      assertGone(answer)
      assert.deepEqual(await scene.queue(store), [])
      heldFence(await store.acquire(released))
      await store.release(releaseOf(released))
      assertGone((await store.renew([released]))[0])
      assert.equal(await scene.room(store, released.key), undefined)
    },
  },
  {
    name: 'a batch of a thousand tickets on a thousand keys is one call',
    async play(scene) {
      const store = await scene.view()
      const tickets = Array.from({ length: 1_000 }, (_, index) =>
        scene.ticket({ key: `${scene.key}:${index}` }),
      )
      const fences = (await Promise.all(tickets.map((ticket) => store.acquire(ticket)))).map(heldFence)
      const renewed = new Map<string, bigint>()
      // If one of several servers is late, it leaves its places empty, and the engine asks about these tickets again.
      for (let round = 1; round <= 10 && renewed.size < tickets.length; round += 1) {
        const open = tickets.filter(({ id }) => !renewed.has(id))
        const answers = await store.renew(open)
        for (const [index, { id }] of open.entries())
          if (answers[index] !== undefined) renewed.set(id, heldFence(answers[index]))
      }
      const found = tickets.map(({ id }) => renewed.get(id))
      assert.deepEqual(found, fences)
    },
  },
]
