import { describe, expect, test } from 'vitest'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene } from '../engine/scene.ts'

/** A barrier: lets a number of contexts arrive, and then all of them go on. */
function meeting(parties: number): () => Promise<void> {
  let go: () => void = () => {}
  const all = new Promise<void>((resolve) => {
    go = resolve
  })
  let arrived = 0
  return async () => {
    arrived += 1
    if (arrived === parties) go()
    await all
  }
}

describe('contexts that wait for one another', () => {
  test('are told by the context that closes the circle, with both sides, and the other one goes on', async () => {
    const { locks } = realScene()
    const met = meeting(2)
    const side = (mine: string, theirs: string) =>
      locks.withLock(mine, async () => {
        await met()
        return locks.withLock(theirs, () => `${mine} then ${theirs}`)
      })
    const [one, two] = await Promise.allSettled([side('a', 'b'), side('b', 'a')])
    const failed = [one, two].filter(({ status }) => status === 'rejected')
    expect(failed).toHaveLength(1)
    const error = failed[0]?.status === 'rejected' ? failed[0].reason : undefined
    expect(error).toMatchObject({ name: 'DeadlockError', code: 'deadlock' })
    expect(error.message).toContain('one holds "a" and waits for "b"')
    expect(error.message).toContain('one holds "b" and waits for "a"')
    expect(error.message).toContain('withLocks')
    // The error shows where the other side waits. A user needs that to find the place in the code.
    expect(error.cause).toBeInstanceOf(Error)
    expect(error.cause.stack).toContain('deadlock.test.ts')
  })

  test('are told in a circle of three, with all sides', async () => {
    const { locks } = realScene()
    const met = meeting(3)
    const side = (mine: string, theirs: string) =>
      locks.withLock(mine, async () => {
        await met()
        return locks.withLock(theirs, () => 'both')
      })
    const all = await Promise.allSettled([side('a', 'b'), side('b', 'c'), side('c', 'a')])
    const errors = all.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    expect(errors).toHaveLength(1)
    for (const [mine, theirs] of [
      ['a', 'b'],
      ['b', 'c'],
      ['c', 'a'],
    ])
      expect(errors[0].message).toContain(`one holds "${mine}" and waits for "${theirs}"`)
  })

  test('are told when the circle closes later, as keys change hands', async () => {
    const { clock, locks, other } = scene()
    const foreign = await other.locks.acquire('b')
    // Another process holds b. So no context here waits for another one here yet.
    const first = locks.withLock('c', () =>
      locks.withLock('b', async () => errorOf(locks.acquire('a', { wait: '1m' }))),
    )
    await clock.advance(10)
    const second = locks.withLock('a', () => locks.withLock('b', () => 'second'))
    await clock.advance(5000)
    expect(await outcomeOf(Promise.race([first, second]))).toBe('pending')
    await foreign.release()
    const error = await clock.until(first, { withinMs: 100 })
    expect(error).toMatchObject({ code: 'deadlock', key: 'a' })
    expect(error.message).toContain('one holds "c" and "b" and waits for "a"')
    expect(await clock.until(second, { withinMs: 100 })).toBe('second')
  })

  test('are told when they hold several keys each', async () => {
    const { locks } = realScene()
    const met = meeting(2)
    const side = (mine: string[], theirs: string[]) =>
      locks.withLocks(mine, async () => {
        await met()
        return locks.withLocks(theirs, () => 'all')
      })
    const all = await Promise.allSettled([side(['a', 'b'], ['c', 'd']), side(['c', 'd'], ['a', 'b'])])
    const errors = all.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
    expect(errors).toMatchObject([{ code: 'deadlock' }])
    expect(errors[0].message).toContain('waits for "a"')
    expect(errors[0].message).toContain('waits for "c"')
  })

  test('are told across two stores, and across read, write and permits', async () => {
    const { clock, locks } = scene()
    const elsewhere = scene()
    const met = meeting(2)
    const one = locks.readWrite('a').read(async () => {
      await met()
      return elsewhere.locks.semaphore('b', 2).withPermits({ units: 2 }, () => 'one')
    })
    const two = elsewhere.locks.semaphore('b', 2).withPermits(async () => {
      await met()
      return locks.readWrite('a').write(() => 'two')
    })
    const all = await clock.until(Promise.allSettled([one, two]))
    expect(all.filter(({ status }) => status === 'rejected')).toMatchObject([
      { reason: { code: 'deadlock' } },
    ])
  })

  test('do not leave their circle behind: the same keys work afterwards', async () => {
    const { locks } = realScene()
    for (let round = 0; round < 20; round += 1) {
      const met = meeting(2)
      const side = (mine: string, theirs: string) =>
        locks.withLock(mine, async () => {
          await met()
          return locks.withLock(theirs, () => 'both')
        })
      const all = await Promise.allSettled([side('a', 'b'), side('b', 'a')])
      expect(all.filter(({ status }) => status === 'rejected')).toHaveLength(1)
      expect(await locks.withLock('a', () => locks.withLock('b', () => 'in order'))).toBe('in order')
    }
  })
})

