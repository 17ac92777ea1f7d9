import { describe, expect, test } from 'vitest'
import { hear, last, story } from './hearing.ts'
import { errorOf, scene } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000

describe('a request', () => {
  test('for a free key is told with the caller, the terms, and how long it took', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const lease = await locks.acquire('k', { ttl: TTL, wait: '5s' })
    await clock.advance(700)
    await lease.release()
    expect(story(heard)).toBe('requested acquired released')
    const facts = { store: 'scripted', key: 'k', id: lease.id, units: 1, limit: 1, owner: { label: 'test' } }
    const at = clock.wallMs()
    expect(heard).toEqual([
      { event: 'requested', ...facts, at: at - 700, campaign: false, waitMs: 5000, ttlMs: TTL },
      {
        event: 'acquired',
        ...facts,
        at: at - 700,
        fence: lease.fence,
        waitedMs: 0,
        queued: false,
        wokenMs: undefined,
      },
      { event: 'released', ...facts, at, fence: lease.fence, heldMs: 700 },
    ])
    expect(store.count('release')).toBe(1)
  })

  test('that has to queue says so once, and how long the hand-over took when it is woken', async () => {
    const { clock, store, locks, other } = scene()
    const first = await other.locks.acquire('k')
    const heard = hear(locks)
    const waiting = locks.acquire('k', { wait: '1m' })
    // Long enough for several renewals of the waiter, each with the answer that it waits.
    await clock.advance(9000)
    expect(store.count('renew')).toBeGreaterThan(1)
    expect(story(heard)).toBe('requested queued')
    expect(last(heard, 'queued').ahead).toBe(0)
    await first.release()
    const lease = await clock.until(waiting)
    expect(last(heard, 'acquired')).toMatchObject({ queued: true, waitedMs: 9000, wokenMs: 0 })
    await lease.release()
    expect(story(heard)).toBe('requested queued acquired released')
  })

  test('whose wake is lost has no hand-over time, and the next one is measured from its own wake', async () => {
    const { clock, store, locks, other } = scene()
    const first = await other.locks.acquire('k')
    const heard = hear(locks)
    const waiting = locks.acquire('k', { wait: '1m' })
    await clock.advance(100)
    // This wake changes nothing: the ticket still waits. The events that come later have nothing to do with it.
    store.wake({ tag: 'all' })
    await clock.advance(100)
    store.wakes = false
    await first.release()
    const lease = await clock.until(waiting)
    expect(last(heard, 'acquired')).toMatchObject({ queued: true, wokenMs: undefined })
    await lease.release()
  })

  test('that never waits is busy, with and without an error to its caller', async () => {
    const { locks, other } = scene()
    const first = await other.locks.acquire('k')
    const heard = hear(locks)
    expect(await locks.tryAcquire('k')).toBe(null)
    await expect(locks.acquire('k', { wait: 0 })).rejects.toMatchObject({ code: 'acquire-timeout' })
    expect(story(heard)).toBe('requested busy requested busy')
    await first.release()
  })

  test('that runs out of time is a timeout, and says how many were ahead', async () => {
    const { clock, locks, other } = scene()
    const first = await other.locks.acquire('k')
    const heard = hear(locks)
    const waiting = locks.acquire('k', { wait: 2000 })
    await expect(clock.until(waiting)).rejects.toMatchObject({ code: 'acquire-timeout' })
    expect(story(heard)).toBe('requested queued timeout')
    expect(last(heard, 'timeout')).toMatchObject({ waitedMs: 2000, ahead: 0 })
    await first.release()
  })

  test.each([
    ['its caller aborts', 'aborted', 'requested queued withdrawn'],
    ['somebody evicts it', 'evicted', 'requested queued evicted withdrawn'],
    ['its locks are closed', 'closed', 'requested queued withdrawn'],
  ] as const)(
    'that ends because %s is withdrawn, with the error its caller gets',
    async (_, reason, told) => {
      const { clock, locks, other } = scene()
      const first = await other.locks.acquire('k')
      const heard = hear(locks)
      const caller = new AbortController()
      const waiting = locks.acquire('k', { signal: caller.signal })
      const error = waiting.catch((caught: unknown) => caught)
      await clock.advance(50)
      if (reason === 'aborted') caller.abort(new Error('The user has left.'))
      if (reason === 'evicted') await other.locks.evict('k', last(heard, 'queued').id, { reason: 'an audit' })
      if (reason === 'closed') await clock.until(locks.close())
      const withdrawn = await clock.until(error).then(() => last(heard, 'withdrawn'))
      expect(withdrawn).toMatchObject({ reason, waitedMs: 50, error: await error })
      expect(story(heard)).toBe(told)
      if (reason === 'evicted') {
        expect(last(heard, 'evicted')).toMatchObject({ was: 'waiter', reason: 'an audit' })
      }
      await first.release()
    },
  )

  test('of a circle of waits is withdrawn as a deadlock', async () => {
    const { clock, locks } = scene()
    const heard = hear(locks)
    const cross = (own: string, others: string) =>
      locks.withLock(own, async () => {
        await clock.advance(10)
        await locks.withLock(others, () => {})
      })
    const ends = await Promise.allSettled([cross('a', 'b'), cross('b', 'a')])
    expect(ends.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
    expect(heard.filter(({ event }) => event === 'withdrawn')).toMatchObject([{ reason: 'deadlock' }])
  })

  test('of one of several keys counts its own wait, and not that for the keys before it', async () => {
    const { clock, locks, other } = scene()
    const first = await other.locks.acquire('a')
    const heard = hear(locks)
    const both = locks.acquireAll(['a', 'b'])
    await clock.advance(3000)
    await first.release()
    const leases = await clock.until(both)
    const waits = heard.filter(({ event }) => event === 'acquired')
    expect(waits).toMatchObject([
      { key: 'a', waitedMs: 3000, queued: true },
      { key: 'b', waitedMs: 0, queued: false },
    ])
    await leases.release()
  })
})

