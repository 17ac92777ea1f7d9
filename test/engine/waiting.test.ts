import { describe, expect, test } from 'vitest'
import { settled } from './fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene, startProcess } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000
/** The engine asks about a waiter this often: a third of the patience of 6 s. */
const ASKED_EVERY = 2000

describe('a waiter', () => {
  test('waits by default for longer than a dead holder with the default ttl keeps its key on any store', async () => {
    const { clock, locks, other } = scene()
    // On etcd: the ttl, a third of it, and three seconds.
    await other.locks.acquire('k', { ttl: 43_000, renew: false })
    const lease = await clock.until(locks.acquire('k'))
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('gets the key in the moment of the release, by a hint and one request', async () => {
    const { clock, store, locks, other } = scene({ grants: false })
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k')
    await clock.advance(100)
    const before = store.sent.length
    await held.release()
    await settled()
    const lease = await waiting
    expect(store.sent.length - before).toBe(1)
    expect(store.sent.at(-1)).toMatchObject({ verb: 'renew' })
    await lease.release()
  })

  test('gets the key as soon as the lease of a dead holder is over', async () => {
    const { clock, locks, other } = scene()
    const dead = await other.locks.acquire('k', { ttl: 5000, renew: false })
    const waiting = locks.acquire('k')
    const from = clock.monotonicMs()
    const lease = await clock.until(waiting)
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(5020)
    expect(lease.fence).toBeGreaterThan(dead.fence)
    await lease.release()
  })

  test('gets the key in about two seconds when every wake is lost', async () => {
    const { clock, store, locks, other } = scene()
    store.wakes = false
    const held = await other.locks.acquire('k', { ttl: '5m' })
    const waiting = locks.acquire('k', { ttl: TTL })
    await clock.advance(10)
    const from = clock.monotonicMs()
    await held.release()
    const lease = await clock.until(waiting)
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(ASKED_EVERY + 10)
    await lease.release()
  })

  test('with a short ttl is asked about more often, so an offer is confirmed within its short term', async () => {
    const { clock, store, locks, other } = scene()
    store.wakes = false
    const held = await other.locks.acquire('k', { ttl: '5m' })
    const first = locks.acquire('k', { ttl: 300 })
    await clock.advance(10)
    const second = locks.acquire('k', { ttl: 300 })
    await clock.advance(1000)
    await held.release()
    const from = clock.monotonicMs()
    const lease = await clock.until(first, { stepMs: 1 })
    // The engine asks at two thirds of the acceptance term, which is the ttl here. So it finds the offer before the
    // offer runs out.
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(205)
    await lease.release()
    await (await clock.until(second)).release()
  })

  test.each([100, 500, 1000, TTL])(
    'with a ttl of %s ms keeps its place when a renewal is lost',
    async (ttl) => {
      const { clock, store, locks, other, rooms } = scene()
      const held = await other.locks.acquire('k', { ttl: '1h' })
      const first = locks.acquire('k', { ttl })
      await clock.advance(100)
      // It asks often, and each time the store forgets a silent waiter in front.
      const second = other.locks.acquire('k', { ttl: 100 })
      await clock.advance(1000)
      const before = (await rooms())[0]?.queue.map(({ id }) => id)
      store.next('renew', 'lose request')
      await clock.advance(10_000)
      expect(before).toHaveLength(2)
      expect((await rooms())[0]?.queue.map(({ id }) => id)).toEqual(before)
      await held.release()
      await (await clock.until(first)).release()
      await (await clock.until(second)).release()
    },
  )

  test('with a short ttl does not flood a store that is silent', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k', { ttl: '1h' })
    const waiting = locks.acquire('k', { ttl: 100, wait: '1h' })
    await clock.advance(1000)
    store.always('lose request', ['renew'])
    const before = store.count('renew')
    await clock.advance(60_000)
    expect(store.count('renew') - before).toBeLessThanOrEqual(12)
    store.always('answer')
    await held.release()
    await (await clock.until(waiting)).release()
  })

  test('with a short ttl asks a slow store about once for each answer', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k', { ttl: '1h' })
    store.replyAfter = () => new Promise((resolve) => clock.startTimer(400, resolve))
    const waiting = locks.acquire('k', { ttl: 500, wait: '1h' })
    await clock.advance(5000)
    const before = store.count('renew')
    // An answer takes 400 ms, and a third of a second later it asks again.
    await clock.advance(60_000)
    expect(store.count('renew') - before).toBeLessThanOrEqual(95)
    store.replyAfter = undefined
    await held.release()
    await (await clock.until(waiting)).release()
  })

  test('is not forgotten while it waits, however long that is', async () => {
    const { clock, locks, other, rooms } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: '1h' })
    for (let minute = 0; minute < 10; minute += 1) {
      await clock.advance(60_000)
      expect(await rooms()).toMatchObject([{ queue: [{ waitedMs: (minute + 1) * 60_000 }] }])
    }
    await held.release()
    await (await clock.until(waiting)).release()
  })

  test('that was forgotten because its process was away queues anew', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k', { ttl: '10m' })
    const waiting = locks.acquire('k', { wait: '1h' })
    await clock.advance(100)
    const behind = other.locks.acquire('k', { wait: '1h' })
    await clock.advance(100)
    clock.block(60_000)
    await clock.advance(5000)
    await held.release()
    const leases = [await clock.until(Promise.race([waiting, behind]))]
    await leases[0]?.release()
    const rest = await clock.until(Promise.all([waiting, behind]))
    for (const lease of rest) await lease.release()
    expect(new Set(rest.map((lease) => lease.id)).size).toBe(2)
  })

  test('survives that the store forgot everything', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k', { renew: false })
    const waiting = locks.acquire('k')
    await clock.advance(100)
    const id = store.sent[0]?.tickets[0]?.id ?? ''
    await store.real.release({ key: 'k', id: held.id, cancel: false })
    await store.real.release({ key: 'k', id, cancel: false })
    const lease = await clock.until(waiting, { withinMs: 5000 })
    await lease.release()
    await held.release()
  })

  test('survives an outage of the store that is shorter than its wait', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: '1m' })
    await clock.advance(100)
    store.always('fail')
    await clock.advance(20_000)
    await held.release()
    store.always('answer')
    const lease = await clock.until(waiting, { withinMs: 5000 })
    await lease.release()
  })

  test('that is evicted is told so, with the reason', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = errorOf(locks.acquire('k'))
    await clock.advance(100)
    for await (const room of other.locks.inspect())
      await other.locks.evict('k', room.queue[0]?.id ?? '', { reason: 'not today' })
    const error = await clock.until(waiting, { withinMs: 100 })
    expect(error).toMatchObject({ code: 'lease-lost', reason: 'evicted', key: 'k' })
    expect(error.message).toContain('not today')
    await held.release()
  })

  test('whose offer is not confirmed loses it after the acceptance term to the next one, and gets another', async () => {
    const { clock, store, locks, other } = scene({ grants: false })
    const held = await other.locks.acquire('k')
    const away = locks.acquire('k', { wait: '1m' })
    await clock.advance(10)
    const next = other.locks.acquire('k', { wait: '1m' })
    await clock.advance(10)
    store.always('lose request')
    await held.release()
    const from = clock.monotonicMs()
    const lease = await clock.until(next)
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(3010)
    store.always('answer')
    await lease.release()
    await (await clock.until(away)).release()
  })
})

