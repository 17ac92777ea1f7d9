import { hostname } from 'node:os'
import { describe, expect, test } from 'vitest'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, realScene, scene } from '../engine/scene.ts'

describe('withLock', () => {
  test('lets one in at a time, in the order of the calls', async () => {
    const { locks } = realScene()
    let inside = 0
    const order: number[] = []
    await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        locks.withLock('k', async () => {
          inside += 1
          expect(inside).toBe(1)
          order.push(index)
          await settled()
          inside -= 1
        }),
      ),
    )
    expect(order).toEqual(Array.from({ length: 100 }, (_, index) => index))
  })

  test('lets different keys in side by side', async () => {
    const { locks } = realScene()
    const together = await locks.withLock('a', () => locks.withLock('b', () => 'both'))
    expect(together).toBe('both')
  })

  test('passes on the value that the work returns, or a promise of it', async () => {
    const { locks } = realScene()
    expect(await locks.withLock('k', () => 1)).toBe(1)
    expect(await locks.withLock('k', async () => undefined)).toBeUndefined()
    expect(await locks.withLock('k', { ttl: '5s' }, async (lease) => lease.key)).toBe('k')
  })

  test('releases when the work throws, at once or later', async () => {
    const { locks } = realScene()
    const broken = new Error('the work failed')
    const thrown = locks.withLock('k', () => {
      throw broken
    })
    expect(await errorOf(thrown)).toBe(broken)
    expect(await errorOf(locks.withLock('k', () => Promise.reject(broken)))).toBe(broken)
    expect(await locks.withLock('k', { wait: 0 }, () => 'free')).toBe('free')
  })

  test('gives each holder a higher fence than the one before, also across an empty key', async () => {
    const { locks } = realScene()
    const fences: bigint[] = []
    for (let round = 0; round < 200; round += 1) fences.push(await locks.withLock('k', ({ fence }) => fence))
    for (const [index, fence] of fences.slice(1).entries()) expect(fence).toBeGreaterThan(fences[index] ?? 0n)
  })

  test('excludes other `Locks` on the same store, and not those on another one', async () => {
    const { locks, other } = scene()
    const elsewhere = scene()
    await locks.withLock('k', async () => {
      expect(await other.locks.tryAcquire('k')).toBeNull()
      expect(await elsewhere.locks.tryWithLock('k', () => 'ran')).toEqual({ ran: true, value: 'ran' })
    })
  })
})

describe('tryWithLock', () => {
  test('says whether it ran', async () => {
    const { locks } = realScene()
    const lease = await locks.acquire('k')
    let ran = false
    const outcome = await locks.tryWithLock('k', () => {
      ran = true
    })
    expect(outcome).toEqual({ ran: false })
    expect(ran).toBe(false)
    await lease.release()
    expect(await locks.tryWithLock('k', () => null)).toEqual({ ran: true, value: null })
  })

  test('passes on the error of the work, and releases', async () => {
    const { locks } = realScene()
    const broken = new Error('the work failed')
    expect(await errorOf(locks.tryWithLock('k', () => Promise.reject(broken)))).toBe(broken)
    expect(await locks.tryWithLock('k', () => 1)).toEqual({ ran: true, value: 1 })
  })

  test('does not go before the waiters', async () => {
    const { locks } = realScene()
    const held = await locks.acquire('k')
    const waiting = locks.acquire('k')
    const releasing = held.release()
    expect(await locks.tryAcquire('k')).toBeNull()
    await releasing
    await (await waiting).release()
  })
})

describe('keys', () => {
  test.each([
    'invoice:42',
    ' ',
    '__proto__',
    'constructor',
    '{a}:b',
    '*?[x]\\',
    '%_',
    'ключ 🔒',
    'a\nb',
    'x'.repeat(1024),
  ])('of every kind are keys of their own: %j', async (key) => {
    const { locks } = realScene()
    const lease = await locks.acquire(key)
    expect(lease.key).toBe(key)
    expect(await locks.tryAcquire(key)).toBeNull()
    const neighbour = await locks.tryAcquire(`${key.slice(0, 1000)}!`)
    expect(neighbour).not.toBeNull()
    await neighbour?.release()
    await lease.release()
  })
})

describe('a lease', () => {
  test('releases itself at the end of its block', async () => {
    const { locks } = realScene()
    {
      await using lease = await locks.acquire('k')
      expect(lease.state).toBe('held')
    }
    await using again = await locks.acquire('k', { wait: 0 })
    expect(again.state).toBe('held')
  })

  test('can be written to a log: its JSON is plain, and has the fence as a string', async () => {
    const { locks } = realScene()
    const lease = await locks.acquire('k', { ttl: '20s' })
    expect(JSON.parse(JSON.stringify({ lease }))).toEqual({
      lease: {
        key: 'k',
        id: lease.id,
        fence: String(lease.fence),
        units: 1,
        limit: 1,
        ttlMs: 20_000,
        minHoldMs: 0,
        lockDelayMs: 0,
      },
    })
    await lease.release()
  })
})

describe('options of createLocks', () => {
  test('hold for all calls, and a call may differ', async () => {
    const store = memoryStore()
    const locks = createLocks(store, { ttl: '20s', wait: 20, label: 'billing' })
    await using lease = await locks.acquire('k')
    expect(lease.toJSON().ttlMs).toBe(20_000)
    expect(await errorOf(locks.acquire('k'))).toMatchObject({ code: 'acquire-timeout' })
    expect(await errorOf(locks.readWrite('k').acquireRead())).toMatchObject({ code: 'acquire-timeout' })
    expect(await errorOf(locks.acquire('k', { wait: 0 }))).toMatchObject({ waitedMs: 0 })
    await using other = await locks.acquire('other', { ttl: '40s' })
    expect(other.toJSON().ttlMs).toBe(40_000)
    const owners = []
    for await (const room of locks.inspect()) owners.push(room.holders[0]?.owner)
    const owner = { host: hostname(), pid: process.pid, label: 'billing' }
    expect(owners).toEqual([owner, owner])
  })
})
