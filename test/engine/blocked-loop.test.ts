import { describe, expect, test } from 'vitest'
import { until } from '../servers/until.ts'
import { block } from './block.ts'
import { settled } from './fake-clock.ts'
import { errorOf, realScene } from './scene.ts'

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
