import { describe, expect, test } from 'vitest'
import { StoreError } from '../../src/errors.ts'
import { delaysOf } from './fake-clock.ts'
import { errorOf, outcomeOf, scene, startProcess } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000

describe('an acquire', () => {
  test('whose request was lost is repeated under the same id', async () => {
    const { clock, store, locks } = scene()
    store.next('acquire', 'lose request')
    const lease = await clock.until(locks.acquire('k'))
    const ids = store.sent.filter(({ verb }) => verb === 'acquire').map(({ tickets }) => tickets[0]?.id)
    expect(ids).toEqual([lease.id, lease.id])
    await lease.release()
  })

  test('whose reply was lost is repeated, and there is one holder under the first fence', async () => {
    const { clock, store, locks, rooms } = scene()
    store.next('acquire', 'lose reply')
    const acquiring = locks.acquire('k')
    await clock.advance(0)
    const granted = (await rooms())[0]?.holders
    const lease = await clock.until(acquiring)
    expect(granted).toMatchObject([{ id: lease.id, fence: lease.fence }])
    expect((await rooms())[0]?.holders).toHaveLength(1)
    await lease.release()
  })

  test('whose place in the queue was told by a reply that was lost keeps that place', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    store.next('acquire', 'lose reply')
    const first = locks.acquire('k')
    await clock.advance(10)
    const second = other.locks.acquire('k', { wait: '5m' })
    await clock.advance(2500)
    await held.release()
    const lease = await clock.until(first)
    expect(await outcomeOf(second)).toBe('pending')
    await lease.release()
    await (await clock.until(second)).release()
  })

  test('that failed, though the store had acted, finds its own lease', async () => {
    const { clock, store, locks, rooms } = scene()
    store.next('acquire', 'fail late', 'fail')
    const lease = await clock.until(locks.acquire('k'))
    expect(await rooms()).toMatchObject([{ holders: [{ id: lease.id, fence: lease.fence }] }])
    await lease.release()
  })

  test('takes the answer of whichever request is answered first', async () => {
    const { clock, store, locks } = scene()
    const first = new Letter()
    store.next('acquire', first, 'lose request')
    const acquiring = locks.acquire('k')
    await clock.untilTrue(() => store.count('acquire') === 2)
    first.arrive().reply()
    const lease = await acquiring
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('that is answered in time starts no timer of 0 ms on the way', async () => {
    const { clock, locks } = scene()
    const delays = delaysOf(clock)
    for (let round = 0; round < 10; round += 1) await (await locks.acquire('k')).release()
    expect(delays).not.toEqual([])
    expect(Math.min(...delays)).toBeGreaterThanOrEqual(1000)
  })

  test('is repeated with growing pauses, so a store that fails at once is not flooded', async () => {
    const { clock, store, locks } = scene()
    store.always('fail')
    const failing = errorOf(locks.acquire('k', { wait: '30s' }))
    await clock.advance(30_000)
    await failing
    expect(store.count('acquire')).toBeGreaterThanOrEqual(15)
    expect(store.count('acquire')).toBeLessThanOrEqual(60)
    await clock.advance(60_000)
  })

  test.each([
    ['hangs', 'lose request'],
    ['fails', 'fail'],
  ] as const)('of a store that %s is a StoreError after `wait`, and no timeout', async (_what, fate) => {
    const { clock, store, locks } = scene()
    store.always(fate)
    const from = clock.monotonicMs()
    const error = await clock.until(errorOf(locks.acquire('k', { ttl: 1000, wait: 3000 })), { stepMs: 1 })
    expect(clock.monotonicMs() - from).toBe(3000)
    expect(error).toMatchObject({ name: 'StoreError', code: 'store-unavailable', key: 'k' })
    if (fate === 'fail') expect(error['cause']).toMatchObject({ code: 'store-unavailable' })
    await clock.advance(60_000)
  })

  test('that the store refuses rejects at once with its own error, and is not repeated', async () => {
    const { store, locks, clock } = scene()
    store.always('refuse')
    expect(await outcomeOf(locks.acquire('k'))).toMatchObject({
      error: { code: 'store-refused', message: 'The password was not accepted.' },
    })
    await clock.advance(60_000)
    expect(store.count('acquire')).toBe(1)
  })

  test('ends at once if the store cannot grant the key while the caller waits, and says so', async () => {
    const { clock, store, locks } = scene()
    const from = clock.monotonicMs()
    for (const [waitMs, call] of [
      [4000, () => locks.acquire('k', { wait: 4000 })],
      [0, () => locks.tryAcquire('k')],
    ] as const) {
      store.fails = () => new StoreError('store-unavailable', 'Not before 5 s.', { retryAfterMs: 5000 })
      store.always('fail')
      expect([waitMs, await errorOf(call())]).toMatchObject([
        waitMs,
        { code: 'store-unavailable', message: 'Not before 5 s.', retryAfterMs: 5000 },
      ])
    }
    expect(clock.monotonicMs()).toBe(from)
    expect(store.count('acquire')).toBe(2)
    await clock.advance(60_000)
  })

  test('asks again at the time that the store names, if the caller waits that long', async () => {
    const { clock, store, locks } = scene()
    const opensAt = clock.monotonicMs() + 5123
    store.fails = () =>
      new StoreError('store-unavailable', 'Not yet.', { retryAfterMs: opensAt - clock.monotonicMs() })
    store.always('fail')
    const acquiring = locks.acquire('k', { wait: '30s' })
    await clock.advance(5122)
    store.always('answer')
    const lease = await clock.until(acquiring, { stepMs: 1 })
    expect(clock.monotonicMs()).toBe(opensAt)
    await lease.release()
  })

  test('that is refused while it waits is over, too', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: '1m' })
    await clock.advance(10)
    store.next('renew', 'refuse')
    expect(await clock.until(errorOf(waiting))).toMatchObject({ code: 'store-refused' })
    await held.release()
  })
})

