import { describe, expect, test } from 'vitest'
import { errorOf, outcomeOf, scene } from './scene.ts'
import { Letter } from './scripted-store.ts'

// The store answers after 20 ms.
describe('a wait that is shorter than a round trip', () => {
  test.each([0, 1, 10])('of %i ms gets a key that is free', async (wait) => {
    const { clock, store, locks } = scene()
    const slow = new Letter()
    store.next('acquire', slow)
    const acquiring = locks.acquire('k', { wait })
    await clock.advance(20)
    slow.arrive().reply()
    expect(await outcomeOf(acquiring)).toMatchObject({ value: { state: 'held' } })
    await (await acquiring).release()
  })

  test.each([0, 1, 10])('of %i ms is told that the key is taken, and gives its place up', async (wait) => {
    const { clock, store, locks, other, rooms } = scene()
    const held = await other.locks.acquire('k')
    const slow = new Letter()
    store.next('acquire', slow)
    const acquiring = locks.acquire('k', { wait })
    await clock.advance(20)
    slow.arrive().reply()
    expect(await outcomeOf(acquiring)).toMatchObject({ error: { code: 'acquire-timeout', key: 'k' } })
    expect(store.count('acquire')).toBe(1)
    expect(await rooms()).toMatchObject([{ holders: [{ id: held.id }], queue: [] }])
    await held.release()
  })

  test('ends all the same when the store stays silent', async () => {
    const { clock, store, locks } = scene()
    store.always('lose request', ['acquire'])
    const failing = errorOf(locks.acquire('k', { wait: 10 }))
    expect(await clock.until(failing, { withinMs: 1000 })).toMatchObject({ code: 'store-unavailable' })
  })
})