describe('a wake', () => {
  test('that no caller asked for, for a ticket that no caller knows, costs no request', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k')
    await clock.advance(10)
    const before = store.sent.length
    for (let index = 0; index < 100; index += 1) store.wake({ tag: 'ticket', id: `nobody-${index}` })
    await clock.advance(10)
    expect(store.sent.length).toBe(before)
    await held.release()
    await (await clock.until(waiting)).release()
  })

  test('that is repeated or too early asks once more and changes nothing', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k')
    await clock.advance(10)
    const id = store.sent[0]?.tickets[0]?.id ?? ''
    const before = store.sent.length
    for (let index = 0; index < 100; index += 1) store.wake({ tag: 'ticket', id })
    await clock.advance(10)
    expect(store.sent.length - before).toBeLessThanOrEqual(2)
    expect(await outcomeOf(waiting)).toBe('pending')
    await held.release()
    await (await clock.until(waiting)).release()
  })

  test('that comes before the answer which says that it waits is not forgotten', async () => {
    const { clock, store, locks, other } = scene()
    // A ticket has waited before, so wakes flow.
    const warm = await other.locks.acquire('warm')
    const warming = locks.acquire('warm')
    await clock.advance(10)
    await warm.release()
    await (await warming).release()

    const held = await other.locks.acquire('k')
    const slow = new Letter()
    store.next('acquire', slow)
    const waiting = locks.acquire('k')
    slow.arrive()
    await held.release()
    await clock.advance(5)
    slow.reply()
    await settled()
    const lease = await waiting
    await lease.release()
  })

  test('for all asks about every waiter and every lease in one request', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const own = await locks.acquire('own')
    const waiting = locks.acquire('k')
    await clock.advance(10)
    const before = store.sent.length
    store.wake({ tag: 'all' })
    await settled()
    expect(store.sent.slice(before).map(({ verb, tickets }) => [verb, tickets.length])).toEqual([
      ['renew', 2],
    ])
    await held.release()
    await (await clock.until(waiting)).release()
    await own.release()
  })
})

