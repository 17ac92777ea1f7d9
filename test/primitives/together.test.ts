import { describe, expect, test } from 'vitest'
import { createLocks } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene } from '../engine/scene.ts'

describe('several keys', () => {
  test('are all held while the work runs, and none after it', async () => {
    const { locks, rooms } = scene()
    await locks.withLocks(['b', 'a', 'b'], async (leases) => {
      expect(leases.keys).toEqual(['a', 'b'])
      expect((await rooms()).map(({ key }) => key)).toEqual(['a', 'b'])
      expect(leases.state).toBe('held')
      expect(leases.fence('a')).toBe(leases.leases[0]?.fence)
      leases.assertHeld()
    })
    expect(await rooms()).toEqual([])
  })

  test('take no minHold: one may be given back because another is busy, and would stay taken for nothing', async () => {
    const { locks, store } = scene()
    const inSpite = createLocks(store, { minHold: '1h' })
    const calls = [
      locks.withLocks(['a', 'b'], { minHold: '1h' }, () => 'ran'),
      locks.tryWithLocks(['a', 'b'], { minHold: '1h' }, () => 'ran'),
      locks.acquireAll(['a', 'b'], { minHold: '1h' }),
      locks.tryAcquireAll(['a', 'b'], { minHold: '1h' }),
      inSpite.acquireAll(['a', 'b']),
    ]
    for (const error of await Promise.all(calls.map(errorOf)))
      expect(error).toMatchObject({
        code: 'invalid-argument',
        message:
          'Expected `minHold` to be 0 for several keys at once, got 3600000 ms. Set it where one key is held.',
      })
    expect(store.sent).toEqual([])
  })

  test('that are not all free hold none of them with try', async () => {
    const { locks, other, rooms } = scene()
    const held = await other.locks.acquire('c')
    expect(await locks.tryAcquireAll(['a', 'b', 'c'])).toBeNull()
    expect(await locks.tryWithLocks(['c', 'a'], () => 'ran')).toEqual({ acquired: false })
    expect((await rooms()).map(({ key }) => key)).toEqual(['c'])
    await held.release()
    expect(await locks.tryWithLocks(['c', 'a'], () => 'ran')).toEqual({ acquired: true, value: 'ran' })
  })

  test('that are not all free in time hold none of them', async () => {
    const { clock, locks, other, rooms } = scene()
    const held = await other.locks.acquire('c')
    const error = await clock.until(errorOf(locks.acquireAll(['a', 'b', 'c'], { wait: 500 })))
    expect(error).toMatchObject({ code: 'acquire-timeout', key: 'c' })
    expect((await rooms()).map(({ key }) => key)).toEqual(['c'])
    await held.release()
  })

  test('whose wait is aborted hold none of them', async () => {
    const { clock, locks, other, rooms } = scene()
    const held = await other.locks.acquire('b')
    const giveUp = new AbortController()
    const waiting = errorOf(locks.acquireAll(['a', 'b'], { signal: giveUp.signal }))
    await clock.advance(100)
    const reason = new Error('the user left')
    giveUp.abort(reason)
    expect(await waiting).toBe(reason)
    expect((await rooms()).map(({ key }) => key)).toEqual(['b'])
    await held.release()
  })

  test('with wait: 0 are taken when all are free', async () => {
    const { locks } = scene()
    const outcome = await outcomeOf(
      locks.acquireAll(['a', 'b', 'c'], { wait: 0 }).then((leases) => leases.release()),
    )
    expect(outcome).toEqual({ value: undefined })
  })

  test('that are not free in time say how long the whole call waited', async () => {
    const { clock, locks, other } = scene()
    const a = await other.locks.acquire('a')
    const b = await other.locks.acquire('b')
    const waiting = errorOf(locks.acquireAll(['a', 'b'], { wait: 1000 }))
    await clock.advance(600)
    await a.release()
    const error = await clock.until(waiting)
    await b.release()
    expect(error).toMatchObject({ code: 'acquire-timeout', waitedMs: 1000 })
  })

  test('keep what is taken alive while the rest is awaited', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('b')
    const waiting = locks.acquireAll(['a', 'b'], { ttl: 1000, wait: '1h' })
    await clock.advance(60_000)
    expect(await other.locks.tryAcquire('a')).toBeNull()
    await held.release()
    const leases = await clock.until(waiting)
    leases.assertHeld()
    await leases.release()
  })

  test('are not delivered when one was lost while the rest was awaited', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('b')
    const waiting = errorOf(locks.acquireAll(['a', 'b'], { ttl: 5000, wait: '1h' }))
    await clock.advance(100)
    await other.locks.evict('a', undefined, { reason: 'stuck' })
    await clock.advance(5000)
    await held.release()
    expect(await clock.until(waiting)).toMatchObject({ code: 'lease-lost', key: 'a' })
  })

  test('are lost together: one loss aborts the common signal', async () => {
    const { clock, locks, other } = scene()
    const leases = await locks.acquireAll(['a', 'b'], { ttl: 5000 })
    const signal = leases.signal
    await clock.advance(1)
    await other.locks.evict('b', undefined, { reason: 'stuck' })
    await clock.advance(1)
    expect(signal.reason).toMatchObject({ code: 'lease-lost', key: 'b' })
    expect(leases.state).toBe('lost')
    expect(leases.remainingMs).toBe(0)
    expect(() => leases.assertHeld()).toThrow(signal.reason)
    await leases.release()
  })

  test('make work that lost one of them reject, and release the others', async () => {
    const { clock, locks, other, rooms } = scene()
    const work = locks.withLocks(['a', 'b'], { ttl: 5000 }, async () => {
      await other.locks.evict('a', undefined, { reason: 'stuck' })
      await clock.advance(5000)
      return 'written'
    })
    expect(await errorOf(work)).toMatchObject({ code: 'lease-lost', reason: 'evicted', key: 'a' })
    expect(await rooms()).toEqual([])
  })

  test('are extended together', async () => {
    const { locks } = scene()
    await using leases = await locks.acquireAll(['a', 'b'], { ttl: 5000 })
    await leases.extend('1m')
    expect(leases.remainingMs).toBeGreaterThan(55_000)
  })

  test('tell which fence belongs to which, and refuse a key that is none of them', async () => {
    const { locks } = scene()
    await using leases = await locks.acquireAll(['a', 'b'])
    expect(() => leases.fence('c')).toThrow(
      'Expected `key` to be one of the keys held together ("a", "b"), got "c".',
    )
    expect(leases.toJSON().map(({ key }) => key)).toEqual(['a', 'b'])
  })
})

