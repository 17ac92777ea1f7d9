import { describe, expect, onTestFinished, test } from 'vitest'
import { LeaseLostError } from '../../src/errors.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock } from './fake-clock.ts'
import { errorOf, outcomeOf, scene, startProcess } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 10_000
/** A lease may end somewhat early, and never late. */
const EARLIEST = 0.94 * TTL
const HOUR = 3_600_000

describe('the deadline', () => {
  test('is no later than ttl after the acquire was written, however late its reply', async () => {
    const { clock, store, locks } = scene()
    const slow = new Letter()
    store.next('acquire', slow)
    const acquiring = locks.acquire('k', { ttl: TTL, renew: false })
    slow.arrive()
    await clock.advance(1500)
    slow.reply()
    const lease = await acquiring
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL - 1500)
    expect(lease.remainingMs).toBeGreaterThan(EARLIEST - 1500)
    await clock.advance(TTL - 1500)
    expect(lease.state).toBe('lost')
    await lease.release()
  })

  test('is over before the store lets any other ticket in', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    const next = other.locks.acquire('k', { ttl: TTL, wait: '1m' })
    await clock.untilTrue(() => lease.state === 'lost')
    expect(await outcomeOf(next)).toBe('pending')
    const heir = await clock.until(next)
    expect(heir.fence).toBeGreaterThan(lease.fence)
    await heir.release()
  })

  // acquire#1 is slow, acquire#2 is answered, and so is extend('5m'). Then acquire#1 arrives and asks for a term of
  // only 30 s.
  test('is never later than the store’s, also when an older request with a shorter ttl arrives late', async () => {
    const { clock, store, locks, other } = scene()
    const late = new Letter()
    store.next('acquire', late)
    const lease = await clock.until(locks.acquire('k', { ttl: TTL }))
    await lease.extend('5m')
    late.arrive().reply()
    store.always('lose request', ['renew'])
    const next = other.locks.acquire('k', { wait: '10m' })
    const heir = await clock.until(next)
    expect(lease.state).toBe('lost')
    await heir.release()
    await lease.release()
  })

  test('is never later than the store’s, also when a shorter extend arrives after a longer one', async () => {
    const { clock, store, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const late = new Letter()
    store.next('renew', late)
    await clock.until(lease.extend('8s'))
    await lease.extend('5m')
    late.arrive().reply()
    store.always('lose request', ['renew'])
    const heir = await clock.until(other.locks.acquire('k', { wait: '10m' }))
    expect(lease.state).toBe('lost')
    await heir.release()
    await lease.release()
  })

  test('of a grant whose reply took longer than the ttl has passed, so the key is asked for anew', async () => {
    const { clock, store, locks, rooms } = scene()
    const slow = new Letter()
    store.next('acquire', slow, 'lose request')
    const acquiring = locks.acquire('k', { ttl: 1000, wait: '1m' })
    slow.arrive()
    await clock.advance(1100)
    slow.reply()
    expect(await outcomeOf(acquiring)).toBe('pending')
    const lease = await clock.until(acquiring)
    expect(lease.state).toBe('held')
    expect(await rooms()).toMatchObject([{ holders: [{ id: lease.id, fence: lease.fence }] }])
    await lease.release()
  })

  test('moves with a renewal to ttl after the renewal was written, however late its reply', async () => {
    const { clock, store, locks } = scene()
    const slow = new Letter()
    store.next('renew', slow)
    store.always('lose request', ['renew'])
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.untilTrue(() => store.count('renew') === 1)
    const askedAt = clock.monotonicMs()
    slow.arrive()
    await clock.advance(3000)
    slow.reply()
    await clock.advance(0)
    expect(lease.remainingMs).toBeLessThanOrEqual(askedAt + TTL - clock.monotonicMs())
    expect(lease.remainingMs).toBeGreaterThan(askedAt + EARLIEST - clock.monotonicMs())
    await clock.advance(lease.remainingMs)
    expect(lease.state).toBe('lost')
    await lease.release()
  })

  test('is not moved back by a reply that was overtaken by a later one', async () => {
    const { clock, store, locks } = scene()
    const first = new Letter()
    const second = new Letter()
    store.next('renew', first, second)
    store.always('lose request', ['renew'])
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.untilTrue(() => store.count('renew') === 2)
    first.arrive()
    second.arrive().reply()
    await clock.advance(0)
    const known = lease.remainingMs
    first.reply()
    await clock.advance(0)
    expect(lease.remainingMs).toBe(known)
    await lease.release()
  })

  test('moves with every renewal after a shorter extend, also when the wall clock jumps forward', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    await lease.extend('10m')
    await lease.extend(TTL)
    await clock.advance(60_000)
    clock.jumpWall(300_000)
    await clock.advance(600_000)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('is not moved by a renewal that was never answered', async () => {
    const { clock, store, locks } = scene()
    store.always('lose reply', ['renew'])
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.advance(TTL)
    expect(lease.state).toBe('lost')
    await lease.release()
  })

  test('is over for good: a renewal that is answered after it brings nothing back', async () => {
    const { clock, store, locks } = scene()
    const late = new Letter()
    store.next('renew', late)
    store.always('lose request', ['renew'])
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.untilTrue(() => store.count('renew') === 1)
    late.arrive()
    await clock.advance(TTL)
    expect(lease.state).toBe('lost')
    late.reply()
    await clock.advance(0)
    expect(lease.state).toBe('lost')
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    await lease.release()
  })
})

