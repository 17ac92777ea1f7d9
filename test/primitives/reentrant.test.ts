import { describe, expect, test } from 'vitest'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock, settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene, startProcess } from '../engine/scene.ts'

const reentrant = true
const unrun = () => expect.unreachable()

describe('a lock inside itself', () => {
  test('throws at once by default, in plain words, and does not wait for ever', async () => {
    const { store, locks } = scene()
    const inner = locks.withLock('k', () =>
      locks.withLock('k', { wait: Number.POSITIVE_INFINITY }, () => 'never'),
    )
    const error = await errorOf(inner)
    expect(error).toMatchObject({ name: 'DeadlockError', code: 'deadlock', key: 'k' })
    expect(error.message).toBe(
      'This async context holds "k" already, so waiting for it again may never end. Pass the lease along, take all permits at once, or give `withLock`, `read`, `write` or `withPermits` the option `reentrant: true`.',
    )
    expect(store.count('acquire')).toBe(1)
  })

  test('throws also behind functions, timers and other keys in between', async () => {
    const { locks } = realScene()
    const deep = locks.withLock('k', () =>
      locks.withLock('between', async () => {
        await new Promise((resolve) => setTimeout(resolve, 1))
        return locks.acquire('k')
      }),
    )
    expect(await errorOf(deep)).toMatchObject({ code: 'deadlock', key: 'k' })
  })

  test('is busy for a try, which never waits', async () => {
    const { locks } = realScene()
    await locks.withLock('k', async () => {
      expect(await locks.tryAcquire('k')).toBeNull()
      expect(await locks.tryWithLock('k', () => 'ran')).toEqual({ ran: false })
    })
  })

  test('runs under the outer lease with `reentrant: true`, and gives the key back only at the outer end', async () => {
    const { store, locks, other } = scene()
    await locks.withLock('k', async (outer) => {
      await locks.withLock('k', { reentrant }, async (inner) => {
        expect(inner).toBe(outer)
        await locks.withLock('k', { reentrant }, () => {})
      })
      expect(await locks.tryWithLock('k', { reentrant }, (inner) => inner === outer)).toEqual({
        ran: true,
        value: true,
      })
      expect(outer.state).toBe('held')
      expect(await other.locks.tryAcquire('k')).toBeNull()
    })
    expect(store.count('acquire')).toBe(1)
    expect(store.count('release')).toBe(1)
  })

  test.each<[string, (locks: Locks, options: { reentrant: true; signal: AbortSignal }) => Promise<unknown>]>([
    ['withLock', (locks, options) => locks.withLock('k', options, unrun)],
    ['tryWithLock', (locks, options) => locks.tryWithLock('k', options, unrun)],
    ['read', (locks, options) => locks.readWrite('k').read(options, unrun)],
    ['tryWrite', (locks, options) => locks.readWrite('k').tryWrite(options, unrun)],
    ['withPermits', (locks, options) => locks.semaphore('k', 1).withPermits(options, unrun)],
    ['tryWithPermits', (locks, options) => locks.semaphore('k', 1).tryWithPermits(options, unrun)],
  ])('does not begin when its signal has aborted: %s', async (_, call) => {
    const { locks } = scene()
    const reason = new Error('enough')
    await locks.withLock('k', async (outer) => {
      const inner = call(locks as Locks, { reentrant, signal: AbortSignal.abort(reason) })
      expect(await errorOf(inner)).toBe(reason)
      expect(outer.state).toBe('held')
    })
  })

  test('keeps the key when the inner work throws', async () => {
    const { locks } = scene()
    await locks.withLock('k', async (outer) => {
      const broken = new Error('the work failed')
      expect(await errorOf(locks.withLock('k', { reentrant }, () => Promise.reject(broken)))).toBe(broken)
      expect(outer.state).toBe('held')
    })
  })

  test('is waited for by the outer call, also when its promise is not awaited', async () => {
    const { clock, locks, other } = scene()
    let inside = 0
    let most = 0
    const work = async () => {
      inside += 1
      most = Math.max(most, inside)
      for (let turn = 0; turn < 5; turn += 1) await settled()
      inside -= 1
    }
    const left: Promise<unknown>[] = []
    const outer = locks.withLock('k', () => {
      left.push(
        // One inner call begins another one, and one fails.
        locks.withLock('k', { reentrant }, async () => {
          await work()
          left.push(locks.tryWithLock('k', { reentrant }, work))
        }),
        errorOf(locks.withLock('k', { reentrant }, () => Promise.reject(new Error('the work failed')))),
      )
      return 'outer'
    })
    const next = other.locks.withLock('k', work)
    expect(await clock.until(outer)).toBe('outer')
    await clock.until(next)
    expect(await Promise.all(left)).toEqual([undefined, expect.any(Error), { ran: true, value: undefined }])
    expect(most).toBe(1)
  })

  test('is no re-entry from another context: it waits its turn', async () => {
    const { locks } = realScene()
    const order: string[] = []
    const first = locks.withLock('k', { reentrant }, async () => {
      order.push('first in')
      await settled()
      order.push('first out')
    })
    const second = locks.withLock('k', { reentrant }, () => order.push('second'))
    await Promise.all([first, second])
    expect(order).toEqual(['first in', 'first out', 'second'])
  })

  test('may be allowed for all calls of one `Locks`, and taken back for one', async () => {
    const locks = createLocks(memoryStore(), { reentrant })
    const lock = locks.readWrite('k')
    expect(await locks.withLock('k', () => locks.withLock('k', () => 1))).toBe(1)
    expect(await lock.write(() => lock.read(() => 2))).toBe(2)
    const strict = locks.withLock('k', () => locks.withLock('k', { reentrant: false }, () => 3))
    expect(await errorOf(strict)).toMatchObject({ code: 'deadlock' })
    await locks.close()
  })

  test('reads under its own write lock, and does not write under its own read lock', async () => {
    const { locks } = scene()
    const lock = locks.readWrite('k')
    expect(await lock.write(() => lock.read({ reentrant }, () => 'read'))).toBe('read')
    expect(await lock.read(() => lock.read({ reentrant }, () => 'read'))).toBe('read')
    const upgrade = lock.read(() => lock.write({ reentrant }, () => 'never'))
    const error = await errorOf(upgrade)
    expect(error).toMatchObject({ code: 'deadlock', key: 'k' })
    expect(error.message).toContain('cannot be upgraded')
    expect(await errorOf(lock.read(() => lock.tryWrite({ reentrant }, () => 'never')))).toMatchObject({
      code: 'deadlock',
    })
  })

  test('is forgotten after the release: work that was left behind waits like any other', async () => {
    const { clock, locks, other } = scene()
    let go: () => void = () => {}
    const gate = new Promise<void>((resolve) => {
      go = resolve
    })
    let late: Promise<string> | undefined
    await locks.withLock('k', async () => {
      late = gate.then(() => locks.withLock('k', { reentrant }, () => 'late'))
    })
    const held = await other.locks.acquire('k')
    go()
    expect(await outcomeOf(late ?? Promise.reject())).toBe('pending')
    await held.release()
    expect(await clock.until(late ?? Promise.reject())).toBe('late')
  })

  test('of a lease that was lost does not run under it', async () => {
    const { clock, locks } = scene()
    const work = locks.withLock('k', { ttl: 1000, renew: false }, async () => {
      clock.block(1000)
      return locks.withLock('k', { reentrant }, (lease) => lease.state)
    })
    expect(await errorOf(work)).toMatchObject({ code: 'lease-lost', reason: 'expired' })
  })
})

