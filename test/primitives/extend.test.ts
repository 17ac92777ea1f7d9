import { describe, expect, test } from 'vitest'
import { errorOf, scene } from '../engine/scene.ts'
import { Letter } from '../engine/scripted-store.ts'

test.each(['released', 'closed'] as const)(
  'an extend that hangs while the lease is %s says so',
  async (how) => {
    const { clock, locks, store } = scene()
    const lease = await locks.acquire('k', { ttl: '10s' })
    store.next('renew', 'lose request')
    const extending = errorOf(lease.extend())
    await clock.until(how === 'released' ? lease.release() : locks.close())
    expect(await clock.until(extending)).toMatchObject({ code: how === 'released' ? 'lease-lost' : 'closed' })
  },
)

test('an extend of a lease that is evicted during its pause says so', async () => {
  const { clock, locks, store, other } = scene()
  const lease = await locks.acquire('k', { ttl: '10s' })
  const { signal } = lease
  store.next('renew', 'fail')
  const extending = errorOf(lease.extend())
  await clock.advance(1)
  await other.locks.evict('k', lease.id, { reason: 'stuck' })
  expect(await clock.until(extending)).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
  expect(signal.aborted).toBe(true)
})

test.each(['extend', 'adopt'] as const)(
  'a StoreError of %s names the key, as the one of acquire does',
  async (how) => {
    const { clock, locks, store, other } = scene()
    const lease = await locks.acquire('k', { ttl: '10s', renew: false })
    store.always('lose request', ['renew'])
    const failing = how === 'extend' ? lease.extend() : locks.adopt(lease.toJSON())
    const error = await clock.until(errorOf(failing))
    await lease.release()
    await other.locks.close()
    expect(error).toMatchObject({ code: 'store-unavailable', key: 'k' })
  },
)

describe('an extend', () => {
  test('of a store that fails at once is repeated with growing pauses, and does not flood it', async () => {
    const { clock, locks, store } = scene()
    const lease = await locks.acquire('k', { ttl: '1h', renew: false })
    const askedAt: number[] = []
    const renew = store.renew.bind(store)
    store.renew = (tickets) => {
      askedAt.push(clock.monotonicMs())
      return renew(tickets)
    }
    store.always('fail', ['renew'])
    const extending = lease.extend()
    await clock.advance(10_000)
    const pauses = askedAt.slice(1).map((at, index) => at - (askedAt[index] ?? 0))
    expect(pauses.slice(0, 5)).toEqual([...pauses.slice(0, 5)].sort((one, other) => one - other))
    expect(Math.max(...pauses)).toBeGreaterThanOrEqual(500)
    expect(pauses.length).toBeLessThanOrEqual(20)
    store.always('answer')
    await clock.until(extending)
    await lease.release()
  })

  test('that the store refuses leaves the ttl as it was, for the renewals to come, too', async () => {
    const { clock, locks, store } = scene()
    const lease = await locks.acquire('k', { ttl: '10s' })
    store.next('renew', 'refuse')
    expect(await errorOf(lease.extend('1h'))).toMatchObject({ code: 'store-refused' })
    expect(lease.toJSON().ttlMs).toBe(10_000)
    expect(lease.state).toBe('held')
    await clock.advance(30_000)
    expect(lease.state).toBe('held')
    const renewals = store.sent.filter(({ verb }) => verb === 'renew').slice(1)
    expect(renewals.length).toBeGreaterThanOrEqual(7)
    expect(new Set(renewals.map(({ tickets }) => tickets[0]?.ttlMs))).toEqual(new Set([10_000]))
    await lease.release()
  })

  test('by more than twice the ttl is no jeopardy while its answer is on the way', async () => {
    const { clock, locks, store } = scene()
    const lease = await locks.acquire('k', { ttl: '10s' })
    const slow = new Letter()
    store.next('renew', slow)
    store.always('lose request', ['renew'])
    const extending = lease.extend('1h')
    await clock.advance(1000)
    expect(lease.state).toBe('held')
    store.always('answer')
    slow.arrive().reply()
    await extending
    expect(lease.state).toBe('held')
    expect(lease.toJSON().ttlMs).toBe(3_600_000)
    await lease.release()
  })
})