describe('a try', () => {
  test('is one request when the key is busy', async () => {
    const { store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    expect(await locks.tryAcquire('k')).toBeNull()
    expect(await locks.tryWithLock('k', () => 'ran')).toEqual({ ran: false })
    expect(store.sent).toHaveLength(2)
    await held.release()
  })

  test('does not say busy when it does not know: it asks again', async () => {
    const { clock, store, locks } = scene()
    store.next('acquire', 'lose reply')
    const lease = await clock.until(locks.tryAcquire('k'))
    expect(lease?.state).toBe('held')
    await lease?.release()
  })

  test('that is busy leaves a tombstone for its first request, which may arrive when the key is free', async () => {
    const { clock, store, locks, other, rooms } = scene()
    const held = await other.locks.acquire('k')
    const late = new Letter()
    store.next('acquire', late)
    expect(await clock.until(locks.tryAcquire('k'))).toBeNull()
    expect(store.count('acquire')).toBe(2)
    await held.release()
    await clock.advance(1)
    late.arrive()
    expect(await rooms()).toEqual([])
  })

  test('of a store that is silent rejects within five seconds instead of answering null', async () => {
    const { clock, store, locks } = scene()
    store.always('lose request')
    const from = clock.monotonicMs()
    const error = await clock.until(errorOf(locks.tryAcquire('k', { ttl: 1000 })))
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(5010)
    expect(error).toMatchObject({ code: 'store-unavailable' })
    await clock.advance(60_000)
  })
})

describe('extend', () => {
  test('moves the deadline at once', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    await clock.advance(0.8 * TTL)
    await lease.extend()
    expect(lease.remainingMs).toBeGreaterThan(0.9 * TTL)
    await lease.release()
  })

  test('keeps the signal quiet at the deadline that was before', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    const signal = lease.signal
    await clock.advance(0.8 * TTL)
    await lease.extend()
    await clock.advance(0.8 * TTL)
    expect(signal.aborted).toBe(false)
    await clock.advance(0.2 * TTL)
    expect(signal.aborted).toBe(true)
    await lease.release()
  })

  test('with a shorter ttl takes back nothing that was promised', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const before = lease.remainingMs
    await lease.extend('1s')
    expect(lease.remainingMs).toBe(before)
    await clock.advance(4 * TTL)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('several times at once ends with the longest', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    await Promise.all([lease.extend('2m'), lease.extend('5m'), lease.extend()])
    expect(lease.remainingMs).toBeGreaterThan(290_000)
    await clock.advance(600_000)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('that crosses the release says that it was released, and brings nothing back', async () => {
    const { clock, store, locks, rooms } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const slow = new Letter()
    store.next('renew', slow)
    const extending = errorOf(lease.extend())
    await lease.release()
    slow.arrive().reply()
    expect(await clock.until(extending)).toMatchObject({ code: 'lease-lost' })
    expect(await rooms()).toEqual([])
  })

  test('is repeated while the store fails, and gets through when it is back', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    await clock.advance(TTL / 2)
    store.always('fail', ['renew'])
    const extending = lease.extend()
    await clock.advance(5000)
    expect(await outcomeOf(extending)).toBe('pending')
    store.always('answer')
    await clock.until(extending)
    expect(lease.remainingMs).toBeGreaterThan(0.9 * TTL)
    await lease.release()
  })

  test('rejects by the deadline when the store stays silent, and the lease is lost', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    store.always('lose request', ['renew'])
    const deadline = clock.monotonicMs() + lease.remainingMs
    const error = await clock.until(errorOf(lease.extend()))
    expect(error).toMatchObject({ code: 'store-unavailable' })
    expect(clock.monotonicMs()).toBeLessThanOrEqual(deadline + 100)
    expect(lease.state).toBe('lost')
    await lease.release()
  })

  test('after a loss says which loss, and asks nothing', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    await clock.advance(TTL)
    expect(await errorOf(lease.extend('1h'))).toMatchObject({ code: 'lease-lost', reason: 'expired' })
    expect(store.count('renew')).toBe(0)
    await lease.release()
  })

  test('of a lease that was evicted meanwhile tells so', async () => {
    const { locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    await other.locks.evict('k', lease.id, { reason: 'stuck' })
    expect(await errorOf(lease.extend())).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
  })
})