describe('a lease', () => {
  test('tells each renewal, and how long the store took', async () => {
    const { clock, locks } = scene()
    const heard = hear(locks)
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.advance(TTL / 3)
    await lease.extend()
    expect(story(heard)).toBe('requested acquired renewed renewed')
    expect(last(heard, 'renewed')).toMatchObject({ fence: lease.fence, tookMs: 0 })
    expect(last(heard, 'renewed').remainingMs).toBeGreaterThan(0.9 * TTL)
    await lease.release()
  })

  test('in jeopardy says so once, and that it is renewed after all', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('fail', ['renew'])
    await clock.untilTrue(() => lease.state === 'jeopardy')
    const from = clock.monotonicMs()
    await clock.untilTrue(() => story(heard).includes('jeopardy'))
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(2000)
    expect(last(heard, 'jeopardy')).toMatchObject({
      error: { code: 'store-unavailable' },
      fence: lease.fence,
    })
    expect(last(heard, 'jeopardy').remainingMs).toBeGreaterThan(TTL / 3)
    await clock.advance(5000)
    store.always('answer', ['renew'])
    await clock.advance(3000)
    expect(lease.state).toBe('held')
    const said = story(heard.filter(({ event }) => event !== 'store-error'))
    expect(said).toBe('requested acquired jeopardy renewed')
    // The next outage is told, too.
    store.always('lose request', ['renew'])
    await clock.untilTrue(() => story(heard).endsWith('jeopardy'))
    expect(last(heard, 'jeopardy').error).toBe(undefined)
    await lease.release()
  })

  test('that is lost says why, after its signal has aborted, and is not released any more', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const { signal } = lease
    let abortedFirst = false
    locks.on('lost', () => {
      abortedFirst = signal.aborted
    })
    const heard = hear(locks)
    store.always('lose request', ['renew'])
    await clock.untilTrue(() => signal.aborted)
    await lease.release()
    expect(abortedFirst).toBe(true)
    expect(story(heard)).toBe('jeopardy store-error lost')
    expect(last(heard, 'lost')).toMatchObject({ reason: 'expired', fence: lease.fence, error: signal.reason })
    expect(last(heard, 'lost').heldMs).toBeGreaterThan(0.9 * TTL)
  })

  test('that is evicted is told with both, the eviction and its reason', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k')
    const { signal } = lease
    // Wakes flow from now on, and the engine has asked about the lease since.
    await clock.advance(1)
    const heard = hear(locks)
    await other.locks.evict('k', lease.id, { reason: 'it is stuck' })
    await clock.untilTrue(() => signal.aborted)
    expect(story(heard)).toBe('evicted lost')
    expect(last(heard, 'evicted')).toMatchObject({ was: 'holder', reason: 'it is stuck', id: lease.id })
    expect(last(heard, 'lost')).toMatchObject({ reason: 'evicted' })
  })

  test('that a reset store has forgotten is lost to that', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const lease = await locks.acquire('k', { ttl: TTL })
    await store.real.release({ key: 'k', id: lease.id, cancel: false })
    await clock.advance(TTL / 2)
    expect(story(heard)).toBe('requested acquired lost')
    expect(last(heard, 'lost').reason).toBe('store-reset')
  })

  test('that goes elsewhere is detached here and adopted there', async () => {
    const { clock, locks, other } = scene()
    const [here, there] = [hear(locks), hear(other.locks)]
    const lease = await locks.acquire('k')
    await clock.advance(400)
    const adopted = await other.locks.adopt(lease.detach())
    await adopted.release()
    expect(story(here)).toBe('requested acquired detached')
    expect(last(here, 'detached').heldMs).toBe(400)
    expect(story(there)).toBe('adopted released')
    expect(last(there, 'adopted')).toMatchObject({ key: 'k', id: lease.id, fence: lease.fence })
  })

  test('whose grant came too late to be of use was never there', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const letter = new Letter()
    store.next('acquire', letter)
    const late = locks.acquire('k', { ttl: 1000, wait: '1m' })
    await clock.advance(100)
    letter.arrive()
    clock.block(1500)
    letter.reply()
    const lease = await clock.until(late)
    await lease.release()
    expect(story(heard)).toBe('requested acquired released')
  })

  test('of closed locks is released', async () => {
    const { clock, locks } = scene()
    const heard = hear(locks)
    const lease = await locks.acquire('k')
    await clock.until(locks.close())
    expect(story(heard)).toBe('requested acquired released')
    expect(lease.state).toBe('lost')
  })
})

