import { describe, expect, test } from 'vitest'
import { paused } from '../../src/base/clock.ts'
import { createLocks, type OnceOptions, type Outcome } from '../../src/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene } from '../engine/scene.ts'
import { startMasters } from '../stores/redlock/masters.ts'

const HOUR_MS = 3_600_000
const HOUR: OnceOptions = { remember: '1h' }
const DONE_BEFORE: Outcome<never> = { ran: false }

describe('once', () => {
  test('runs work that succeeds once, for all processes, until it is forgotten', async () => {
    const { locks, other, clock, rooms } = scene()
    let runs = 0
    const work = () => {
      runs += 1
      return runs
    }
    expect(await locks.once('k', HOUR, work)).toEqual({ ran: true, value: 1 })
    expect(await locks.once('k', HOUR, work)).toEqual(DONE_BEFORE)
    expect(await other.locks.once('k', HOUR, work)).toEqual(DONE_BEFORE)
    await clock.advance(HOUR_MS - 1)
    expect(await other.locks.once('k', HOUR, work)).toEqual(DONE_BEFORE)
    await clock.advance(1)
    expect(await rooms()).toEqual([])
    expect(await other.locks.once('k', HOUR, work)).toEqual({ ran: true, value: 2 })
    await clock.advance(HOUR_MS)
  })

  test('gives the first result to the calls that come meanwhile and later, if both keep it', async () => {
    const { locks, other, clock } = scene()
    const keeping: OnceOptions = { ...HOUR, keepResult: true }
    let finish = (_value: object) => {}
    const first = locks.once('k', keeping, () => new Promise<object>((resolve) => (finish = resolve)))
    await settled()
    const meanwhile = other.locks.once('k', keeping, () => ({ id: 1 }))
    await clock.advance(1000)
    const result = { id: 7, name: 'ü\0\ud800"', nested: [null, { deep: true }] }
    finish(result)
    expect(await first).toEqual({ ran: true, value: result })
    expect(await clock.until(meanwhile)).toEqual({ ran: false, value: result })
    expect(await other.locks.once('k', keeping, () => ({}))).toEqual({ ran: false, value: result })
    expect(await other.locks.once('k', HOUR, () => ({}))).toStrictEqual(DONE_BEFORE)
    // The result is nobody's business who looks at the key.
    expect(JSON.stringify(await other.locks.peek('k#done'), (_, field) => String(field))).not.toContain(
      'deep',
    )
    expect((await other.locks.peek('k#done'))?.holders[0]?.owner).toEqual({ label: 'test' })
    await clock.advance(HOUR_MS)
  })

  test('keeps no result that was not asked for, and none of work that returns nothing', async () => {
    const { locks, clock } = scene()
    const keeping: OnceOptions = { ...HOUR, keepResult: true }
    await locks.once('plain', HOUR, () => 'first')
    expect(await locks.once('plain', keeping, () => 'again')).toEqual({ ran: false, value: undefined })
    await locks.once('void', keeping, () => {})
    expect(await locks.once('void', keeping, () => {})).toEqual({ ran: false, value: undefined })
    await clock.advance(HOUR_MS)
  })

  test('gives the first result while its mark waits for a call that looked and died', async () => {
    const { locks, other, clock } = scene()
    const keeping = { ...HOUR, keepResult: true }
    let finish: (value: string) => void = () => {}
    const first = locks.once('k', keeping, () => new Promise<string>((resolve) => (finish = resolve)))
    await settled()
    await other.locks.readWrite('k#done').acquireRead({ ttl: '2s', renew: false })
    finish('first')
    await settled()
    expect(await other.locks.once('k', { ...keeping, wait: 0 }, () => expect.unreachable())).toEqual({
      ran: false,
      value: 'first',
    })
    expect(await clock.until(first)).toEqual({ ran: true, value: 'first' })
    await clock.advance(HOUR_MS)
  })

  test.each<[string, unknown]>([
    ['got one of 8001', 'x'.repeat(7999)],
    ['BigInt', 1n],
  ])('remembers work whose result cannot be kept, and says so: %s', async (why, value) => {
    const { locks, clock } = scene()
    const keeping: OnceOptions = { ...HOUR, keepResult: true }
    expect(await errorOf(locks.once('k', keeping, () => value))).toMatchObject({
      code: 'invalid-argument',
      message: expect.stringContaining(why),
    })
    expect(await locks.once('k', keeping, () => 'again')).toEqual({ ran: false, value: undefined })
    await clock.advance(HOUR_MS)
  })

  test('keeps the longest result whole', async () => {
    const { locks, clock } = scene()
    const keeping: OnceOptions = { ...HOUR, keepResult: true }
    const value = '"'.repeat(3999)
    await locks.once('k', keeping, () => value)
    expect(await locks.once('k', keeping, () => '')).toEqual({ ran: false, value })
    await clock.advance(HOUR_MS)
  })

  test('lets callers that come meanwhile wait, and tells them that the work was done', async () => {
    const { locks, other, clock } = scene()
    let finish = (_value: string) => {}
    const working = locks.once(
      'k',
      HOUR,
      () =>
        new Promise<string>((resolve) => {
          finish = resolve
        }),
    )
    await settled()
    const others = [locks, other.locks, other.locks].map((one) => one.once('k', HOUR, () => 'again'))
    await clock.advance(1000)
    for (const one of others) expect(await outcomeOf(one)).toBe('pending')
    finish('first')
    expect(await working).toEqual({ ran: true, value: 'first' })
    expect(await clock.until(Promise.all(others))).toEqual([DONE_BEFORE, DONE_BEFORE, DONE_BEFORE])
    await clock.advance(HOUR_MS)
  })

  test('lets a failure be tried again, also by callers that waited for it', async () => {
    const { locks, other, clock } = scene()
    let fail = (_error: Error) => {}
    const failing = locks.once(
      'k',
      HOUR,
      () =>
        new Promise((_, reject) => {
          fail = reject
        }),
    )
    await settled()
    const next = other.locks.once('k', HOUR, () => 'better')
    expect(await outcomeOf(next)).toBe('pending')
    const broken = new Error('not today')
    fail(broken)
    expect(await errorOf(failing)).toBe(broken)
    expect(await clock.until(next)).toEqual({ ran: true, value: 'better' })
    await clock.advance(HOUR_MS)
  })

  test('is tried again by another process when its process dies half-way', async () => {
    const { store, locks, other, clock } = scene()
    const dead = locks.once('k', HOUR, () => new Promise(() => {}))
    dead.catch(() => {})
    await settled()
    store.always('lose request')
    expect(await clock.until(other.locks.once('k', { ...HOUR, wait: '1m' }, () => 'taken over'))).toEqual({
      ran: true,
      value: 'taken over',
    })
    await clock.advance(HOUR_MS)
  })

  test('remembers work that was done under a lease that was lost meanwhile, and says that the lease was lost', async () => {
    const { locks, other, clock } = scene()
    let finish = () => {}
    const slow = locks.once(
      'k',
      HOUR,
      () =>
        new Promise<void>((resolve) => {
          finish = resolve
        }),
    )
    await settled()
    await other.locks.evictAll('k', { reason: 'test' })
    await clock.advance(11_000)
    finish()
    expect(await errorOf(clock.until(slow))).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
    expect(await other.locks.once('k', HOUR, () => 'again')).toEqual(DONE_BEFORE)
    await clock.advance(HOUR_MS)
  })

  test('accepts that another process, to which its lease was lost, has remembered the work first', async () => {
    const { locks, other, clock } = scene()
    let finish = () => {}
    const slow = locks.once(
      'k',
      HOUR,
      () =>
        new Promise<void>((resolve) => {
          finish = resolve
        }),
    )
    await settled()
    await other.locks.evictAll('k', { reason: 'test' })
    expect(await other.locks.once('k', HOUR, () => 'meanwhile')).toEqual({ ran: true, value: 'meanwhile' })
    finish()
    expect(await errorOf(clock.until(slow))).toMatchObject({ code: 'lease-lost' })
    await clock.advance(HOUR_MS)
  })

  test('says so when the work is done and the store cannot be told, and then does it again', async () => {
    const { store, locks, clock } = scene()
    let runs = 0
    const unheard = locks.once('k', HOUR, () => {
      runs += 1
      store.always('lose request', ['acquire'])
    })
    expect(await errorOf(clock.until(unheard))).toMatchObject({
      code: 'store-unavailable',
      message: 'The work for "k" is done, but the store could not be told: the next call will do it again.',
    })
    store.always('answer')
    await clock.until(locks.once('k', HOUR, () => (runs += 1)))
    expect(runs).toBe(2)
    await clock.advance(HOUR_MS)
  })

  test('breaks on no lost reply', async () => {
    const { store, locks, other, clock } = scene()
    store.next(
      'acquire',
      'lose reply',
      'answer',
      'lose reply',
      'answer',
      'lose reply',
      'answer',
      'lose reply',
    )
    store.next('release', 'lose reply', 'lose reply', 'lose reply')
    expect(await clock.until(locks.once('k', HOUR, () => 'done'))).toEqual({ ran: true, value: 'done' })
    expect(await clock.until(other.locks.once('k', HOUR, () => 'again'))).toEqual(DONE_BEFORE)
    await clock.advance(HOUR_MS)
  })

  test('does not take callers that look at the same time for a success', async () => {
    const { locks, other } = scene()
    let runs = 0
    const failing = () => {
      runs += 1
      throw new Error(`run ${runs}`)
    }
    const all = Array.from({ length: 20 }, (_, index) =>
      (index % 2 === 0 ? locks : other.locks).once('k', HOUR, failing),
    )
    const errors = await Promise.all(all.map(errorOf))
    expect(errors.map(({ message }) => message).sort()).toEqual(
      Array.from({ length: 20 }, (_, index) => `run ${index + 1}`).sort(),
    )
  })

  test('is refused before its work begins where the store would not remember it for so long', async () => {
    await using masters = await startMasters(3)
    await using locks = createLocks(masters.store({ maxTtl: '1m' }))
    const refused = locks.once('k', HOUR, () => expect.unreachable())
    expect(await errorOf(refused)).toMatchObject({
      code: 'store-refused',
      message: expect.stringMatching(
        /^The work for "k" was not begun, as the store would not remember it: Expected/,
      ),
    })
    expect(await locks.once('k', { remember: '1m' }, () => 'worked')).toEqual({ ran: true, value: 'worked' })
    expect(await locks.once('k', { remember: '1m' }, () => 'again')).toEqual(DONE_BEFORE)
  })

  test('keeps to short terms where the store allows no others', async () => {
    await using masters = await startMasters(3)
    await using locks = createLocks(masters.store({ maxTtl: '10s' }), { ttl: '5s' })
    expect(await locks.once('k', { remember: '10s' }, () => 'worked')).toEqual({ ran: true, value: 'worked' })
    const changes = locks.election('k').observe()
    expect(await changes.next()).toEqual({ done: false, value: null })
    let finish = () => {}
    const leading = locks.election('k').campaign(
      ({ fence }) =>
        new Promise<bigint>((resolve) => {
          finish = () => resolve(fence)
        }),
    )
    const { value: leader } = await changes.next()
    finish()
    expect(leader?.fence).toBe(await leading)
    await changes.return()
  })

  test('asks once how long the store remembers, and goes on where that is not answered', async () => {
    const { store, locks, clock } = scene()
    store.next('renew', 'lose reply', 'fail')
    for (const key of ['a', 'b', 'c', 'd']) {
      expect(await clock.until(locks.once(key, HOUR, () => key))).toEqual({ ran: true, value: key })
    }
    expect(store.count('renew')).toBe(3)
    await clock.advance(HOUR_MS)
  })

  test.each([1, 10])(
    'waits longer than a `wait` of %i ms for the first answer of a slow store',
    async (wait) => {
      const { store, locks, clock } = scene()
      store.replyAfter = () => paused(clock, 30)
      const done = locks.once('k', { ...HOUR, wait }, () => 'done')
      expect(await clock.until(done)).toEqual({ ran: true, value: 'done' })
      store.replyAfter = undefined
      await clock.advance(HOUR_MS)
    },
  )

  test('gives up a silent store after 500 ms with a shorter `wait`, and after a shorter `storeTimeout`', async () => {
    const { store, locks, clock } = scene()
    store.always('lose request')
    for (const [options, ms] of [
      [{ wait: 10 }, 500],
      [{ wait: 10, storeTimeout: 60 }, 60],
    ] as const) {
      const unheard = errorOf(locks.once('k', { ...HOUR, ...options }, () => expect.unreachable()))
      await clock.advance(ms - 1)
      expect(await outcomeOf(unheard)).toBe('pending')
      await clock.advance(1)
      expect(await unheard).toMatchObject({ code: 'store-unavailable' })
    }
    store.always('answer')
    await clock.advance(HOUR_MS)
  })

  test('obeys `wait` and `signal`', async () => {
    const { locks, clock } = scene()
    const lease = await locks.acquire('k')
    const unrun = () => expect.unreachable()
    expect(await errorOf(locks.once('k', { ...HOUR, wait: 0 }, unrun))).toMatchObject({
      code: 'acquire-timeout',
    })
    const giveUp = new AbortController()
    const waiting = locks.once('k', { ...HOUR, signal: giveUp.signal }, unrun)
    await settled()
    giveUp.abort(new Error('enough'))
    expect(await errorOf(waiting)).toMatchObject({ message: 'enough' })
    await lease.release()
    await clock.advance(1000)
  })

  test('is a deadlock inside of itself', async () => {
    const { locks } = realScene()
    const inner = locks.once('k', HOUR, () => locks.once('k', HOUR, () => 'inner'))
    expect(await errorOf(inner)).toMatchObject({ code: 'deadlock' })
  })

  test.each<[unknown[], string]>([
    [['', HOUR, () => {}], 'Expected `key` to be a string with at least one character, got "".'],
    [['k'.repeat(1020), HOUR, () => {}], 'Expected `key` to have at most 1019 characters, got 1020.'],
    [['k', HOUR, 'work'], 'Expected the last argument to be a function, got "work".'],
    [['k', undefined, () => {}], 'Expected the options to be an object with `remember`, got undefined.'],
    [
      ['k', () => {}],
      'Expected the options to be an object with `remember`, got a function. The work comes last, after the options.',
    ],
    [['k', {}, () => {}], 'Expected `remember` to be a duration from 50 ms to 24 days'],
    [['k', { remember: 'for ever' }, () => {}], 'Expected `remember` to be a duration from 50 ms to 24 days'],
    [['k', { ...HOUR, minHold: 1 }, () => {}], 'Expected the options to be among'],
  ])('says what is wrong with %o', async (call, message) => {
    const { locks } = realScene()
    const error = await errorOf(locks.once(...(call as Parameters<typeof locks.once>)))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toContain(message)
  })
})
