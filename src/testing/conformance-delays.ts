import assert from 'node:assert/strict'
import type { Store, Ticket } from '../contract/store.ts'
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
  TooSlow,
} from './conformance-scene.ts'

/** The two delays that outlast a holder: the minimum hold and the lock-delay. */
export const delayCases: readonly ConformanceScript[] = [
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
      await holdsByNow(store, next, { scene, closedMs: minHoldMs })
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
    name: 'a minimum hold that is over ends nothing: its holder still holds, until its ttl is over',
    async play(scene) {
      const [store, other] = [await scene.view(), await scene.view()]
      const minHoldMs = scene.span(100)
      const holder = scene.ticket({ minHoldMs })
      const fence = heldFence(await store.acquire(holder))
      await scene.outlive(2 * minHoldMs)
      busyAnswer(await other.acquire(scene.ticket({ patienceMs: 0 })))
      assert.deepEqual(await store.renew([holder]), [{ tag: 'held', fence }])
      assert.deepEqual(await store.release(releaseOf(holder)), { was: 'held' })
    },
  },
  {
    name: 'a minimum hold counts once, from the moment the hold was confirmed',
    async play(scene) {
      const store = await scene.view()
      const minHoldMs = scene.span(400)
      const holder = scene.ticket({ minHoldMs })
      heldFence(await store.acquire(holder))
      await scene.outlive(minHoldMs / 2)
      const watch = scene.stopwatch()
      assert.equal((await store.renew([holder]))[0]?.tag, 'held')
      await scene.outlive(minHoldMs / 2)
      await store.release(releaseOf(holder))
      const views = await scene.holders(store)
      watch.within(minHoldMs)
      assert.deepEqual(views, [], 'renewing does not begin it anew')

      const [before, offered] = [scene.ticket(), scene.ticket({ minHoldMs: LONG / 4 })]
      heldFence(await store.acquire(before))
      queuedAnswer(await store.acquire(offered))
      await store.release(releaseOf(before))
      assert.deepEqual(await store.release(releaseOf(offered)), { was: 'held' })
      assert.equal(await scene.room(store), undefined, 'an offer that is given back was never confirmed')
    },
  },
  {
    name: 'a lock-delay keeps the key closed after an expiry, whatever is asked meanwhile, and then the queue goes on',
    async play(scene) {
      const store = await scene.view()
      const lockDelayMs = scene.span(600)
      const [dead, next] = [scene.ticket({ ttlMs: scene.span(120), lockDelayMs }), scene.ticket()]
      const watch = scene.stopwatch()
      heldFence(await store.acquire(dead))
      await scene.outlive(dead.ttlMs)
      await store.release(releaseOf(scene.ticket()))
      await scene.visitOtherKeys(store)
      const busy = await store.acquire(scene.ticket({ patienceMs: 0 }))
      const queued = await store.acquire(next)
      const room = await scene.room(store)
      const renewed = await store.renew([dead])
      watch.within(lockDelayMs)
      const { retryMs } = busyAnswer(busy)
      const leastMs = dead.ttlMs - scene.span(20)
      assert.ok(retryMs >= leastMs && retryMs <= lockDelayMs, `retryMs ${retryMs}`)
      const { askAgainMs } = queuedAnswer(queued)
      assert.ok(askAgainMs >= leastMs && askAgainMs <= lockDelayMs, `askAgainMs ${askAgainMs}`)
      assert.ok(
        room !== undefined && room.closedMs > 0 && room.closedMs <= lockDelayMs,
        `closed ${room?.closedMs} ms`,
      )
      assertGone(renewed[0])
      await scene.outlive(lockDelayMs)
      await holdsByNow(store, next, { scene, closedMs: lockDelayMs })
    },
  },
  {
    name: 'a lock-delay counts from the expiry, not from the first call after it',
    async play(scene) {
      const store = await scene.view()
      const dead = scene.ticket({ ttlMs: scene.span(80), lockDelayMs: scene.span(150) })
      heldFence(await store.acquire(dead))
      await scene.outlive(dead.ttlMs + dead.lockDelayMs)
      const next = scene.ticket({ patienceMs: 0 })
      await holdsByNow(store, next, { scene, closedMs: dead.lockDelayMs })
    },
  },
  {
    name: 'a lock-delay follows an eviction, and the longest one counts',
    async play(scene) {
      const store = await scene.view()
      const [long, short] = [
        scene.ticket({ limit: scene.several(2), lockDelayMs: scene.span(600) }),
        scene.ticket({ limit: scene.several(2), lockDelayMs: scene.span(10) }),
      ]
      heldFence(await store.acquire(long))
      heldFence(await store.acquire(short))
      const watch = scene.stopwatch()
      for (const { key, id } of [long, short]) await store.evict({ key, id, reason: 'stuck' })
      await scene.outlive(short.lockDelayMs)
      const answer = await store.acquire(scene.ticket({ patienceMs: 0 }))
      watch.within(long.lockDelayMs)
      busyAnswer(answer)
      await scene.outlive(long.lockDelayMs)
      await holdsByNow(store, scene.ticket({ patienceMs: 0 }), { scene, closedMs: long.lockDelayMs })
    },
  },
  {
    name: 'no lock-delay follows a release, nor an offer that nobody took or that was evicted',
    async play(scene) {
      const store = await scene.view()
      const [released, dead, evicted, next] = [
        scene.ticket({ lockDelayMs: LONG }),
        scene.ticket({ lockDelayMs: LONG, acceptMs: scene.span(80) }),
        scene.ticket({ lockDelayMs: LONG }),
        scene.ticket(),
      ]
      heldFence(await store.acquire(released))
      for (const ticket of [dead, evicted, next]) queuedAnswer(await store.acquire(ticket))
      const watch = scene.stopwatch()
      await store.release(releaseOf(released))
      const offered = ids(await scene.holders(store))
      watch.within(dead.acceptMs)
      assert.deepEqual(offered, [dead.id])
      await scene.outlive(dead.acceptMs)
      queuedAnswer(await store.acquire(next))
      assert.deepEqual(ids(await scene.holders(store)), [evicted.id])
      await store.evict({ key: evicted.key, id: evicted.id, reason: 'stuck' })
      heldFence(await store.acquire(next))
    },
  },
]

/** The key was closed for `closedMs`, and that time is over. */
async function holdsByNow(
  store: Store,
  ticket: Ticket,
  { scene, closedMs }: { readonly scene: Scene; readonly closedMs: number },
): Promise<void> {
  const answer = await store.acquire(ticket)
  const mayBeLate = !scene.exactOrder || scene.expiresUnasked
  if (answer.tag === 'held' || !mayBeLate) return void heldFence(answer)
  // On a busy machine another server may have seen the end late, or the store may still be clearing. A delay that began with this call would
  // have all its time left.
  const leftMs =
    answer.tag === 'busy' ? answer.retryMs : answer.tag === 'queued' ? answer.askAgainMs : closedMs
  if (leftMs >= closedMs / 2) throw new TooSlow(`The key is closed for ${leftMs} ms more`)
  await scene.outlive(leftMs)
  const again = await store.acquire(ticket)
  if (again.tag === 'busy' || again.tag === 'queued') throw new TooSlow('The key was closed for too long')
  heldFence(again)
}
