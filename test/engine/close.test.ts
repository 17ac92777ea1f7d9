import { describe, expect, test } from 'vitest'
import type { Lease, LeaseJson } from '../../src/engine/lease.ts'
import { createLocks, StoreError } from '../../src/index.ts'
import type { Locks } from '../../src/primitives/locks.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { until } from '../servers/until.ts'
import { FakeClock, settled } from './fake-clock.ts'
import { errorOf, outcomeOf, scene, startProcess } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000

describe('close', () => {
  test('releases all leases, so others need not wait for the ttl', async () => {
    const { clock, locks, other, rooms } = scene()
    await Promise.all(Array.from({ length: 50 }, (_, index) => locks.acquire(`k${index}`, { ttl: '1h' })))
    const next = other.locks.acquire('k7', { wait: '1m' })
    await clock.advance(10)
    await clock.until(locks.close())
    await (await clock.until(next)).release()
    expect(await rooms()).toEqual([])
  })

  test('aborts the signal of a lease with a ClosedError, and the lease is lost', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    await clock.until(locks.close())
    expect(signal.aborted).toBe(true)
    expect(signal.reason).toMatchObject({ name: 'ClosedError', code: 'closed', key: 'k' })
    expect(lease.state).toBe('lost')
    expect(() => lease.assertHeld()).toThrow(signal.reason)
    expect(await errorOf(lease.extend())).toMatchObject({ code: 'closed' })
    await lease.release()
  })

  test('leaves a lease as it is that a listener detaches meanwhile: it goes on elsewhere', async () => {
    const { clock, locks, other } = scene()
    await locks.acquire('first')
    const lease = await locks.acquire('k', { ttl: TTL })
    const { signal } = lease
    let json: LeaseJson | undefined
    locks.on('released', () => {
      json = lease.detach()
    })
    await clock.until(locks.close())
    expect(lease.state).toBe('released')
    expect(signal.aborted).toBe(false)
    const adopted = await clock.until(other.locks.adopt(json as LeaseJson))
    expect(adopted.fence).toBe(lease.fence)
    await adopted.release()
  })

  test('leaves a lease that was released before as it is', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k')
    const signal = lease.signal
    await lease.release()
    await clock.until(locks.close())
    expect(signal.aborted).toBe(false)
    expect(lease.state).toBe('released')
  })

  test('tells work that is running that its key is given away', async () => {
    const { clock, locks } = scene()
    let signal: AbortSignal | undefined
    let end: () => void = () => {}
    const work = locks.withLock('k', (lease) => {
      signal = lease.signal
      return new Promise<void>((resolve) => {
        end = resolve
      })
    })
    const outcome = errorOf(work)
    await clock.advance(10)
    await clock.until(locks.close())
    const told = signal?.aborted
    end()
    expect(told).toBe(true)
    expect(await outcome).toMatchObject({ name: expect.stringMatching(/ClosedError|LeaseLostError/) })
  })

  test('makes work that outlives it reject with a ClosedError, although the work itself succeeded', async () => {
    const { clock, locks } = scene()
    let end: (value: string) => void = () => {}
    const work = errorOf(
      locks.withLock('k', () => {
        return new Promise<string>((resolve) => {
          end = resolve
        })
      }),
    )
    await clock.advance(10)
    await clock.until(locks.close())
    end('written')
    expect(await work).toMatchObject({ name: 'ClosedError', code: 'closed', key: 'k' })
  })

  test('rejects all waits, and takes their places out of the queue', async () => {
    const { clock, locks, other, rooms } = scene()
    const held = await other.locks.acquire('k')
    let ran = 0
    const waiting = Array.from({ length: 20 }, () =>
      errorOf(
        locks.withLock('k', () => {
          ran += 1
        }),
      ),
    )
    await clock.advance(100)
    await clock.until(locks.close())
    for (const error of await Promise.all(waiting)) expect(error).toMatchObject({ code: 'closed', key: 'k' })
    expect(ran).toBe(0)
    expect(await rooms()).toMatchObject([{ queue: [] }])
    await held.release()
  })

  test('releases a grant that was on its way', async () => {
    const { clock, store, locks, rooms } = scene()
    const slow = new Letter()
    store.next('acquire', slow)
    const acquiring = errorOf(locks.acquire('k'))
    await clock.advance(10)
    const closing = locks.close()
    slow.arrive().reply()
    await clock.until(closing)
    expect(await acquiring).toMatchObject({ code: 'closed' })
    await clock.advance(0)
    expect(await rooms()).toEqual([])
  })

  test('does not let work begin under a lease that it has released', async () => {
    const { clock, store, locks } = scene()
    const grant = new Letter()
    store.next('acquire', grant)
    let began = false
    const work = errorOf(
      locks.withLock('k', () => {
        began = true
      }),
    )
    grant.arrive()
    await clock.advance(10)
    grant.reply()
    const closing = locks.close()
    await clock.until(closing)
    expect(began).toBe(false)
    expect(await work).toMatchObject({ code: 'closed' })
  })

  test('rejects an adopt that is on its way, and renews nothing afterwards', async () => {
    const { clock, store, locks, other } = scene()
    const json = (await other.locks.acquire('k', { ttl: TTL })).detach()
    const slow = new Letter()
    store.next('renew', slow)
    const adopting = errorOf(locks.adopt(json))
    await clock.advance(100)
    const closing = locks.close()
    slow.arrive().reply()
    await clock.until(closing)
    const before = store.count('renew')
    await clock.advance(2 * TTL)
    expect(store.count('renew')).toBe(before)
    expect(await adopting).toMatchObject({ code: 'closed' })
  })

  test('takes no new call of any kind', async () => {
    const { store, locks } = scene()
    await locks.close()
    const before = store.sent.length
    const json = { key: 'k', id: 'x', fence: '1', units: 1, limit: 1, ttlMs: TTL }
    const readWrite = locks.readWrite('k')
    const semaphore = locks.semaphore('k', 2)
    const calls: (() => Promise<unknown>)[] = [
      () => locks.acquire('k'),
      () => locks.tryAcquire('k'),
      () => locks.withLock('k', () => {}),
      () => locks.tryWithLock('k', () => {}),
      () => locks.acquireAll(['a', 'b']),
      () => locks.tryAcquireAll(['a', 'b']),
      () => locks.withLocks(['a', 'b'], () => {}),
      () => locks.tryWithLocks(['a', 'b'], () => {}),
      () => readWrite.read(() => {}),
      () => readWrite.tryAcquireWrite(),
      () => semaphore.acquire({ units: 2 }),
      () => semaphore.tryWithPermits(() => {}),
      () => locks.adopt(json),
      () => locks.inspect().next(),
      () => locks.evictAll('k', { reason: 'r' }),
    ]
    for (const call of calls) {
      const error = await errorOf(call())
      expect(error).toMatchObject({ name: 'ClosedError', code: 'closed' })
      expect(error.message).toBe(
        'Expected open locks, got locks that were closed. Make new ones with createLocks(…).',
      )
    }
    expect(store.sent.length).toBe(before)
  })

  test('may be called twice, and closes the store once', async () => {
    const { clock, store, locks } = scene()
    await clock.until(Promise.all([locks.close(), locks.close(), locks[Symbol.asyncDispose]()]))
    expect(store.closed).toBe(1)
  })

  test.each(['lose request', 'fail'] as const)(
    'takes a few seconds when the store meets: %s',
    async (fate) => {
      const { clock, store, locks } = scene()
      await locks.acquire('k', { ttl: TTL })
      store.always(fate)
      const from = clock.monotonicMs()
      await clock.until(locks.close())
      expect(clock.monotonicMs() - from).toBeLessThanOrEqual(6100)
      expect(clock.timers).toEqual({ running: 0, keepingAlive: 0 })
      await clock.advance(TTL)
    },
  )

  test('asks a store for nothing more once it is done, also when a request fails only then', async () => {
    const { clock, store, locks } = scene()
    await locks.acquire('k', { ttl: TTL })
    await clock.advance(10)
    store.always('lose request')
    await clock.until(locks.close())
    const before = store.sent.length
    await clock.advance(2 * TTL)
    expect(store.sent.length).toBe(before)
  })

  test('waits for a release that is on its way', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k')
    const slow = new Letter()
    store.next('release', slow)
    void lease.release()
    const closing = locks.close()
    expect(await outcomeOf(closing)).toBe('pending')
    expect(store.closed).toBe(0)
    slow.arrive().reply()
    await clock.until(closing, { withinMs: 100 })
    expect(store.closed).toBe(1)
  })

  test('stops wakes that begin to flow only while it closes', async () => {
    const { clock, store, locks } = scene()
    let begin: () => void = () => {}
    store.listenAfter = new Promise((resolve) => {
      begin = resolve
    })
    const lease = await locks.acquire('k')
    expect(lease.signal.aborted).toBe(false)
    await clock.until(locks.close())
    begin()
    await clock.advance(1)
    expect(store.unlistened).toBe(1)
  })

  test('stops the wakes', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k')
    expect(lease.signal.aborted).toBe(false)
    await clock.advance(10)
    await clock.until(locks.close())
    expect(store.unlistened).toBe(1)
    const before = store.sent.length
    store.wake({ tag: 'all' })
    await clock.advance(TTL)
    expect(store.sent.length).toBe(before)
  })
})