test.each(['looked at', 'closed'])(
  'the listener of a lease that is %s inside another scope is not in that scope',
  async (how) => {
    const clock = new FakeClock()
    const { locks } = startProcess(memoryStore({ now: clock.storeTime }), clock)
    const { locks: others } = startProcess(memoryStore({ now: clock.storeTime }), clock)
    const lease = await others.acquire('b', { ttl: 1000, renew: false })
    const tried: unknown[] = []
    lease.signal.addEventListener('abort', () => {
      tried.push(locks.tryWithLock('a', { reentrant: true }, () => 'in'))
    })
    await locks.withLock('a', async () => {
      if (how === 'closed') await others.close()
      else {
        clock.block(1000)
        expect(lease.state).toBe('lost')
      }
      expect(await Promise.all(tried)).toEqual([{ ran: false }])
    })
  },
)

test('a re-entrant call inside several keys is waited for, also when its promise is not awaited', async () => {
  const { locks } = realScene()
  let inside = 0
  let most = 0
  const work = async () => {
    inside += 1
    most = Math.max(most, inside)
    for (let turn = 0; turn < 5; turn += 1) await settled()
    inside -= 1
  }
  let left: Promise<void> | undefined
  await locks.withLocks(['k', 'l'], () => {
    left = locks.withLock('k', { reentrant: true }, work)
  })
  await locks.withLock('k', work)
  await left
  expect(most).toBe(1)
})