describe('overlapping sets never deadlock', () => {
  test('and no two that share a key are ever in at once', { timeout: 30_000 }, async () => {
    const { locks } = realScene()
    const keys = ['a', 'b', 'c', 'd', 'e', 'f']
    const inside = new Set<string>()
    let seed = 20_260_101
    const next = (below: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31
      return Math.floor((seed / 2 ** 31) * below)
    }
    const some = () => Array.from({ length: 1 + next(4) }, () => keys[next(keys.length)] ?? 'a')
    let done = 0
    const worker = async () => {
      for (let round = 0; round < 40; round += 1) {
        await locks.withLocks(some(), { wait: '20s' }, async (leases) => {
          for (const key of leases.keys) {
            expect(inside.has(key)).toBe(false)
            inside.add(key)
          }
          await settled()
          for (const key of leases.keys) inside.delete(key)
          done += 1
        })
      }
    }
    await Promise.all(Array.from({ length: 20 }, worker))
    expect(done).toBe(800)
  })

  test('in two processes that name the keys in opposite order', async () => {
    const { clock, locks, other } = scene()
    const rounds = async (here: typeof locks, keys: string[]) => {
      for (let round = 0; round < 50; round += 1)
        await here.withLocks(keys, { wait: '1m' }, () => clock.advance(0))
    }
    const both = Promise.all([rounds(locks, ['x', 'y', 'z']), rounds(other.locks, ['z', 'y', 'x'])])
    await clock.until(both, { stepMs: 1 })
  })

  test('and a single lock inside a set is a deadlock that is named at once', async () => {
    const { locks } = scene()
    const inner = locks.withLocks(['a', 'b'], () => locks.withLock('b', () => 'never'))
    expect(await outcomeOf(inner)).toMatchObject({ error: { code: 'deadlock', key: 'b' } })
  })

  test('and a set that has a key which the context holds already gives the others back', async () => {
    const { locks, rooms } = scene()
    await locks.withLock('b', async () => {
      expect(await errorOf(locks.acquireAll(['a', 'b']))).toMatchObject({ code: 'deadlock', key: 'b' })
      expect((await rooms()).map(({ key }) => key)).toEqual(['b'])
    })
  })
})