describe('listening', () => {
  test('does not begin while no ticket waits, and begins once however many wait', async () => {
    const { clock, store, locks, other } = scene()
    const lease = await locks.acquire('free')
    await lease.release()
    expect(store.listened).toBe(0)
    const held = await other.locks.acquire('k')
    const waiting = Array.from({ length: 20 }, () => locks.withLock('k', () => {}))
    await clock.advance(10)
    expect(store.listened).toBe(1)
    await held.release()
    await clock.until(Promise.all(waiting))
    expect(store.listened).toBe(1)
  })

  test('begins with the first look at the signal of a lease', async () => {
    const { store, locks } = scene()
    const lease = await locks.acquire('k')
    expect(store.listened).toBe(0)
    expect(lease.signal.aborted).toBe(false)
    expect(store.listened).toBe(1)
    await lease.release()
  })

  test('asks about everybody once it has begun, since what was sent before that is lost', async () => {
    const { clock, store, locks, other } = scene()
    let begin: () => void = () => {}
    store.listenAfter = new Promise((resolve) => {
      begin = resolve
    })
    const held = await other.locks.acquire('k', { ttl: '5m' })
    const waiting = locks.acquire('k')
    await clock.advance(10)
    await held.release()
    await clock.advance(100)
    expect(await outcomeOf(waiting)).toBe('pending')
    begin()
    await clock.advance(1)
    expect(await outcomeOf(waiting)).toMatchObject({ value: { state: 'held' } })
    await (await waiting).release()
  })

  test('that fails is tried again later, and costs time but no waiter', async () => {
    const { clock, store, locks, other } = scene()
    store.listenFails = true
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: '1m' })
    await clock.advance(10_000)
    expect(store.listened).toBeGreaterThanOrEqual(2)
    expect(store.listened).toBeLessThanOrEqual(3)
    store.listenFails = false
    await clock.advance(10_000)
    const before = store.listened
    await clock.advance(20_000)
    expect(store.listened).toBe(before)
    await held.release()
    await settled()
    await (await waiting).release()
  })

  test('of a store without push is done without', async () => {
    const { clock, store, other } = scene()
    const { real } = store
    const { locks } = startProcess(
      {
        name: 'quiet',
        acquire: async (ticket) => real.acquire(ticket),
        renew: async (tickets) => real.renew(tickets),
        release: async (request) => real.release(request),
        inspect: async (request) => real.inspect(request),
        evict: async (request) => real.evict(request),
        close: async () => {},
      },
      clock,
    )
    const held = await other.locks.acquire('k', { ttl: '5m' })
    const waiting = locks.acquire('k')
    await clock.advance(10)
    await held.release()
    const lease = await clock.until(waiting, { withinMs: ASKED_EVERY + 20 })
    await lease.release()
  })
})

