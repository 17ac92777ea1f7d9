import { describe, expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { block } from './block.ts'
import { settled } from './fake-clock.ts'
import { errorOf, realScene, scene } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 200

describe('when the event loop was blocked for longer than the ttl', () => {
  test('assertHeld throws in the very next statement, before any timer has run', async () => {
    const { locks } = realScene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    let timers = 0
    setTimeout(() => {
      timers += 1
    }, 1)
    block(TTL)
    // A timer aborts the signal, so the signal cannot know yet. `assertHeld` is there for this moment.
    expect(signal.aborted).toBe(false)
    expect(() => lease.assertHeld()).toThrow(
      expect.objectContaining({ code: 'lease-lost', reason: 'expired', key: 'k' }),
    )
    expect(timers).toBe(0)
    expect(signal.aborted).toBe(true)
    await lease.release()
  })

  test('state and remainingMs know it, too, and so does a signal that is read only now', async () => {
    const { locks } = realScene()
    const lease = await locks.acquire('k', { ttl: TTL })
    block(TTL)
    expect(lease.state).toBe('lost')
    expect(lease.remainingMs).toBe(0)
    expect(lease.signal.aborted).toBe(true)
    await lease.release()
  })

  test('the signal aborts as soon as timers run again, and the late renewal brings nothing back', async () => {
    const { locks } = realScene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const lost = new Promise((resolve) => lease.signal.addEventListener('abort', resolve, { once: true }))
    block(TTL)
    await lost
    expect(lease.signal.reason).toMatchObject({ reason: 'expired' })
    await settled()
    expect(lease.state).toBe('lost')
    await lease.release()
  })

  test('the lease is over before any other ticket is let in', async () => {
    const { locks } = realScene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    let heir = await locks.tryAcquire('k')
    while (heir === null) {
      block(1)
      heir = await locks.tryAcquire('k')
    }
    expect(lease.state).toBe('lost')
    expect(heir.fence).toBeGreaterThan(lease.fence)
    await heir.release()
    await lease.release()
  })

  test('withLock rejects although the work returned something', async () => {
    const { locks } = realScene()
    const work = locks.withLock('k', { ttl: TTL }, () => {
      block(TTL)
      return 'written'
    })
    expect(await errorOf(work)).toMatchObject({ code: 'lease-lost', reason: 'expired' })
  })

  test('a shorter block costs nothing: the lease is renewed as soon as the loop runs', async () => {
    const { locks } = realScene()
    const lease = await locks.acquire('k', { ttl: 8000 })
    block(4800)
    expect(lease.state).toBe('jeopardy')
    await until('it is renewed', () => lease.state === 'held')
    expect(lease.remainingMs).toBeGreaterThan(4800)
    await lease.release()
  })
})

describe('when the event loop was blocked while the store answered', () => {
  test.each([
    ['a storeTimeout', { storeTimeout: 300 }],
    ['a wait', { wait: 300 }],
    ['no wait', { wait: 0 }],
  ] as const)('the answer that lies in the socket counts for a call with %s', async (_limit, options) => {
    const { clock, store, locks } = scene()
    const errors: unknown[] = []
    locks.on('store-error', (error) => errors.push(error))
    const answer = new Letter()
    store.next('acquire', answer)
    const acquiring = locks.acquire('k', options)
    answer.arrive()
    clock.block(6000)
    // Timers run before sockets are read.
    await clock.advance(1)
    answer.reply()
    const lease = await clock.until(acquiring)
    expect(errors).toEqual([])
    expect(store.count('acquire')).toBe(1)
    await lease.release()
  })

  test('a waiter does not take its store for silent, and keeps its place', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k', { ttl: '1h' })
    const waiting = locks.acquire('k', { wait: '1h', storeTimeout: 300 })
    await clock.advance(1000)
    const answer = new Letter()
    store.next('renew', answer)
    const before = store.count('renew')
    await clock.untilTrue(() => store.count('renew') > before)
    answer.arrive()
    clock.block(400)
    await clock.advance(1)
    answer.reply()
    await clock.advance(5000)
    await held.release()
    await (await clock.until(waiting)).release()
    expect(store.count('acquire')).toBe(1)
  })

  test('a store that is silent is given up all the same, however often the loop is blocked', async () => {
    const { clock, store, locks } = scene()
    store.always('lose request')
    const acquiring = errorOf(locks.acquire('k', { wait: '1h', storeTimeout: 300 }))
    let isOver = false
    void acquiring.then(() => {
      isOver = true
    })
    for (let turn = 0; turn < 20 && !isOver; turn += 1) {
      clock.block(100)
      await clock.advance(1)
    }
    expect(isOver).toBe(true)
    expect(await acquiring).toMatchObject({ code: 'store-unavailable' })
    store.always('answer')
    await clock.advance(60_000)
  })

  test('a free key on Redis is acquired', async () => {
    await using server = await startRedis()
    await using locks = await connect(server.url)
    await (await locks.acquire('warm')).release()
    const errors: unknown[] = []
    locks.on('store-error', (error) => errors.push(error))
    const acquiring = locks.acquire('k', { storeTimeout: 200 })
    block(3000)
    const lease = await acquiring
    expect(errors).toEqual([])
    await lease.release()
  })
})
