import { describe, expect, test } from 'vitest'
import { delaysOf } from './fake-clock.ts'
import { errorOf, outcomeOf, scene } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000

describe('release', () => {
  test('resolves when the store has answered, so that the next call finds the key free', async () => {
    const { clock, store, locks, other } = scene()
    const lease = await locks.acquire('k')
    const slow = new Letter()
    store.next('release', slow)
    const releasing = lease.release()
    expect(lease.state).toBe('released')
    expect(await outcomeOf(releasing)).toBe('pending')
    expect(await other.locks.tryAcquire('k')).toBeNull()
    slow.arrive().reply()
    await clock.until(releasing)
    await (await other.locks.tryAcquire('k'))?.release()
  })

  test.each(['fail', 'lose request'] as const)(
    'of 5,000 leases to a store that is away (%s) is repeated by a few at a time, and by all when it is back',
    async (fate) => {
      const { clock, store, locks, rooms } = scene()
      const keys = Array.from({ length: 5000 }, (_, index) => `key ${index}`)
      const leases = await clock.until(Promise.all(keys.map((key) => locks.acquire(key, { ttl: 4 * TTL }))))
      store.always(fate, ['release'])
      for (const lease of leases) void lease.release()
      await clock.advance(5000)
      const before = store.count('release')
      expect(before).toBeGreaterThan(5000)
      await clock.advance(10_000)
      expect(store.count('release') - before).toBeLessThan(1000)
      store.always('answer', ['release'])
      await clock.advance(20_000)
      expect(await rooms()).toEqual([])
      expect(store.count('release')).toBeLessThan(12_000)
    },
  )

  test('is repeated although others hang for good: these take turns with it', async () => {
    const { clock, store, locks, rooms } = scene()
    const stuck = await Promise.all(
      Array.from({ length: 40 }, (_, index) => locks.acquire(`stuck ${index}`, { ttl: '1h' })),
    )
    const healthy = await locks.acquire('healthy', { ttl: '1h' })
    const release = store.release.bind(store)
    let away = true
    store.release = (request) => {
      if (request.key === 'healthy' || !away) return release(request)
      return new Promise(() => {})
    }
    store.next('release', 'fail')
    for (const lease of stuck) void lease.release()
    await clock.advance(3000)
    void healthy.release()
    await clock.advance(60_000)
    const keys = (await rooms()).map((room) => room.key)
    away = false
    await clock.advance(60_000)
    expect(keys).not.toContain('healthy')
  })

  test('starts no timer of its own: one timer looks after this bound and everything else', async () => {
    const { clock, locks } = scene()
    const delays = delaysOf(clock)
    for (let turn = 0; turn < 100; turn += 1) await (await locks.acquire('k')).release()
    expect(delays.length).toBeLessThanOrEqual(5)
  })

  test('of a lost lease after close() resolves, too, when the store hangs', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    await clock.advance(TTL)
    await clock.until(locks.close())
    store.always('lose request')
    await clock.until(lease.release(), { withinMs: 2010 })
    expect(clock.timers.keepingAlive).toBe(0)
  })

  test('that began just before close() resolves, too, when the store hangs', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('lose request', ['release'])
    const releasing = lease.release()
    await clock.until(locks.close())
    await clock.until(releasing, { withinMs: 100 })
    await clock.advance(TTL)
  })

  test('may be called any number of times, and asks the store once', async () => {
    const { store, locks } = scene()
    const lease = await locks.acquire('k')
    await Promise.all([lease.release(), lease.release()])
    await lease.release()
    await lease[Symbol.asyncDispose]()
    expect(store.count('release')).toBe(1)
  })

  test('called again while the first is on its way resolves when the store has answered, too', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k')
    const slow = new Letter()
    store.next('release', slow)
    const first = lease.release()
    const again = lease.release()
    expect(await outcomeOf(first)).toBe('pending')
    const second = await outcomeOf(again)
    slow.arrive().reply()
    await clock.until(first)
    expect(second).toBe('pending')
  })

  test('inside the work does not hide that the lease was lost before', async () => {
    const { clock, locks } = scene()
    const work = locks.withLock('k', { ttl: TTL, renew: false }, async (lease) => {
      clock.block(TTL)
      await lease.release()
      return 'written'
    })
    expect(await errorOf(work)).toMatchObject({ code: 'lease-lost', reason: 'expired' })
  })

  test('after a loss leaves the state lost', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    await clock.advance(TTL)
    expect(lease.state).toBe('lost')
    await lease.release()
    expect(lease.state).toBe('lost')
  })

  test('does not abort the signal: the caller that released knows', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k')
    const signal = lease.signal
    await lease.release()
    await clock.advance(2 * TTL)
    expect(signal.aborted).toBe(false)
    expect(lease.remainingMs).toBe(0)
  })

  test('ends what assertHeld, extend and detach may do', async () => {
    const { locks } = scene()
    const lease = await locks.acquire('k')
    await lease.release()
    expect(() => lease.assertHeld()).toThrow(
      expect.objectContaining({
        code: 'lease-lost',
        reason: 'released',
        message: 'The lease on "k" was released by its holder. Acquire the key again to go on.',
      }),
    )
    expect(() => lease.detach()).toThrow(expect.objectContaining({ reason: 'released' }))
    expect(await errorOf(lease.extend())).toMatchObject({ reason: 'released' })
  })

  test('of a lease that expired does not touch the next holder', async () => {
    const { clock, locks, other, rooms } = scene()
    const lost = await locks.acquire('k', { ttl: TTL, renew: false })
    await clock.advance(TTL)
    const heir = await other.locks.acquire('k')
    await lost.release()
    expect(await rooms()).toMatchObject([{ holders: [{ id: heir.id }] }])
    expect(() => heir.assertHeld()).not.toThrow()
    await heir.release()
  })

  test('of a lease that was evicted needs no request', async () => {
    const { clock, store, locks, other } = scene()
    const lease = await locks.acquire('k')
    await other.locks.evict('k', lease.id, { reason: 'stuck' })
    await clock.advance(TTL)
    await lease.release()
    expect(lease.state).toBe('lost')
    expect(store.count('release')).toBe(0)
  })

  test.each([
    ['hangs', 'lose request'],
    ['fails', 'fail'],
    ['acts, and the reply is lost', 'lose reply'],
  ] as const)('never rejects when the store %s: it resolves in about two seconds', async (_what, fate) => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always(fate, ['release'])
    const from = clock.monotonicMs()
    await clock.until(lease.release())
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(2010)
    expect(lease.state).toBe('released')
    store.always('answer')
    await clock.advance(20_000)
  })

  test('that was not answered is repeated until it is, so the key does not stay taken for the ttl', async () => {
    const { clock, store, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: '1h' })
    store.always('lose request', ['release'])
    await clock.until(lease.release())
    const next = other.locks.acquire('k', { wait: '1m' })
    await clock.advance(5000)
    expect(await outcomeOf(next)).toBe('pending')
    store.always('answer')
    const heir = await clock.until(next, { withinMs: 20_000 })
    await heir.release()
    const before = store.count('release')
    await clock.advance(3_600_000)
    expect(store.count('release')).toBe(before)
  })

  test('is repeated for as long as an extend without an answer may have kept the key', async () => {
    const { clock, store, locks, rooms } = scene()
    const lease = await locks.acquire('k', { ttl: '10s' })
    store.next('renew', 'lose reply')
    const extending = outcomeOf(lease.extend('1h'))
    store.always('lose request')
    await clock.untilTrue(() => lease.state === 'lost')
    await clock.until(lease.release())
    await clock.advance(30_000)
    store.always('answer')
    await clock.advance(60_000)
    expect(await rooms()).toEqual([])
    await extending
  })

  test('of a waiter that gave up is repeated until a grant at the end of its patience would have expired', async () => {
    const { clock, store, locks, other, rooms } = scene({ grants: false })
    const held = await other.locks.acquire('k', { ttl: '1h' })
    const giving = errorOf(locks.acquire('k', { ttl: '2s', wait: 1500 }))
    // Its last renewal is at 1333 ms, and the store remembers it for six seconds.
    await clock.advance(1400)
    store.always('lose request')
    await clock.until(giving)
    await clock.advance(5700)
    await held.release()
    expect(await rooms()).toMatchObject([{ holders: [{ state: 'offered' }] }])
    store.always('answer')
    await clock.advance(500)
    expect(await rooms()).toEqual([])
  })

  test('that the store refuses keeps no caller, and is repeated after long pauses until the store would have forgotten it', async () => {
    const { clock, store, locks, rooms } = scene()
    const errors: unknown[] = []
    locks.on('store-error', (error) => errors.push(error))
    const first = await locks.acquire('k', { ttl: '10m' })
    const second = await locks.acquire('l', { ttl: '10m' })
    store.always('refuse', ['release'])
    await clock.until(first.release(), { withinMs: 1 })
    expect(clock.timers.keepingAlive).toBe(0)
    await clock.advance(120_000)
    expect(store.count('release')).toBeGreaterThan(5)
    expect(store.count('release')).toBeLessThan(15)
    store.always('answer')
    await second.release()
    await clock.advance(30_000)
    expect(await rooms()).toEqual([])
    expect(errors).toHaveLength(1)
    const before = store.count('release')
    await clock.advance(600_000)
    expect(store.count('release')).toBe(before)
  })

  test('that the store refuses for good ends with its ttl', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('refuse', ['release'])
    await clock.until(lease.release())
    await clock.advance(TTL)
    const before = store.count('release')
    await clock.advance(10 * TTL)
    expect(store.count('release')).toBe(before)
    expect(clock.timers.keepingAlive).toBe(0)
  })

  test('that the store refuses does not hold up close()', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('refuse', ['release'])
    await clock.until(lease.release())
    await clock.until(locks.close(), { withinMs: 1 })
    const before = store.count('release')
    await clock.advance(10 * TTL)
    expect(store.count('release')).toBe(before)
  })

  test('works although the caller’s own signal is aborted', async () => {
    const { locks, rooms } = scene()
    const caller = new AbortController()
    const lease = await locks.acquire('k', { signal: caller.signal })
    caller.abort()
    expect(lease.state).toBe('held')
    await lease.release()
    expect(await rooms()).toEqual([])
  })

  test('crossing a renewal that is on its way leaves nothing behind', async () => {
    const { clock, store, locks, rooms } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const renewal = new Letter()
    store.next('renew', renewal)
    await clock.untilTrue(() => store.count('renew') === 1)
    await lease.release()
    renewal.arrive().reply()
    await clock.advance(0)
    expect(lease.state).toBe('released')
    expect(await rooms()).toEqual([])
  })

  test('leaves a tombstone only while an acquire may still arrive, which then has no effect', async () => {
    const { clock, store, locks, rooms } = scene()
    const late = new Letter()
    store.next('acquire', late)
    const lease = await clock.until(locks.acquire('k'))
    await lease.release()
    expect(store.sent.at(-1)).toMatchObject({ verb: 'release', cancel: true })
    late.arrive().reply()
    await clock.advance(0)
    expect(await rooms()).toEqual([])
    const plain = await locks.acquire('k2')
    await plain.release()
    expect(store.sent.at(-1)).toMatchObject({ verb: 'release', cancel: false })
  })

  test('leaves no tombstone when every request was answered by the time of the release', async () => {
    const { clock, store, locks } = scene()
    const first = new Letter()
    const second = new Letter()
    store.next('acquire', first, second)
    const acquiring = locks.acquire('k')
    await clock.advance(2000)
    first.arrive().reply()
    const lease = await acquiring
    second.arrive().reply()
    await clock.advance(0)
    await lease.release()
    expect(store.sent.at(-1)).toMatchObject({ verb: 'release', cancel: false })
  })
})

describe('the error of the work', () => {
  const broken = new Error('the work failed')

  test.each(['lose request', 'fail', 'refuse', 'answer'] as const)(
    'is what withLock rejects with when the release meets: %s',
    async (fate) => {
      const { clock, store, locks } = scene()
      store.always(fate, ['release'])
      const work = errorOf(
        locks.withLock('k', { ttl: TTL }, () => {
          throw broken
        }),
      )
      expect(await clock.until(work)).toBe(broken)
      store.always('answer')
      await clock.advance(2 * TTL)
    },
  )

  test('comes before the loss of the lease', async () => {
    const { clock, locks } = scene()
    const work = locks.withLock('k', { ttl: TTL }, () => {
      clock.block(TTL)
      throw broken
    })
    expect(await errorOf(work)).toBe(broken)
  })

  test('is not needed for withLock to reject: work that outlived its lease is no success', async () => {
    const { clock, locks } = scene()
    const work = locks.withLock('k', { ttl: TTL }, () => clock.block(TTL))
    expect(await errorOf(work)).toMatchObject({ code: 'lease-lost', reason: 'expired', key: 'k' })
  })
})
