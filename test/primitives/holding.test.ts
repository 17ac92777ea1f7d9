import { describe, expect, test } from 'vitest'
import { outcomeOf, scene } from '../engine/scene.ts'

const TTL = 30_000

describe('minHold', () => {
  test('keeps the key taken until it has passed, although the work was done sooner', async () => {
    const { clock, locks, other, rooms } = scene()
    await locks.withLock('tick', { minHold: 5000 }, () => 'done')
    expect(await rooms()).toMatchObject([{ holders: [{ state: 'leaving' }] }])
    const from = clock.monotonicMs()
    expect(await other.locks.tryAcquire('tick')).toBeNull()
    const lease = await clock.until(other.locks.acquire('tick'))
    expect(clock.monotonicMs() - from).toBeGreaterThanOrEqual(4990)
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(5020)
    await lease.release()
  })

  test('does not make the release wait, and the process needs no timer for it', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('tick', { minHold: '1m' })
    expect(await outcomeOf(lease.release())).toEqual({ value: undefined })
    expect(clock.timers.keepingAlive).toBe(0)
    await clock.advance(60_000)
  })

  test('longer than the ttl is kept, too', async () => {
    const { clock, locks, other } = scene()
    await locks.withLock('tick', { ttl: 1000, minHold: 20_000 }, () => 'done')
    await clock.advance(15_000)
    expect(await other.locks.tryAcquire('tick')).toBeNull()
    await clock.advance(5001)
    await (await other.locks.tryAcquire('tick'))?.release()
  })

  test('changes nothing for work that took longer', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('tick', { minHold: 5000 })
    await clock.advance(6000)
    await lease.release()
    const next = await other.locks.tryAcquire('tick')
    expect(next).not.toBeNull()
    await next?.release()
  })
})

describe('lockDelay', () => {
  test('keeps all tickets out for a while after a lease expired', async () => {
    const { clock, locks, other } = scene()
    await locks.acquire('k', { ttl: TTL, renew: false, lockDelay: 10_000 })
    const next = other.locks.acquire('k', { wait: '2m' })
    const from = clock.monotonicMs()
    const lease = await clock.until(next)
    expect(clock.monotonicMs() - from).toBeGreaterThanOrEqual(TTL + 10_000)
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(TTL + 10_100)
    await lease.release()
  })

  test('does not come after a release', async () => {
    const { locks, other } = scene()
    await locks.withLock('k', { lockDelay: '1m' }, () => {})
    const next = await other.locks.tryAcquire('k')
    expect(next).not.toBeNull()
    await next?.release()
  })

  test('comes after an eviction, since the holder may still be writing', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { lockDelay: 5000 })
    await other.locks.evict('k', lease.id, { reason: 'stuck' })
    expect(await other.locks.tryAcquire('k')).toBeNull()
    await clock.advance(5000)
    const next = await other.locks.tryAcquire('k')
    expect(next).not.toBeNull()
    await next?.release()
    await lease.release()
    await clock.advance(TTL)
  })
})