test('locks that are closed in the tick in which a ticket is granted a key let no work begin under it', async () => {
  const clock = new FakeClock()
  const store = memoryStore({ now: clock.storeTime })
  const [closed, holder, next] = [1, 2, 3].map(() => startProcess(store, clock).locks) as [
    Locks,
    Locks,
    Locks,
  ]
  const held = await holder.acquire('k')
  const began: string[] = []
  const work = (name: string) => async (lease: Lease) => {
    began.push(`${name}, ${lease.state}`)
    await settled()
    began.push(`${name} is done`)
  }
  const first = errorOf(closed.withLock('k', work('closed')))
  const second = next.withLock('k', work('next'))
  await clock.advance(10)
  const releasing = held.release()
  const closing = closed.close()
  await clock.until(Promise.all([releasing, closing, second]))
  expect(await first).toMatchObject({ code: 'closed' })
  expect(began).toEqual(['next, held', 'next is done'])
})

test('a request that is on its way when the locks are closed rejects with a ClosedError, as a new one does', async () => {
  const store = memoryStore()
  // The request ends with the connection, as it does in clients of a server.
  const onClose: (() => void)[] = []
  store.inspect = () =>
    new Promise((_, reject) => {
      onClose.push(() => reject(new StoreError('store-refused', 'The store was closed.')))
    })
  const close = store.close.bind(store)
  store.close = () => {
    for (const refuse of onClose) refuse()
    return close()
  }
  const locks = createLocks(store)
  const outcomes = [
    errorOf(locks.inspect().next()),
    errorOf(locks.election('service').leader()),
    errorOf(locks.election('service').observe().next()),
  ]
  await until('each has asked', () => onClose.length === outcomes.length)
  await locks.close()
  for (const error of await Promise.all(outcomes)) expect(error).toMatchObject({ code: 'closed' })
})
