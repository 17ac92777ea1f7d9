import assert from 'node:assert/strict'
import { type Ticket, UNLIMITED } from '../contract/store.ts'
import {
  allRooms,
  assertGone,
  busyAnswer,
  type ConformanceScript,
  heldFence,
  ids,
  LONG,
  queuedAnswer,
  releaseOf,
} from './conformance-scene.ts'

/** `inspect` and `evict`, names that are hard to store, and `close`. */
export const roomCases: readonly ConformanceScript[] = [
  {
    name: 'inspect shows who holds and who waits, with everything it knows of them',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const reader = scene.ticket({
        limit: UNLIMITED,
        owner: '{"host":"α-1","pid":7,"label":"\\"quoted\\""}',
      })
      const second = scene.ticket({ units: 2, limit: scene.several(7), ttlMs: LONG / 2 })
      const waiter = scene.ticket({ ...scene.all(6), owner: '{}' })
      const fences = [heldFence(await one.acquire(reader)), heldFence(await one.acquire(second))]
      queuedAnswer(await one.acquire(waiter))
      const room = await scene.room(other)
      assert.ok(room)
      assert.deepEqual([room.key, room.closedMs], [scene.key, 0])
      assert.deepEqual(
        room.holders.map(({ heldMs, remainingMs, ...facts }) => facts),
        [reader, second].map(({ id, units, limit, owner }, index) => ({
          id,
          units,
          limit,
          fence: fences[index],
          owner,
          state: 'held',
        })),
      )
      for (const [index, ttlMs] of [LONG, LONG / 2].entries()) {
        const { heldMs = -1, remainingMs = -1 } = room.holders[index] ?? {}
        assert.ok(heldMs >= 0 && heldMs < LONG / 4, `heldMs ${heldMs}`)
        assert.ok(remainingMs > ttlMs / 2 && remainingMs <= ttlMs, `remainingMs ${remainingMs}`)
      }
      const [waiting, ...others] = room.queue
      assert.ok(waiting)
      const { waitedMs, ...facts } = waiting
      assert.deepEqual(facts, { id: waiter.id, ...scene.all(6), owner: '{}' })
      assert.ok(waitedMs >= 0 && waitedMs < LONG / 4, `waitedMs ${waitedMs}`)
      assert.deepEqual(others, [])
    },
  },
  {
    name: 'inspect lists every room under a prefix once, page by page',
    async play(scene) {
      const store = await scene.view()
      const keys = Array.from({ length: 11 }, (_, index) => `${scene.prefix}page:${index}`)
      for (const key of keys) heldFence(await store.acquire(scene.ticket({ key })))
      heldFence(await store.acquire(scene.ticket({ key: `${scene.prefix}other` })))
      for (const count of [1, 3, 11, 100]) {
        const seen = (await allRooms(store, `${scene.prefix}page:`, count)).map((room) => room.key)
        assert.deepEqual([...seen].sort(), [...keys].sort(), `pages of ${count}`)
      }
      const order = (await allRooms(store, `${scene.prefix}page:`, 3)).map((room) => room.key)
      assert.deepEqual(
        (await allRooms(store, `${scene.prefix}page:`, 5)).map((room) => room.key),
        order,
      )
      assert.deepEqual(await allRooms(store, `${scene.prefix}none`), [])
      assert.equal((await allRooms(store, scene.prefix)).length, 12)
    },
  },
  {
    name: 'inspect begins with the room whose key is the prefix itself, and shows it once',
    async play(scene) {
      const store = await scene.view()
      const key = `${scene.prefix}exact`
      const others = Array.from({ length: 30 }, (_, index) => `${key}:${index}`)
      for (const other of [...others, `${key} `, `${key}\t`])
        heldFence(await store.acquire(scene.ticket({ key: other })))
      const exact = scene.ticket({ key })
      heldFence(await store.acquire(exact))
      for (const count of [1, 2, 100]) {
        const { rooms } = await store.inspect({ prefix: key, cursor: undefined, count })
        assert.equal(rooms[0]?.key, key, `pages of ${count}`)
        const seen = (await allRooms(store, key, count)).map((room) => room.key)
        assert.deepEqual([seen.length, new Set(seen).size], [33, 33], `pages of ${count}`)
      }
      await store.release(releaseOf(exact))
      assert.ok((await allRooms(store, key)).every((room) => room.key !== key))
    },
  },
  {
    name: 'inspect shows one room alone where only that is asked for, and none where there is none',
    async play(scene) {
      const store = await scene.view()
      const key = `${scene.prefix}exact`
      const look = () => store.inspect({ prefix: key, exact: true, cursor: undefined, count: 1 })
      for (const other of [`${key}:1`, `${key} `])
        heldFence(await store.acquire(scene.ticket({ key: other })))
      assert.deepEqual(await look(), { rooms: [], next: undefined })
      const ticket = scene.ticket({ key })
      heldFence(await store.acquire(ticket))
      const { rooms, next } = await look()
      assert.deepEqual([rooms.map((room) => room.key), next], [[key], undefined])
      assert.deepEqual(ids(rooms[0]?.holders ?? []), [ticket.id])
      await store.release(releaseOf(ticket))
      assert.deepEqual(await look(), { rooms: [], next: undefined })
    },
  },
  {
    name: 'inspect changes nothing, even where something has expired',
    needs: 'lazy-expiry',
    async play(scene) {
      const store = await scene.view()
      const [dead, waiter] = [scene.ticket({ ttlMs: scene.span(150) }), scene.ticket()]
      const watch = scene.stopwatch()
      heldFence(await store.acquire(dead))
      const answer = await store.acquire(waiter)
      watch.within(dead.ttlMs)
      queuedAnswer(answer)
      await scene.outlive(dead.ttlMs)
      for (let look = 0; look < 2; look += 1) {
        assert.deepEqual(ids(await scene.queue(store)), [waiter.id])
        assert.deepEqual(await scene.holders(store), [])
      }
      heldFence(await store.acquire(waiter))
    },
  },
  {
    name: 'evict removes one holder, tells it the reason, and lets the next one in',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const [holder, next] = [scene.ticket(), scene.ticket()]
      const reason = 'stuck for an hour – said “Ops”\n{"see":"#42"}'
      const fence = heldFence(await one.acquire(holder))
      queuedAnswer(await one.acquire(next))
      assert.deepEqual(await other.evict({ key: holder.key, id: holder.id, reason }), [holder.id])
      assert.deepEqual(await one.renew([holder]), [{ tag: 'gone', evicted: true, reason }])
      assert.deepEqual(await one.acquire(holder), { tag: 'gone', evicted: true, reason })
      assert.deepEqual(await one.release(releaseOf(holder)), { was: 'unknown' })
      assert.ok(heldFence(await one.acquire(next)) > fence)
    },
  },
  {
    name: 'evict of those that wait leaves a holder and an offer alone, also when they waited until just now',
    async play(scene) {
      const store = await scene.view()
      const [holder, gone, next] = [scene.ticket(), scene.ticket(), scene.ticket({ minHoldMs: 1 })]
      heldFence(await store.acquire(holder))
      for (const ticket of [gone, next]) queuedAnswer(await store.acquire(ticket))
      const evict = async ({ key, id }: Ticket) =>
        store.evict({ key, id, reason: 'too late', onlyIfWaiting: true })
      assert.deepEqual(await evict(holder), [])
      assert.deepEqual(await evict(gone), [gone.id])
      assert.deepEqual(await store.acquire(gone), { tag: 'gone', evicted: true, reason: 'too late' })
      heldFence(await store.acquire(holder))
      await store.release(releaseOf(holder))
      for (let again = 0; again < 2; again += 1) {
        assert.deepEqual(await evict(next), [])
        heldFence(await store.acquire(next))
      }
    },
  },
  {
    name: 'evict without an id removes everybody, holders and waiters',
    async play(scene) {
      const store = await scene.view()
      const limit = scene.several(5)
      const readers = [scene.ticket({ limit }), scene.ticket({ limit })]
      const waiters = [scene.ticket(), scene.ticket({ limit })]
      for (const ticket of readers) heldFence(await store.acquire(ticket))
      for (const ticket of waiters) queuedAnswer(await store.acquire(ticket))
      const everybody = [...readers, ...waiters]
      const evicted = await store.evict({ key: scene.key, id: undefined, reason: 'reset' })
      assert.deepEqual([...evicted].sort(), [...ids(everybody)].sort())
      assert.equal(await scene.room(store), undefined)
      for (const ticket of everybody)
        assert.deepEqual(await store.acquire(ticket), { tag: 'gone', evicted: true, reason: 'reset' })
      heldFence(await store.acquire(scene.ticket({ patienceMs: 0 })))
    },
  },
  {
    name: 'evict of somebody who is not there removes nobody',
    async play(scene) {
      const store = await scene.view()
      assert.deepEqual(await store.evict({ key: scene.key, id: undefined, reason: 'none' }), [])
      assert.deepEqual(await store.evict({ key: scene.key, id: 'nobody', reason: 'none' }), [])
      const holder = scene.ticket()
      heldFence(await store.acquire(holder))
      assert.deepEqual(await store.evict({ key: scene.key, id: 'nobody', reason: 'none' }), [])
      assert.deepEqual(ids(await scene.holders(store)), [holder.id])
    },
  },
  {
    name: 'any text is a key of its own: other scripts, spaces, braces, globs, quotes, long and internal-looking names',
    async play(scene) {
      const store = await scene.view()
      const keys = HOSTILE.map((name) => scene.prefix + name)
      const tickets = keys.map((key) => scene.ticket({ key }))
      for (const ticket of tickets) heldFence(await store.acquire(ticket))
      for (const { key } of tickets) {
        busyAnswer(await store.acquire(scene.ticket({ key, patienceMs: 0 })))
        const literal = keys.filter((other) => other.startsWith(key))
        const listed = (await allRooms(store, key)).map((room) => room.key)
        assert.deepEqual([...listed].sort(), literal.sort(), `the prefix is taken literally: ${key}`)
      }
      const answers = await store.renew(tickets)
      assert.ok(answers.every((answer) => answer.tag === 'held'))
      for (const ticket of tickets) {
        const waiter = scene.ticket({ key: ticket.key })
        queuedAnswer(await store.acquire(waiter))
        await store.release(releaseOf(ticket))
        heldFence(await store.acquire(waiter))
        assert.deepEqual(await store.evict({ key: waiter.key, id: waiter.id, reason: waiter.key }), [
          waiter.id,
        ])
        assert.deepEqual(await store.acquire(waiter), { tag: 'gone', evicted: true, reason: waiter.key })
      }
    },
  },
  {
    name: 'names without a prefix are no different',
    async play(scene) {
      const store = await scene.view()
      for (const key of [`{${scene.prefix}}`, `}${scene.prefix}{`, `*${scene.prefix}`, ` ${scene.prefix} `]) {
        const [holder, waiter] = [scene.ticket({ key }), scene.ticket({ key })]
        heldFence(await store.acquire(holder))
        queuedAnswer(await store.acquire(waiter))
        assert.deepEqual(ids(await scene.holders(store, key)), [holder.id])
        assert.deepEqual(
          await allRooms(store, scene.prefix),
          [],
          'a prefix is only looked for at the beginning',
        )
        await store.release(releaseOf(holder))
        heldFence(await store.acquire(waiter))
        await store.release(releaseOf(waiter))
        assert.equal(await scene.room(store, key), undefined)
      }
    },
  },
  {
    name: 'closing one view twice is harmless and releases nothing',
    async play(scene) {
      const [one, other] = [await scene.view(), await scene.view()]
      const [holder, waiter] = [scene.ticket(), scene.ticket()]
      heldFence(await one.acquire(holder))
      queuedAnswer(await one.acquire(waiter))
      await one.close()
      await one.close()
      assert.deepEqual(ids(await scene.holders(other)), [holder.id])
      assert.deepEqual(ids(await scene.queue(other)), [waiter.id])
      assert.deepEqual(await other.release(releaseOf(holder)), { was: 'held' })
      heldFence(await other.acquire(waiter))
    },
  },
  {
    name: 'keys that were taken and released leave nothing behind',
    async play(scene) {
      const store = await scene.view()
      for (let round = 0; round < 200; round += 1) {
        const key = `${scene.key}:${round}`
        const [holder, waiter] = [scene.ticket({ key }), scene.ticket({ key })]
        heldFence(await store.acquire(holder))
        queuedAnswer(await store.acquire(waiter))
        await store.renew([holder, waiter])
        await store.release(releaseOf(holder))
        heldFence(await store.acquire(waiter))
        await store.release(releaseOf(waiter))
      }
      assert.deepEqual(await allRooms(store, scene.prefix), [])
      assert.deepEqual((await scene.leftovers?.(scene.prefix)) ?? [], [])
    },
  },
  {
    name: 'a ticket that came and went may come again after a plain release, but not after a cancel',
    async play(scene) {
      const store = await scene.view()
      const ticket = scene.ticket()
      const fence = heldFence(await store.acquire(ticket))
      await store.release(releaseOf(ticket))
      assert.ok(heldFence(await store.acquire(ticket)) > fence)
      await store.release({ key: ticket.key, id: ticket.id, cancel: true })
      assertGone(await store.acquire(ticket))
    },
  },
]

const HOSTILE: readonly string[] = [
  'plain',
  'plain:more',
  'PLAIN',
  'plain ',
  ' plain',
  'ключ-鍵-🔑',
  'caf\u00e9',
  'cafe\u0301',
  'two\nlines\ttab\r',
  '{tag}',
  '{a}{b}',
  '}{',
  '{}',
  '{',
  '*',
  'a*',
  'ab',
  '?',
  '[a-z]',
  '\\',
  '\\*',
  '%',
  '_',
  '__proto__',
  'constructor',
  "'; DROP TABLE rooms; --",
  '"quoted"',
  '$1',
  ':',
  ':h',
  ':q',
  'plain:fence',
  'plain:queue',
  'plain:holders',
  'a,b',
  'a/b/../c',
  '0',
  '-1',
  '1e3',
  'null',
  // With the prefix nearly the 1,024 characters that a key may have. Those of the second key take 3 bytes each.
  'x'.repeat(970),
  `${'x'.repeat(970)}y`,
  '鍵'.repeat(970),
]
