import { expect, test } from 'vitest'
import { errorOf, outcomeOf, scene } from '../engine/scene.ts'

test('it resolves at once where the key is free, and takes nothing', async () => {
  const { locks, store, rooms } = scene()
  const before = store.sent.length
  await locks.waitUntilFree('k')
  expect(store.sent.slice(before).map(({ verb }) => verb)).toEqual(['inspect'])
  expect(await rooms()).toEqual([])
})

test('it resolves once the holder is gone, within a second, and its looks become rarer', async () => {
  const { clock, locks, store, other } = scene()
  const held = await other.locks.acquire('k')
  const before = store.sent.length
  const free = locks.waitUntilFree('k', { wait: '1h' })
  await clock.advance(60_000)
  expect(await outcomeOf(free)).toBe('pending')
  const looks = store.sent.length - before
  expect([looks > 50, looks < 80]).toEqual([true, true])
  await held.release()
  await clock.advance(1000)
  expect(await outcomeOf(free)).toEqual({ value: undefined })
})

test('it waits for those in the queue, too, and holds up none of them', async () => {
  const { clock, locks, other, rooms } = scene()
  const first = await other.locks.acquire('k')
  const second = other.locks.acquire('k')
  const free = locks.waitUntilFree('k')
  await clock.advance(2000)
  expect((await rooms())[0]?.queue).toHaveLength(1)
  await first.release()
  const next = await clock.until(second)
  await clock.advance(2000)
  expect(await outcomeOf(free)).toBe('pending')
  await next.release()
  await clock.until(free)
})

test('it waits until a lock-delay is over', async () => {
  const { clock, locks, other } = scene()
  await other.locks.acquire('k', { ttl: 1000, renew: false, lockDelay: 5000 })
  const free = locks.waitUntilFree('k')
  await clock.advance(5000)
  expect(await outcomeOf(free)).toBe('pending')
  await clock.advance(2000)
  expect(await outcomeOf(free)).toEqual({ value: undefined })
})

test('it gives up after `wait`, and says who holds the key', async () => {
  const { clock, locks, other } = scene()
  const held = await other.locks.acquire('k')
  const free = errorOf(locks.waitUntilFree('k', { wait: '2s' }))
  const error = await clock.until(free)
  expect(error).toMatchObject({ code: 'acquire-timeout', key: 'k', waitedMs: 2000, ahead: 0 })
  expect(error.message).toBe(
    '"k" was not free within 2000 ms. Wait longer with `wait`. The key has been held for 2.0 s by ?:? (test).',
  )
  const readers = await Promise.all([1, 2].map(() => other.locks.readWrite('r').acquireRead()))
  const once = await errorOf(locks.waitUntilFree('r', { wait: 0 }))
  expect(once.message).toContain('by ?:? (test) and 1 other.')
  await Promise.all([held, ...readers].map((lease) => lease.release()))
})

test('it takes a store that does not answer for no answer, and goes on when it is back', async () => {
  const { clock, locks, store } = scene()
  store.always('fail')
  const free = locks.waitUntilFree('k', { wait: '1m' })
  await clock.advance(10_000)
  expect(await outcomeOf(free)).toBe('pending')
  store.always('answer')
  await clock.until(free)
  store.always('lose reply')
  const silent = errorOf(locks.waitUntilFree('k', { wait: 100 }))
  expect(await clock.until(silent)).toMatchObject({ code: 'store-unavailable', key: 'k' })
  store.always('answer')
})

test('a refusal of the store ends it', async () => {
  const { locks, store } = scene()
  store.always('refuse')
  expect(await errorOf(locks.waitUntilFree('k'))).toMatchObject({ code: 'store-refused' })
  store.always('answer')
})

test('the signal ends it at once, also while the store does not answer', async () => {
  const { clock, locks, store, other } = scene()
  const held = await other.locks.acquire('k')
  for (const fate of ['answer', 'lose reply'] as const) {
    store.always(fate)
    const end = new AbortController()
    const free = locks.waitUntilFree('k', { signal: end.signal })
    await clock.advance(100)
    const reason = new Error('enough')
    end.abort(reason)
    expect(await outcomeOf(free)).toEqual({ error: reason })
    // Nothing keeps the process alive any more.
    expect(clock.timers.keepingAlive).toBe(0)
    expect(await outcomeOf(locks.waitUntilFree('k', { signal: end.signal }))).toEqual({ error: reason })
    await clock.advance(5000)
  }
  store.always('answer')
  await held.release()
})

test('closing the locks ends it at once', async () => {
  const { clock, locks, other } = scene()
  const held = await other.locks.acquire('k')
  const free = locks.waitUntilFree('k', { wait: Number.POSITIVE_INFINITY })
  await clock.advance(10_000)
  const closed = locks.close()
  expect(await outcomeOf(free)).toMatchObject({
    error: {
      code: 'closed',
      message: 'These locks were closed while "k" was waited for. Let all work end before close().',
    },
  })
  await clock.until(closed)
  expect(await errorOf(locks.waitUntilFree('k'))).toMatchObject({ code: 'closed' })
  await held.release()
})