describe('a definite no of the store', () => {
  test.each(['extend', 'adopt', 'inspect', 'evict'] as const)('comes through %s as it is', async (what) => {
    const { store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const calls = {
      extend: () => lease.extend(),
      adopt: () => locks.adopt(lease.toJSON()),
      inspect: () => locks.inspect().next(),
      evict: () => locks.evictAll('k', { reason: 'r' }),
    }
    store.always('refuse')
    expect(await outcomeOf(calls[what]())).toMatchObject({
      error: { code: 'store-refused', message: 'The password was not accepted.' },
    })
    store.always('answer')
    expect(lease.state).toBe('held')
    await lease.release()
  })
})

describe('errors of a store that are not ours', () => {
  test.each(['extend', 'adopt', 'inspect', 'evict'] as const)('become a StoreError in %s', async (what) => {
    const { clock, store, other } = scene()
    const broken = new Error('socket hang up')
    const { locks } = startProcess(
      {
        name: 'raw',
        acquire: (ticket) => store.real.acquire(ticket),
        release: (request) => store.real.release(request),
        renew: () => Promise.reject(broken),
        inspect: () => Promise.reject(broken),
        evict: () => Promise.reject(broken),
        close: async () => {},
      },
      clock,
    )
    const lease = await other.locks.acquire('k', { ttl: 1000 })
    const json = lease.detach()
    const own = await locks.acquire('own', { ttl: 1000 })
    const calls = {
      extend: () => own.extend(),
      adopt: () => locks.adopt(json),
      inspect: () => locks.inspect().next(),
      evict: () => locks.evictAll('k', { reason: 'r' }),
    }
    const error = await clock.until(errorOf(calls[what]()))
    await own.release()
    await clock.advance(10_000)
    expect(error).toMatchObject({ code: 'store-unavailable', cause: broken })
  })
})