describe('the time that has passed is the larger of what the two clocks say', () => {
  test('so a machine that slept past the ttl wakes up having lost its lease', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    clock.suspend(TTL)
    expect(lease.state).toBe('lost')
    expect(lease.remainingMs).toBe(0)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    await lease.release()
  })

  test('so a listener of the signal hears within a second of the wake-up, and not at the next renewal', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: '10m' })
    expect(lease.signal.aborted).toBe(false)
    await clock.advance(300)
    clock.suspend(HOUR)
    await clock.advance(1000)
    expect(lease.signal.aborted).toBe(true)
    await lease.release()
  })

  test('so a short sleep costs the time it took, and the lease is renewed at once', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    expect(lease.signal.aborted).toBe(false)
    await clock.advance(100)
    const renewals = store.count('renew')
    clock.suspend(5000)
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL - 5000)
    await clock.advance(1000)
    expect(store.count('renew')).toBe(renewals + 1)
    expect(lease.remainingMs).toBeGreaterThan(EARLIEST - 1000)
    await lease.release()
  })

  test('so a wall clock set forward by an hour ends a lease early', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    clock.jumpWall(HOUR)
    expect(() => lease.assertHeld()).toThrow(LeaseLostError)
    await lease.release()
  })

  test('so a wall clock set back by an hour gives a lease no second more', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    clock.jumpWall(-HOUR)
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL)
    expect(lease.state).toBe('held')
    await clock.advance(TTL)
    expect(lease.state).toBe('lost')
    await lease.release()
  })

  test('so a wall clock that is set while a renewal is on its way cannot lengthen the lease', async () => {
    const { clock, store, locks } = scene()
    const slow = new Letter()
    store.next('renew', slow)
    store.always('lose request', ['renew'])
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.untilTrue(() => store.count('renew') === 1)
    clock.jumpWall(-HOUR)
    slow.arrive().reply()
    await clock.advance(TTL)
    expect(lease.state).toBe('lost')
    await lease.release()
  })

  test('so a wall clock set forward while the acquire is on its way gives no lease that is over already', async () => {
    const { clock, store, locks } = scene()
    const slow = new Letter()
    store.next('acquire', slow)
    const acquiring = locks.acquire('k', { ttl: TTL })
    slow.arrive()
    clock.jumpWall(HOUR)
    slow.reply()
    const lease = await acquiring
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('and patience is measured by the monotonic clock alone, so a jump ends no wait', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k', { ttl: '1m' })
    const waiting = locks.acquire('k', { wait: '5s' })
    await clock.advance(1000)
    clock.jumpWall(HOUR)
    await clock.advance(3500)
    expect(await outcomeOf(waiting)).toBe('pending')
    await clock.advance(500)
    expect(await errorOf(waiting)).toMatchObject({ code: 'acquire-timeout', waitedMs: 5000 })
    await held.release()
  })
})

describe('at a store inside this process, which has its monotonic clock and no other', () => {
  function inProcess() {
    const clock = new FakeClock()
    const { locks } = startProcess(memoryStore(), clock)
    onTestFinished(() => locks.close())
    return { clock, locks }
  }

  test('a sleep and a wall clock set forward cost nothing: the key is as safe as before', async () => {
    const { clock, locks } = inProcess()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    clock.suspend(HOUR)
    clock.jumpWall(HOUR)
    expect(lease.state).toBe('held')
    expect(await locks.tryAcquire('k')).toBe(null)
    await clock.advance(0.9 * TTL)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('the lease is over before the store lets any other ticket in', async () => {
    const { clock, locks } = inProcess()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    clock.block(EARLIEST)
    expect(lease.state).toBe('held')
    expect(await locks.tryAcquire('k')).toBe(null)
    clock.block(TTL - EARLIEST - 1)
    expect(lease.state).toBe('lost')
    expect(await locks.tryAcquire('k')).toBe(null)
    clock.block(1)
    const heir = await locks.acquire('k', { wait: 0 })
    expect(heir.fence).toBeGreaterThan(lease.fence)
    await heir.release()
    await lease.release()
  })
})
