import { describe, expect, test } from 'vitest'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene } from '../engine/scene.ts'

describe('a semaphore', () => {
  test('lets as many tickets in as it has permits, and never more', async () => {
    const { locks } = realScene()
    const semaphore = locks.semaphore('k', 5)
    let inside = 0
    let most = 0
    await Promise.all(
      Array.from({ length: 60 }, () =>
        semaphore.withPermits(async () => {
          inside += 1
          most = Math.max(most, inside)
          await settled()
          inside -= 1
        }),
      ),
    )
    expect(most).toBe(5)
  })

  test('counts weights: the sum never exceeds its permits, whatever the mix', async () => {
    const { locks } = realScene()
    const semaphore = locks.semaphore('k', 10)
    let sum = 0
    let most = 0
    await Promise.all(
      Array.from({ length: 100 }, (_, index) => {
        const units = 1 + ((index * 7) % 10)
        return semaphore.withPermits({ units }, async () => {
          sum += units
          most = Math.max(most, sum)
          await settled()
          sum -= units
        })
      }),
    )
    expect(most).toBeGreaterThan(6)
    expect(most).toBeLessThanOrEqual(10)
  })

  test('does not let small calls overtake a wide one that waits', async () => {
    const { clock, locks } = scene()
    const semaphore = locks.semaphore('k', 3)
    const first = await semaphore.acquire()
    const order: string[] = []
    const wide = semaphore.acquire({ units: 3 }).then((lease) => {
      order.push('wide')
      return lease
    })
    await clock.advance(10)
    const small = semaphore.acquire().then((lease) => {
      order.push('small')
      return lease
    })
    await clock.advance(10)
    expect(await semaphore.tryAcquire()).toBeNull()
    await first.release()
    await (await clock.until(wide)).release()
    await (await clock.until(small)).release()
    expect(order).toEqual(['wide', 'small'])
  })

  test('lets in as soon as enough is free, and not before', async () => {
    const { clock, locks } = scene()
    const semaphore = locks.semaphore('k', 4)
    const leases = await Promise.all([semaphore.acquire({ units: 2 }), semaphore.acquire({ units: 2 })])
    const wanted = semaphore.acquire({ units: 4 })
    await clock.advance(10)
    await leases[0].release()
    expect(await outcomeOf(wanted)).toBe('pending')
    await leases[1].release()
    await (await clock.until(wanted)).release()
  })

  test('of two sizes on one key keeps to the smaller one while both are used', async () => {
    const { locks, other } = scene()
    const old = locks.semaphore('k', 2)
    const grown = other.locks.semaphore('k', 5)
    const leases = [await grown.acquire(), await old.acquire()]
    expect(await grown.tryAcquire()).toBeNull()
    await leases[1]?.release()
    const more = await Promise.all(Array.from({ length: 4 }, () => grown.tryAcquire()))
    expect(more).not.toContain(null)
    expect(await old.tryAcquire()).toBeNull()
    for (const lease of [leases[0], ...more]) await lease?.release()
  })

  test('does not take an answer without permits for a failure', async () => {
    const { locks } = realScene()
    const semaphore = locks.semaphore('k', 1)
    const lease = await semaphore.acquire()
    expect(await semaphore.tryWithPermits(() => 'ran')).toEqual({ ran: false })
    await lease.release()
    expect(await semaphore.tryWithPermits({ units: 1 }, () => 'ran')).toEqual({
      ran: true,
      value: 'ran',
    })
  })

  test.each([0, 6, -1, 1.5, Number.NaN, '2', null])('refuses %s units of five', async (units) => {
    const { store, locks } = scene()
    const error = await errorOf(locks.semaphore('k', 5).acquire({ units: units as number }))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toMatch(/^Expected `units` to be a whole number from 1 to 5, got /)
    expect(store.sent).toEqual([])
  })

  test.each([0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 1_000_001, '5', undefined])(
    'of %s permits is refused',
    (permits) => {
      const { locks } = scene()
      expect(() => locks.semaphore('k', permits as number)).toThrow(
        /^Expected `permits` to be a whole number from 1 to 1000000, got /,
      )
    },
  )

  // Two contexts with one permit each, and a wide call between them, would wait for ever.
  test('gives no second permit to a context that holds one: it may never come', async () => {
    const { store, locks } = scene()
    const semaphore = locks.semaphore('k', 5)
    const inner = semaphore.withPermits(() => semaphore.acquire())
    expect(await errorOf(inner)).toMatchObject({ name: 'DeadlockError', code: 'deadlock', key: 'k' })
    expect(store.count('acquire')).toBe(1)
  })

  test('runs a re-entrant call under the outer permits if the inner ones do not suffice', async () => {
    const { locks } = scene()
    const semaphore = locks.semaphore('s', 5)
    const reentrant = true
    const ran = await semaphore.withPermits({ units: 3 }, (outer) =>
      semaphore.tryWithPermits((inner) => {
        expect(inner).not.toBe(outer)
        return semaphore.withPermits({ units: 2, reentrant }, (lease) => lease === outer)
      }),
    )
    expect(ran).toEqual({ ran: true, value: true })
  })

  test('gives a context that holds permits its own ones with `reentrant: true`, if they suffice', async () => {
    const { store, locks } = scene()
    const semaphore = locks.semaphore('k', 5)
    const reentrant = true
    const both = semaphore.withPermits({ units: 3 }, (outer) =>
      semaphore.withPermits({ units: 2, reentrant }, (inner) => inner === outer),
    )
    expect(await both).toBe(true)
    expect(store.count('acquire')).toBe(1)
    const more = semaphore.withPermits(() => semaphore.withPermits({ units: 2, reentrant }, () => 'never'))
    expect(await errorOf(more)).toMatchObject({ code: 'deadlock', key: 'k' })
  })

  test('lets a context that holds a permit try for another one, which never waits', async () => {
    const { locks } = scene()
    const semaphore = locks.semaphore('k', 2)
    await semaphore.withPermits(async () => {
      const second = await semaphore.tryAcquire()
      expect(second).not.toBeNull()
      expect(await semaphore.tryAcquire()).toBeNull()
      await second?.release()
    })
  })
})
