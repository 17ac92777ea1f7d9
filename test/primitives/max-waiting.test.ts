import { expect, test } from 'vitest'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { errorOf, outcomeOf, scene } from '../engine/scene.ts'

test('as many wait as may, and the next one is told so at once and leaves nothing behind', async () => {
  const { clock, locks, other, rooms } = scene()
  const events: object[] = []
  for (const name of ['queued', 'withdrawn'] as const) locks.on(name, (event) => events.push(event))
  const held = await other.locks.acquire('k')
  const waiting = [1, 2].map(() => locks.acquire('k', { maxWaiting: 2 }))
  await clock.advance(10)
  expect(await rooms()).toMatchObject([{ queue: { length: 2 } }])
  const refused = await errorOf(locks.acquire('k', { maxWaiting: 2 }))
  expect(refused).toMatchObject({ name: 'QueueFullError', code: 'queue-full', key: 'k' })
  expect(refused.message).toBe(
    '"k" is held, and 2 calls wait for it already (`maxWaiting`: 2). Try again later, or go on without it.',
  )
  expect(events).toMatchObject([
    { event: 'queued', ahead: 0 },
    { event: 'queued', ahead: 1 },
    { event: 'withdrawn', reason: 'full', error: refused },
  ])
  await clock.advance(10)
  expect(await rooms()).toMatchObject([{ queue: { length: 2 } }])
  await held.release()
  for (const one of waiting) await (await clock.until(one)).release()
})

test('a call without the option waits behind the others, and a free key is never refused', async () => {
  const { clock, locks, other } = scene()
  const held = await other.locks.acquire('k', { maxWaiting: 1 })
  const first = locks.acquire('k', { maxWaiting: 1 })
  const second = locks.acquire('k')
  await clock.advance(10)
  expect(await outcomeOf(second)).toBe('pending')
  await held.release()
  await (await clock.until(first)).release()
  await (await clock.until(second)).release()
})

test('a waiter that the store has forgotten joins the queue again only where there is room', async () => {
  const { clock, locks, other, store } = scene()
  const held = await other.locks.acquire('k', { ttl: '5m' })
  const forgotten = locks.acquire('k', { wait: '5m', maxWaiting: 1 })
  await clock.advance(10)
  store.always('fail')
  await clock.advance(20_000)
  const later = other.locks.acquire('k', { wait: '5m' })
  await clock.advance(10)
  store.always('answer')
  expect(await clock.until(errorOf(forgotten))).toMatchObject({ code: 'queue-full' })
  await held.release()
  await (await clock.until(later)).release()
})

test('each of several keys has the bound, and nothing stays held after a refusal', async () => {
  const { clock, locks, other } = scene()
  const held = await other.locks.acquire('b')
  const waiting = locks.acquire('b')
  await clock.advance(10)
  const refused = clock.until(errorOf(locks.withLocks(['a', 'b'], { maxWaiting: 1 }, () => {})))
  expect(await refused).toMatchObject({ code: 'queue-full', key: 'b' })
  expect(await locks.peek('a')).toBeNull()
  await held.release()
  await (await clock.until(waiting)).release()
})

test('it is set for all calls where locks are made, but not for those who have to wait', async () => {
  const locks = createLocks(memoryStore(), { maxWaiting: 1 })
  const [first, second] = [locks.election('k'), locks.election('k')]
  const terms: number[] = []
  await Promise.all([1, 2, 3].map((n) => (n === 1 ? first : second).campaign(() => terms.push(n))))
  expect(terms).toEqual([1, 2, 3])
  const held = await locks.acquire('k')
  const waiting = locks.acquire('k')
  expect(await errorOf(locks.acquire('k'))).toMatchObject({ code: 'queue-full' })
  expect(await outcomeOf(locks.tryAcquire('k'))).toEqual({ value: null })
  await held.release()
  await (await waiting).release()
  await locks.close()
})

test.each([0, -1, 1.5, Number.NaN, '2', null])('a bound of %s is refused', async (maxWaiting) => {
  const { locks, store } = scene()
  expect(await errorOf(locks.acquire('k', { maxWaiting: maxWaiting as number }))).toMatchObject({
    code: 'invalid-argument',
    message: expect.stringMatching(
      /^Expected `maxWaiting` to be a whole number from 1 on, or Infinity, got /,
    ),
  })
  expect(store.sent).toEqual([])
})