describe('no false alarm', () => {
  test('for contexts that take the keys in the same order', async () => {
    const { locks } = realScene()
    let done = 0
    await Promise.all(
      Array.from({ length: 50 }, () =>
        locks.withLock('a', () =>
          locks.withLock('b', async () => {
            await settled()
            done += 1
          }),
        ),
      ),
    )
    expect(done).toBe(50)
  })

  test('for the same key names on stores that have nothing to do with each other', async () => {
    const one = scene()
    const two = scene()
    await one.locks.withLock('k', async () => {
      expect(await two.locks.withLock('k', () => 'another k')).toBe('another k')
    })
    // a here waits for b here. The holder of b waits for a *there*, which is free soon.
    const held = await two.locks.acquire('a')
    const first = one.locks.withLock('b', () => two.locks.withLock('a', () => 'first'))
    await one.clock.advance(10)
    const second = one.locks.withLock('a', () => one.locks.withLock('b', () => 'second'))
    await one.clock.advance(10)
    await two.clock.advance(10)
    expect(await outcomeOf(Promise.race([first, second]))).toBe('pending')
    await held.release()
    expect(await two.clock.until(first)).toBe('first')
    expect(await one.clock.until(second)).toBe('second')
  })

  test('for a lease by another store object, which may be of another database', async () => {
    const { clock, locks, other } = scene()
    await locks.withLock('k', async () => {
      const waiting = errorOf(other.locks.acquire('k', { wait: 100 }))
      expect(await clock.until(waiting)).toMatchObject({ code: 'acquire-timeout' })
    })
  })

  test('for readers and for permits that fit side by side', async () => {
    const { clock, locks, other } = scene()
    const foreign = await Promise.all([
      other.locks.semaphore('x', 2).acquire(),
      other.locks.semaphore('y', 2).acquire(),
    ])
    const met = meeting(2)
    const side = (mine: string, theirs: string) =>
      locks.semaphore(mine, 2).withPermits(async () => {
        await met()
        return locks.semaphore(theirs, 2).withPermits(() => 'both')
      })
    const both = Promise.all([side('x', 'y'), side('y', 'x')])
    await clock.advance(100)
    expect(await outcomeOf(both)).toBe('pending')
    for (const lease of foreign) await lease.release()
    expect(await clock.until(both)).toEqual(['both', 'both'])
  })

  test('for work that was left behind after its lock was released', async () => {
    const { clock, locks } = scene()
    let late: Promise<string> | undefined
    let go: () => void = () => {}
    const gate = new Promise<void>((resolve) => {
      go = resolve
    })
    await locks.withLock('a', async () => {
      late = gate.then(() => locks.withLock('b', () => 'late'))
    })
    // b is held by another context, which waits for a. The context that waits for b held a once.
    const busy = await locks.acquire('a')
    const holder = locks.withLock('b', () => locks.withLock('a', () => 'holder'))
    await clock.advance(10)
    go()
    await clock.advance(10)
    expect(await outcomeOf(late ?? Promise.reject())).toBe('pending')
    await busy.release()
    expect(await clock.until(holder)).toBe('holder')
    expect(await clock.until(late ?? Promise.reject())).toBe('late')
  })

  test('for a wait that has ended: a timeout breaks the circle before it closes', async () => {
    const { clock, locks } = scene()
    let go: () => void = () => {}
    const gate = new Promise<void>((resolve) => {
      go = resolve
    })
    const one = locks.withLock('a', async () => {
      await errorOf(locks.acquire('b', { wait: 100 }))
      go()
      return 'one gave up on b'
    })
    const two = locks.withLock('b', async () => {
      await gate
      return locks.withLock('a', () => 'two')
    })
    expect(await clock.until(one)).toBe('one gave up on b')
    expect(await clock.until(two)).toBe('two')
  })

  test('for a lease from acquire(), which belongs to no particular context', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k')
    const waiting = locks.acquire('k')
    await clock.advance(10)
    await lease.release()
    await (await clock.until(waiting)).release()
  })
})

test('a set that waits while it holds a part of its keys takes part in a circle that is told', async () => {
  const { locks } = realScene()
  const terms = { wait: 1000 }
  let go: () => void = () => {}
  const begun = new Promise<void>((resolve) => {
    go = resolve
  })
  const nested = locks.withLock('b', async () => {
    go()
    await new Promise((resolve) => setImmediate(resolve))
    return locks.withLock('a', terms, () => 'nested')
  })
  await begun
  const set = locks.withLocks(['a', 'b'], terms, () => 'set')
  const all = await Promise.allSettled([nested, set])
  expect(all.filter(({ status }) => status === 'rejected')).toMatchObject([{ reason: { code: 'deadlock' } }])
})