describe('the store', () => {
  test('that fails, refuses or keeps silent is reported by verb, and with whether it may have acted', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const errors = () =>
      heard
        .flatMap((event) => (event.event === 'store-error' ? [event] : []))
        .map(
          ({ verb, outcome, error, key }) =>
            `${verb} ${key} ${outcome} ${error === undefined ? 'silence' : (error as { code: string }).code}`,
        )
    store.next('acquire', 'fail late')
    const lease = await clock.until(locks.acquire('k'))
    expect(errors()).toEqual(['acquire k ambiguous store-unavailable'])
    store.next('renew', 'fail')
    await clock.advance(TTL / 2)
    expect(errors().slice(1)).toEqual(['renew k ambiguous store-unavailable'])
    store.next('release', 'lose request')
    await clock.until(lease.release())
    expect(errors().slice(2)).toEqual(['release k ambiguous silence'])
    await clock.advance(TTL)
    heard.length = 0
    store.next('acquire', 'refuse')
    await expect(clock.until(locks.acquire('k'))).rejects.toMatchObject({ code: 'store-refused' })
    expect(errors()).toEqual(['acquire k refused store-refused'])
    expect(last(heard, 'withdrawn').reason).toBe('store')
    store.next('evict', 'fail')
    await expect(locks.evictAll('k', { reason: 'x' })).rejects.toMatchObject({
      code: 'store-unavailable',
    })
    expect(errors().slice(1)).toEqual(['evict undefined ambiguous store-unavailable'])
  })

  test('that fails a request for several keys is told without a key', async () => {
    const { clock, store, locks } = scene({ takesAll: true })
    const heard = hear(locks)
    store.next('acquireAll', 'fail')
    const leases = await clock.until(locks.acquireAll(['a', 'b']))
    expect(last(heard, 'store-error')).toMatchObject({ verb: 'acquire', key: undefined, id: undefined })
    await leases.release()
  })

  test('that does not answer in time is told, while it is asked again', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    store.next('acquire', 'lose request')
    const lease = await clock.until(locks.acquire('k'))
    expect(story(heard)).toBe('requested store-error acquired')
    expect(last(heard, 'store-error')).toMatchObject({ verb: 'acquire', id: lease.id, error: undefined })
    await lease.release()
  })

  test('that keeps silent to the renewals of a waiter is told when the call gives up', async () => {
    const { clock, store, locks, other } = scene()
    const first = await other.locks.acquire('k')
    const heard = hear(locks)
    const waiting = errorOf(locks.acquire('k', { wait: '1m' }))
    await clock.advance(100)
    store.always('lose request', ['renew'])
    expect(await clock.until(waiting)).toMatchObject({ code: 'store-unavailable' })
    expect(story(heard)).toBe('requested queued store-error withdrawn')
    const { id } = last(heard, 'requested')
    expect(last(heard, 'store-error')).toMatchObject({ verb: 'renew', key: 'k', id, error: undefined })
    store.always('answer', ['renew'])
    await first.release()
    await clock.advance(TTL)
  })

  test('that keeps silent to the renewals of a lease is told when the lease is lost', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('lose request', ['renew'])
    await clock.untilTrue(() => lease.state === 'lost')
    expect(story(heard)).toBe('requested acquired jeopardy store-error lost')
    expect(last(heard, 'store-error')).toMatchObject({
      verb: 'renew',
      key: 'k',
      id: lease.id,
      error: undefined,
    })
    store.always('answer', ['renew'])
    await clock.advance(TTL)
  })

  test('is not blamed for a lease that is over by its `maxHold`, or because the process stood still', async () => {
    const { clock, store, locks } = scene()
    const heard = hear(locks)
    const held = await locks.acquire('k', { ttl: TTL, maxHold: '40s' })
    await clock.advance(40_000)
    expect(held.state).toBe('lost')
    const frozen = await locks.acquire('frozen', { ttl: TTL })
    clock.block(2 * TTL)
    await clock.advance(1)
    expect(frozen.state).toBe('lost')
    // It stands still just after a renewal was sent.
    const asking = await locks.acquire('asking', { ttl: TTL })
    store.next('renew', 'lose request')
    const asked = store.count('renew')
    await clock.untilTrue(() => store.count('renew') > asked)
    clock.block(2 * TTL)
    await clock.advance(1)
    expect(asking.state).toBe('lost')
    expect(heard.filter(({ event }) => event === 'lost')).toHaveLength(3)
    expect(heard.filter(({ event }) => event === 'store-error')).toEqual([])
    await clock.advance(TTL)
  })

  test('that sends no wakes is told once for each try', async () => {
    const { clock, store, locks, other } = scene()
    const first = await other.locks.acquire('k')
    store.listenFails = true
    const heard = hear(locks)
    const waiting = locks.acquire('k', { wait: 3000 })
    await expect(clock.until(waiting)).rejects.toMatchObject({ code: 'acquire-timeout' })
    expect(story(heard)).toBe('requested queued store-error timeout')
    expect(last(heard, 'store-error')).toMatchObject({ verb: 'listen', key: undefined })
    await first.release()
  })
})
