import { getEventListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import type { HeldLease } from '../../src/engine/held-lease.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene } from '../engine/scene.ts'
import { Letter } from '../engine/scripted-store.ts'

describe.each([
  ['one by one', { takesAll: false }],
  ['at once where they are free', { takesAll: true }],
])('several keys, taken %s,', (_, options) => {
  test('are all held while the work runs, and none after it', async () => {
    const { locks, rooms } = scene(options)
    await locks.withLocks(['b', 'a', 'b'], async (leases) => {
      expect(leases.keys).toEqual(['a', 'b'])
      expect((await rooms()).map(({ key }) => key)).toEqual(['a', 'b'])
      expect(leases.state).toBe('held')
      expect(leases.fence('a')).toBe(leases.leases[0]?.fence)
      leases.assertHeld()
    })
    expect(await rooms()).toEqual([])
  })

  test('take no minHold: one key may be given back because another is busy, and would stay taken for nothing', async () => {
    const { locks, store } = scene(options)
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
    const { locks, other, rooms } = scene(options)
    const held = await other.locks.acquire('c')
    expect(await locks.tryAcquireAll(['a', 'b', 'c'])).toBeNull()
    expect(await locks.tryWithLocks(['c', 'a'], () => 'ran')).toEqual({ ran: false })
    expect((await rooms()).map(({ key }) => key)).toEqual(['c'])
    await held.release()
    expect(await locks.tryWithLocks(['c', 'a'], () => 'ran')).toEqual({ ran: true, value: 'ran' })
  })

  test('that are not all free in time hold none of them', async () => {
    const { clock, locks, other, rooms } = scene(options)
    const held = await other.locks.acquire('c')
    const error = await clock.until(errorOf(locks.acquireAll(['a', 'b', 'c'], { wait: 500 })))
    expect(error).toMatchObject({ code: 'acquire-timeout', key: 'c' })
    expect((await rooms()).map(({ key }) => key)).toEqual(['c'])
    await held.release()
  })

  test('whose wait is aborted hold none of them', async () => {
    const { clock, locks, other, rooms } = scene(options)
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

  test('whose wait is aborted do not wait for a silent store', async () => {
    const { clock, locks, other, store } = scene(options)
    const held = await other.locks.acquire('b')
    const giveUp = new AbortController()
    const waiting = errorOf(locks.acquireAll(['a', 'b'], { signal: giveUp.signal }))
    await clock.advance(100)
    store.always('lose request')
    const reason = new Error('the user left')
    giveUp.abort(reason)
    expect(await outcomeOf(waiting)).toEqual({ value: reason })
    store.always('answer')
    await clock.advance(60_000)
    await held.release()
  })

  test('with wait: 0 are taken when all are free', async () => {
    const { locks } = scene(options)
    const outcome = await outcomeOf(
      locks.acquireAll(['a', 'b', 'c'], { wait: 0 }).then((leases) => leases.release()),
    )
    expect(outcome).toEqual({ value: undefined })
  })

  test('that are not free in time say how long the whole call waited', async () => {
    const { clock, locks, other } = scene(options)
    const a = await other.locks.acquire('a')
    const b = await other.locks.acquire('b')
    const waiting = errorOf(locks.acquireAll(['a', 'b'], { wait: 1000 }))
    await clock.advance(600)
    await a.release()
    const error = await clock.until(waiting)
    await b.release()
    expect(error).toMatchObject({ code: 'acquire-timeout', waitedMs: 1000 })
  })

  test('keep the taken keys alive while the rest is awaited', async () => {
    const { clock, locks, other } = scene(options)
    const held = await other.locks.acquire('b')
    const waiting = locks.acquireAll(['a', 'b'], { ttl: 1000, wait: '1h' })
    await clock.advance(60_000)
    expect(await other.locks.tryAcquire('a')).toBeNull()
    await held.release()
    const leases = await clock.until(waiting)
    leases.assertHeld()
    await leases.release()
  })

  test('with renew: false all last for their ttl from the grant of the last, and no longer', async () => {
    const { clock, locks, other } = scene(options)
    const held = await other.locks.acquire('c')
    const waiting = locks.acquireAll(['a', 'b', 'c'], { ttl: 1000, renew: false, wait: '1h' })
    await clock.advance(60_000)
    await held.release()
    const leases = await clock.until(waiting, { withinMs: 50 })
    expect(leases.remainingMs).toBeGreaterThan(900)
    await clock.advance(leases.remainingMs - 1)
    expect(leases.leases.map(({ state }) => state)).toEqual(['held', 'held', 'held'])
    await clock.advance(60)
    expect(leases.leases.map(({ state }) => state)).toEqual(['lost', 'lost', 'lost'])
    await leases.release()
  })

  test('with renew: false end the wait by a signal also while the store is silent', async () => {
    const { clock, locks, other, store } = scene(options)
    const held = await other.locks.acquire('b')
    const giveUp = new AbortController()
    const terms = { ttl: 60_000, renew: false, wait: '1h', signal: giveUp.signal }
    const waiting = errorOf(locks.acquireAll(['a', 'b'], terms))
    await clock.advance(100)
    store.next('renew', 'lose request')
    await held.release()
    await clock.advance(100)
    const reason = new Error('the user left')
    giveUp.abort(reason)
    expect(await waiting).toBe(reason)
    await clock.advance(60_000)
  })

  test.each([
    { terms: { wait: '1h', storeTimeout: 2000 }, limitMs: 2000 },
    { terms: { wait: 5000 }, limitMs: 4900 },
    { terms: { wait: 200 }, limitMs: 500 },
  ])(
    'with renew: false are not awaited for longer than $terms while the store is silent',
    async ({ terms, limitMs }) => {
      const { clock, locks, other, store, rooms } = scene(options)
      const held = await other.locks.acquire('b')
      const waiting = errorOf(locks.acquireAll(['a', 'b'], { ttl: 60_000, renew: false, ...terms }))
      await clock.advance(100)
      const renew = store.renew.bind(store)
      store.renew = () => new Promise(() => {})
      await held.release()
      const since = clock.monotonicMs()
      const error = await clock.until(waiting)
      expect(error).toMatchObject({ code: 'store-unavailable', key: 'a' })
      expect(clock.monotonicMs() - since).toBeLessThan(limitMs + 50)
      expect(await rooms()).toEqual([])
      store.renew = renew
      await clock.advance(60_000)
    },
  )

  test('are not delivered when one was lost while the rest was awaited', async () => {
    const { clock, locks, other } = scene(options)
    const held = await other.locks.acquire('b')
    const waiting = errorOf(locks.acquireAll(['a', 'b'], { ttl: 5000, wait: '1h' }))
    await clock.advance(100)
    await other.locks.evictAll('a', { reason: 'stuck' })
    await clock.advance(5000)
    await held.release()
    expect(await clock.until(waiting)).toMatchObject({ code: 'lease-lost', key: 'a' })
  })

  test('are given back at once when one is lost while another is awaited', async () => {
    const { clock, locks, other, rooms } = scene(options)
    const held = await other.locks.acquire('c')
    const waiting = errorOf(locks.acquireAll(['a', 'b', 'c'], { wait: Number.POSITIVE_INFINITY }))
    await clock.advance(100)
    await other.locks.evictAll('a', { reason: 'stuck' })
    expect(await clock.until(waiting, { withinMs: 100 })).toMatchObject({
      code: 'lease-lost',
      key: 'a',
      evictedBecause: 'stuck',
    })
    await settled()
    expect((await rooms()).map(({ key, queue }) => [key, queue.length])).toEqual([['c', 0]])
    await held.release()
  })

  test('are given back when one runs out before the wait for another begins', async () => {
    const { clock, locks, other, store } = scene(options)
    const held = await other.locks.acquire('b')
    const letter = new Letter()
    store.next('acquire', 'answer', letter)
    const waiting = errorOf(locks.acquireAll(['a', 'b'], { ttl: 1000, renew: false, wait: '1h' }))
    await settled()
    letter.arrive()
    clock.block(1000)
    letter.reply()
    expect(await clock.until(waiting, { withinMs: 100 })).toMatchObject({ code: 'lease-lost', key: 'a' })
    await held.release()
  })

  test('are watched for a loss only if another is awaited', async () => {
    const { clock, locks, other } = scene(options)
    const free = await locks.acquireAll(['a', 'b'])
    expect((free.leases as readonly HeldLease[]).map(({ isWatched }) => isWatched)).toEqual([false, false])
    await free.release()
    const held = await other.locks.acquire('b')
    const waiting = locks.acquireAll(['a', 'b'])
    await clock.advance(100)
    await held.release()
    const awaited = await clock.until(waiting)
    const [first] = awaited.leases
    expect(getEventListeners(first?.signal as AbortSignal, 'abort')).toEqual([])
    await awaited.release()
  })

  test('are lost together: one loss aborts the common signal', async () => {
    const { clock, locks, other } = scene(options)
    const leases = await locks.acquireAll(['a', 'b'], { ttl: 5000 })
    const signal = leases.signal
    await clock.advance(1)
    await other.locks.evictAll('b', { reason: 'stuck' })
    await clock.advance(1)
    expect(signal.reason).toMatchObject({ code: 'lease-lost', key: 'b' })
    expect(leases.state).toBe('lost')
    expect(leases.remainingMs).toBe(0)
    expect(() => leases.assertHeld()).toThrow(signal.reason)
    await leases.release()
  })

  test('make work that lost one of them reject, and release the others', async () => {
    const { clock, locks, other, rooms } = scene(options)
    const work = locks.withLocks(['a', 'b'], { ttl: 5000 }, async () => {
      await other.locks.evictAll('a', { reason: 'stuck' })
      await clock.advance(5000)
      return 'written'
    })
    expect(await errorOf(work)).toMatchObject({ code: 'lease-lost', reason: 'evicted', key: 'a' })
    expect(await rooms()).toEqual([])
  })

  test('are extended together', async () => {
    const { locks } = scene(options)
    await using leases = await locks.acquireAll(['a', 'b'], { ttl: 5000 })
    await leases.extend('1m')
    expect(leases.remainingMs).toBeGreaterThan(55_000)
  })

  test('tell which fence belongs to which, and refuse a key that is none of them', async () => {
    const { locks } = scene(options)
    await using leases = await locks.acquireAll(['a', 'b'])
    expect(() => leases.fence('c')).toThrow(
      'Expected `key` to be one of the keys held together ("a", "b"), got "c".',
    )
    expect(leases.toJSON().map(({ key }) => key)).toEqual(['a', 'b'])
  })
})

describe('overlapping sets never deadlock', () => {
  test('and no two sets that share a key are ever in at once', async () => {
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

test('keys of the memory store are given back at once when one is lost while another is awaited', async () => {
  const { locks } = realScene()
  const held = await locks.acquire('c')
  const waiting = errorOf(locks.acquireAll(['a', 'b', 'c'], { wait: Number.POSITIVE_INFINITY }))
  await settled()
  await locks.evictAll('a', { reason: 'stuck' })
  expect(await waiting).toMatchObject({ code: 'lease-lost', key: 'a' })
  await held.release()
})

describe('several keys at once', () => {
  const options = { takesAll: true }

  test('are one request, and told like any others', async () => {
    const { locks, store } = scene(options)
    const told: string[] = []
    locks.on('requested', ({ key }) => told.push(`requested ${key}`))
    locks.on('acquired', ({ key, fence, queued }) => told.push(`acquired ${key} ${fence} ${queued}`))
    const leases = await locks.acquireAll(['b', 'a'])
    expect(store.sent.map(({ verb }) => verb)).toEqual(['acquireAll'])
    const [a, b] = [leases.fence('a'), leases.fence('b')]
    expect(told).toEqual(['requested a', `acquired a ${a} false`, 'requested b', `acquired b ${b} false`])
    await leases.release()
    expect(await locks.tryWithLocks(['b', 'a'], () => 'ran')).toEqual({ ran: true, value: 'ran' })
    expect([store.count('acquireAll'), store.count('acquire')]).toEqual([2, 0])
  })

  test('are not asked for where one key is enough, nor where one is held here', async () => {
    const { locks, store } = scene(options)
    await locks.withLocks(['a', 'a'], async () => {
      expect(await errorOf(locks.acquireAll(['a', 'b']))).toMatchObject({ code: 'deadlock' })
      expect(await locks.tryAcquireAll(['a', 'b'])).toBeNull()
    })
    expect(store.count('acquireAll')).toBe(0)
  })

  test('of which one is taken are waited for in their order, and no event tells of the attempt', async () => {
    const { clock, locks, other, store } = scene(options)
    const held = await other.locks.acquire('b')
    const told: string[] = []
    locks.on('requested', ({ key }) => told.push(key))
    const waiting = locks.acquireAll(['a', 'b', 'c'], { wait: '1h' })
    await clock.advance(100)
    expect(told).toEqual(['a', 'b'])
    await held.release()
    await (await clock.until(waiting)).release()
    expect([store.count('acquireAll'), store.count('acquire')]).toEqual([1, 3])
  })

  test.each(['lose request', 'lose reply', 'fail', 'fail late', 'refuse'] as const)(
    'whose request suffers “%s” are given back, and taken one by one',
    async (fate) => {
      const { clock, locks, store } = scene(options)
      store.next('acquireAll', fate)
      const leases = await clock.until(locks.acquireAll(['a', 'b'], { wait: '1m' }))
      const [asked] = store.sent
      const ids = asked?.tickets.map(({ id }) => id)
      expect(leases.leases.some(({ id }) => ids?.includes(id))).toBe(false)
      expect(store.sent.filter(({ verb, cancel }) => verb === 'release' && cancel)).toHaveLength(2)
      leases.assertHeld()
      await leases.release()
    },
  )

  test.each<[string, (locks: Locks) => Promise<unknown>]>([
    ['tryAcquireAll', async (locks) => (await locks.tryAcquireAll(['a', 'b']))?.release()],
    ['tryWithLocks', (locks) => locks.tryWithLocks(['a', 'b'], () => {})],
    ['acquireAll with wait: 0', async (locks) => (await locks.acquireAll(['a', 'b'], { wait: 0 })).release()],
  ])('whose reply is lost are asked for again after their release (%s)', async (_, take) => {
    const { clock, locks, store } = scene(options)
    let granted = 0
    locks.on('acquired', () => {
      granted += 1
    })
    const releases = [new Letter(), new Letter()]
    store.next('acquireAll', 'fail late')
    store.next('release', ...releases)
    const taken = take(locks)
    await settled()
    for (const letter of releases) letter.arrive().reply()
    await clock.until(taken)
    expect(granted).toBe(2)
  })

  test.each([
    ['acquireAll', 'before'],
    ['acquireAll', 'after'],
    ['tryAcquireAll', 'before'],
    ['tryAcquireAll', 'after'],
  ] as const)(
    'answered after the caller has gone (%s, and arrived %s) are given back',
    async (call, arrival) => {
      const { clock, locks, store, rooms } = scene(options)
      const letter = new Letter()
      store.next('acquireAll', letter)
      const giveUp = new AbortController()
      const waiting = errorOf(locks[call](['a', 'b'], { signal: giveUp.signal }))
      await settled()
      if (arrival === 'before') letter.arrive()
      const reason = new Error('the user left')
      giveUp.abort(reason)
      expect(await waiting).toBe(reason)
      if (arrival === 'after') letter.arrive()
      await settled()
      letter.reply()
      await clock.advance(10)
      expect(await rooms()).toEqual([])
    },
  )

  test('are not asked for by a caller that has gone, nor by locks that are closed', async () => {
    const { clock, locks, store } = scene(options)
    const reason = new Error('the user left')
    expect(await errorOf(locks.acquireAll(['a', 'b'], { signal: AbortSignal.abort(reason) }))).toBe(reason)
    await clock.until(locks.close())
    expect(await errorOf(locks.acquireAll(['a', 'b']))).toMatchObject({ code: 'closed' })
    expect(store.count('acquireAll')).toBe(0)
  })

  test('that are under way when the locks are closed are given back before the store is', async () => {
    const { clock, locks, store, rooms } = scene(options)
    const letter = new Letter()
    store.next('acquireAll', letter)
    const waiting = errorOf(locks.acquireAll(['a', 'b']))
    await settled()
    const closing = locks.close()
    await settled()
    letter.arrive()
    await settled()
    letter.reply()
    expect(await clock.until(waiting)).toMatchObject({ code: 'closed' })
    await clock.until(closing)
    expect(await rooms()).toEqual([])
  })

  test('whose answer took longer than their ttl prove nothing', async () => {
    const { clock, locks, store } = scene(options)
    const letter = new Letter()
    store.next('acquireAll', letter)
    const waiting = locks.acquireAll(['a', 'b'], { ttl: 1000, wait: '1m' })
    await settled()
    letter.arrive()
    await clock.advance(1500)
    letter.reply()
    const leases = await clock.until(waiting)
    expect(store.count('acquire')).toBe(2)
    leases.assertHeld()
    await leases.release()
  })
})