describe('a listen that throws at once instead of rejecting', () => {
  test('costs time and no waiter', async () => {
    const { clock, store, other } = scene()
    const { locks } = startProcess(
      {
        name: 'raw',
        acquire: async (ticket) => store.real.acquire(ticket),
        release: (request) => store.real.release(request),
        renew: (tickets) => store.real.renew(tickets),
        inspect: (request) => store.real.inspect(request),
        evict: (request) => store.real.evict(request),
        listen: () => {
          throw new Error('not now')
        },
        close: async () => {},
      },
      clock,
    )
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k')
    await clock.advance(100)
    await held.release()
    const lease = await clock.until(waiting)
    await lease.release()
  })
})

describe('a crowd', () => {
  const CROWD = 1000

  test('of 1,000 waiters is served in the order of arrival, with two requests a hand-over', async () => {
    const { clock, store, locks } = scene()
    const held = await locks.acquire('k')
    const order: number[] = []
    const waiting = Array.from({ length: CROWD }, (_, index) =>
      locks.withLock('k', { wait: '10m' }, () => {
        order.push(index)
      }),
    )
    await clock.advance(10)
    const before = store.sent.length
    await held.release()
    await clock.until(Promise.all(waiting), { stepMs: 1 })
    expect(order).toEqual(Array.from({ length: CROWD }, (_, index) => index))
    // Each hand-over costs one release and one confirmation. Tickets that still wait cost nothing.
    expect(store.sent.length - before).toBeLessThanOrEqual(2 * CROWD + 10)
  })

  test('of 1,000 waiters costs one or two requests every two seconds while nothing happens, and no acquire', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const giveUp = new AbortController()
    const waiting = Array.from({ length: CROWD }, () =>
      errorOf(locks.acquire('k', { wait: '10m', signal: giveUp.signal })),
    )
    await clock.advance(10_000)
    const acquires = store.count('acquire')
    expect(acquires).toBe(CROWD)
    const before = store.count('renew')
    await clock.advance(60_000)
    const rounds = 60_000 / ASKED_EVERY
    expect(store.count('renew') - before).toBeLessThanOrEqual(3 * rounds)
    expect(store.count('acquire')).toBe(acquires)
    giveUp.abort(new Error('enough'))
    await Promise.all(waiting)
    await held.release()
    await clock.advance(100)
  })

  test('of waiters on 1,000 keys does not ask for each of them either', async () => {
    const { clock, store, locks, other } = scene()
    const held = await Promise.all(
      Array.from({ length: CROWD }, (_, index) => other.locks.acquire(`k${index}`)),
    )
    const waiting = held.map(({ key }) => locks.withLock(key, { wait: '10m' }, () => key))
    await clock.advance(10_000)
    const before = store.count('renew')
    await clock.advance(20_000)
    // A request is about 500 tickets at most, so each round takes two requests.
    expect(store.count('renew') - before).toBeLessThanOrEqual(3 * 2 * (20_000 / ASKED_EVERY))
    await Promise.all(held.map((lease) => lease.release()))
    expect(await clock.until(Promise.all(waiting))).toEqual(held.map(({ key }) => key))
  })

  test('on a store that answers at once is served in order, too', async () => {
    const { locks } = realScene()
    const order: number[] = []
    await Promise.all(
      Array.from({ length: CROWD }, (_, index) =>
        locks.withLock('k', async () => {
          order.push(index)
          await Promise.resolve()
        }),
      ),
    )
    expect(order).toEqual(Array.from({ length: CROWD }, (_, index) => index))
  })
})
