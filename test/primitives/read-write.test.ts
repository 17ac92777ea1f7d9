import { describe, expect, test } from 'vitest'
import type { Lease } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock, settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene, startProcess } from '../engine/scene.ts'

describe('read and write', () => {
  test('any number of readers are in at once, and no writer with them', async () => {
    const { locks } = scene()
    const lock = locks.readWrite('k')
    const readers = await Promise.all(Array.from({ length: 500 }, () => lock.acquireRead()))
    expect(await lock.tryAcquireWrite()).toBeNull()
    const another = await lock.tryAcquireRead()
    expect(another).not.toBeNull()
    await Promise.all([...readers, another].map((lease) => lease?.release()))
    const writer = await lock.tryAcquireWrite()
    expect(await lock.tryAcquireRead()).toBeNull()
    expect(await lock.tryAcquireWrite()).toBeNull()
    await writer?.release()
  })

  test('a writer that waits goes before the readers that come after it', async () => {
    const { locks } = realScene()
    const lock = locks.readWrite('k')
    const order: string[] = []
    const reader = await lock.acquireRead()
    const all = [
      lock.write(() => order.push('first writer')),
      lock.read(() => order.push('late reader')),
      lock.write(() => order.push('second writer')),
      lock.read(() => order.push('last reader')),
    ]
    expect(await lock.tryRead(() => 'overtook')).toEqual({ ran: false })
    await reader.release()
    await Promise.all(all)
    expect(order).toEqual(['first writer', 'late reader', 'second writer', 'last reader'])
  })

  test('readers that never stop coming do not starve a writer, nor writers a reader', async () => {
    const { clock, locks } = scene()
    const lock = locks.readWrite('k')
    let stop = false
    const stream = async (kind: 'read' | 'write') => {
      while (!stop) await lock[kind]({ wait: '1m' }, () => clock.advance(0))
    }
    const streams = [stream('read'), stream('read'), stream('read'), stream('write')]
    let served = 0
    for (let round = 0; round < 20; round += 1) {
      await clock.until(lock.write(() => undefined))
      await clock.until(lock.read(() => undefined))
      served += 1
    }
    stop = true
    await clock.until(Promise.all(streams))
    expect(served).toBe(20)
  })

  test('readers that wait behind a writer come in together', async () => {
    const { clock, locks } = scene()
    const lock = locks.readWrite('k')
    const writer = await lock.acquireWrite()
    const readers = Promise.all(Array.from({ length: 10 }, () => lock.acquireRead()))
    await clock.advance(10)
    await writer.release()
    const leases = await clock.until(readers)
    expect(leases.every((lease) => lease.state === 'held')).toBe(true)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('a writer that gives up lets the readers behind it in at once', async () => {
    const { clock, locks } = scene()
    const lock = locks.readWrite('k')
    const reader = await lock.acquireRead()
    const writer = errorOf(lock.acquireWrite({ wait: 500 }))
    await clock.advance(10)
    const behind = lock.acquireRead()
    await clock.advance(480)
    expect(await outcomeOf(behind)).toBe('pending')
    await clock.advance(15)
    expect(await writer).toMatchObject({ code: 'acquire-timeout' })
    const lease = await behind
    await lease.release()
    await reader.release()
  })

  test('passes on the value and the error of the work', async () => {
    const { locks } = realScene()
    const lock = locks.readWrite('k')
    expect(await lock.read(() => 1)).toBe(1)
    expect(await lock.write(async () => 2)).toBe(2)
    expect(await lock.tryRead(() => 3)).toEqual({ ran: true, value: 3 })
    expect(await lock.tryWrite(() => 4)).toEqual({ ran: true, value: 4 })
    const broken = new Error('the work failed')
    expect(await errorOf(lock.write(() => Promise.reject(broken)))).toBe(broken)
    expect(await lock.tryWrite(() => 5)).toEqual({ ran: true, value: 5 })
  })

  test('a mutex on the same key is a writer', async () => {
    const { locks } = realScene()
    const lock = locks.readWrite('k')
    await locks.withLock('k', async () => {
      expect(await lock.tryAcquireRead()).toBeNull()
    })
    await lock.read(async () => {
      expect(await locks.tryAcquire('k')).toBeNull()
    })
  })

  test.each(['read', 'write'] as const)('to %s inside a read is a deadlock and named', async (kind) => {
    const { locks } = realScene()
    const lock = locks.readWrite('k')
    const inner = lock.read(() => lock[kind](() => 'never'))
    expect(await errorOf(inner)).toMatchObject({ name: 'DeadlockError', code: 'deadlock', key: 'k' })
  })
})

// One answer grants all of them, and the work of each blocks the event loop for the others.
test('a reader whose lease has run out before its turn does not begin', async () => {
  const clock = new FakeClock()
  const store = memoryStore({ now: clock.storeTime })
  const lock = startProcess(store, clock).locks.readWrite('k')
  const writer = await startProcess(store, clock).locks.readWrite('k').acquireWrite()
  const began: string[] = []
  const read = (lease: Lease) => {
    began.push(lease.state)
    clock.block(20)
  }
  const readers = Array.from({ length: 40 }, () => lock.read({ ttl: 300 }, read))
  const over = Promise.allSettled(readers)
  await settled()
  await writer.release()
  const outcomes = await over
  expect(began.length).toBeGreaterThan(1)
  expect(began.length).toBeLessThanOrEqual(300 / 20)
  expect(began).not.toContain('lost')
  for (const outcome of outcomes.slice(began.length))
    expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'lease-lost', reason: 'expired' } })
})
