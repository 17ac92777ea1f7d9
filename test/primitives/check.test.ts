import { expect, test } from 'vitest'
import { errorOf, outcomeOf, scene } from '../engine/scene.ts'

test('a check takes a lock and releases it, beside the checks of others, and tells no event', async () => {
  const { clock, locks, other, store } = scene()
  const events: string[] = []
  for (const name of ['requested', 'acquired', 'released'] as const) locks.on(name, () => events.push(name))
  await clock.until(Promise.all([locks.check(), other.locks.check(), locks.check()]))
  expect(store.sent.map(({ verb }) => verb).sort()).toEqual(['acquire', 'acquire', 'release', 'release'])
  expect(events).toEqual([])
})

test('a check rejects within its limit, and not before', async () => {
  const { clock, locks, store } = scene()
  store.always('lose request')
  const check = locks.check({ storeTimeout: '1s' })
  await clock.advance(950)
  expect(await outcomeOf(check)).toBe('pending')
  expect(await clock.until(errorOf(check), { withinMs: 100 })).toMatchObject({ code: 'store-unavailable' })
  store.always('answer')
  await clock.advance(60_000)
})

test('a release without an answer does not make a check any longer', async () => {
  const { clock, locks, store } = scene()
  store.always('lose reply', ['release'])
  const beganAt = clock.monotonicMs()
  await clock.until(locks.check({ storeTimeout: '300ms' }))
  expect(clock.monotonicMs() - beganAt).toBeLessThanOrEqual(310)
  store.always('answer')
  await clock.advance(60_000)
})

test('a check passes although somebody has taken its key, and then keeps no process alive', async () => {
  const { clock, locks, other } = scene()
  const taken = await other.locks.acquire('holdfast#check', { ttl: '1m' })
  await locks.check()
  expect(clock.timers.keepingAlive).toBe(0)
  await taken.release()
})

test('a check says what the store refuses, and that the locks are closed', async () => {
  const { clock, locks, store } = scene()
  store.always('refuse')
  expect(await errorOf(locks.check())).toMatchObject({ code: 'store-refused' })
  store.always('answer')
  await clock.until(locks.close())
  expect(await errorOf(locks.check())).toMatchObject({ code: 'closed' })
})
