import { expect, test } from 'vitest'
import { errorOf, outcomeOf, scene } from '../engine/scene.ts'

test('a try waits five seconds for a silent store, or as long as it is told', async () => {
  const { clock, locks, store } = scene()
  store.always('lose request')
  for (const [storeTimeout, waitedMs] of [
    [undefined, 5000],
    ['200ms', 200],
    ['8s', 8000],
  ] as const) {
    const tried = locks.tryAcquire('k', { storeTimeout })
    await clock.advance(waitedMs - 20)
    expect(await outcomeOf(tried)).toBe('pending')
    const error = await clock.until(errorOf(tried), { withinMs: 100 })
    expect(error).toMatchObject({ code: 'store-unavailable', key: 'k' })
    expect(error.message).toContain('did not answer within')
  }
  store.always('answer')
  await clock.advance(60_000)
})

test('a call that waits for the key for an hour does not wait as long for the store', async () => {
  const { clock, locks, store } = scene()
  store.always('fail')
  const waiting = errorOf(locks.acquire('k', { wait: '1h', storeTimeout: '3s' }))
  const beganAt = clock.monotonicMs()
  const error = await clock.until(waiting)
  expect(error).toMatchObject({ code: 'store-unavailable', cause: expect.any(Error) })
  expect(error.message).toBe('"k" was not acquired within 3000 ms. The connection was closed.')
  expect(clock.monotonicMs() - beganAt).toBeLessThan(3100)
  store.always('answer')
  await clock.advance(60_000)
})

test('a call that stands in the queue goes on waiting while the store answers, and gives up when it falls silent', async () => {
  const { clock, locks, store, other } = scene()
  const held = await other.locks.acquire('k', { ttl: '1h' })
  const waiting = locks.acquire('k', { wait: '1h', storeTimeout: '300ms' })
  await clock.advance(60_000)
  expect(await outcomeOf(waiting)).toBe('pending')
  store.always('lose request')
  const error = await clock.until(errorOf(waiting), { withinMs: 10_000 })
  expect(error).toMatchObject({ code: 'store-unavailable' })
  expect(error.message).toContain('did not answer within 300 ms')
  store.always('answer')
  await clock.advance(60_000)
  await held.release()
})

test('it bounds calls for several keys, once, waitUntilFree and adopt as well', async () => {
  const { clock, locks, store } = scene({ takesAll: true })
  const lease = await locks.acquire('adopted', { ttl: '1h' })
  const json = lease.detach()
  store.always('lose request')
  const terms = { storeTimeout: '200ms' }
  const calls: Record<string, () => Promise<unknown>> = {
    several: () => locks.withLocks(['a', 'b'], { wait: '1h', ...terms }, () => {}),
    'try several': () => locks.tryAcquireAll(['a', 'b'], terms),
    once: () => locks.once('k', { remember: '1m', ...terms }, () => {}),
    free: () => locks.waitUntilFree('k', { wait: '1h', ...terms }),
    adopt: () => locks.adopt(json, terms),
    check: () => locks.check(terms),
  }
  for (const [name, call] of Object.entries(calls)) {
    const beganAt = clock.monotonicMs()
    const error = await clock.until(errorOf(call()))
    expect([name, error['code']]).toEqual([name, 'store-unavailable'])
    expect([name, clock.monotonicMs() - beganAt < 1000]).toEqual([name, true])
  }
  store.always('answer')
  await clock.advance(60_000)
  await (await locks.adopt(json)).release()
})

test('a try for several keys does not wait for the store again to give back what it has taken', async () => {
  const { clock, locks, store } = scene()
  store.next('acquire', 'answer', 'lose request')
  store.always('lose request', ['acquire', 'release'])
  const beganAt = clock.monotonicMs()
  const tried = errorOf(locks.tryAcquireAll(['a', 'b'], { storeTimeout: '300ms' }))
  expect(await clock.until(tried)).toMatchObject({ code: 'store-unavailable' })
  expect(clock.monotonicMs() - beganAt).toBeLessThan(1000)
  store.always('answer')
  await clock.advance(60_000)
})

test('it bounds the question for a result that was kept', async () => {
  const { clock, locks, store } = scene()
  const once = () =>
    locks.once('k', { remember: '1m', keepResult: true, wait: 0, storeTimeout: '500ms' }, () => 1)
  expect(await once()).toEqual({ ran: true, value: 1 })
  store.always('lose request', ['inspect'])
  const beganAt = clock.monotonicMs()
  expect(await clock.until(errorOf(once()))).toMatchObject({ code: 'store-unavailable' })
  expect(clock.monotonicMs() - beganAt).toBeLessThan(1000)
  store.always('answer')
  expect(await once()).toEqual({ ran: false, value: 1 })
  await clock.advance(120_000)
})
