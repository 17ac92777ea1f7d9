import { describe, expect, test } from 'vitest'
import { delaysOf, settled } from './fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene } from './scene.ts'
import { Letter } from './scripted-store.ts'

const NO_LONGER = new Error('the user left')

describe('a wait that is over in time', () => {
  test('rejects when `wait` has passed, neither sooner nor later, and says how long and behind whom', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const first = other.locks.acquire('k', { wait: '1m' })
    await clock.advance(0)
    const waiting = locks.acquire('k', { wait: 2000 })
    await clock.advance(1999)
    expect(await outcomeOf(waiting)).toBe('pending')
    await clock.advance(1)
    expect(await outcomeOf(waiting)).toMatchObject({
      error: { code: 'acquire-timeout', key: 'k', waitedMs: 2000, ahead: 1 },
    })
    await held.release()
    await (await clock.until(first)).release()
  })

  test('gives its place up at once, so it does not hold up the next in the queue', async () => {
    const { clock, store, locks, other, rooms } = scene()
    const held = await other.locks.acquire('k')
    const leaving = errorOf(locks.acquire('k', { wait: 500 }))
    await clock.advance(0)
    const next = other.locks.acquire('k')
    await clock.advance(500)
    await leaving
    expect(store.count('release')).toBe(1)
    expect(await rooms()).toMatchObject([{ holders: [{ id: held.id }], queue: [{}] }])
    await held.release()
    await clock.advance(1)
    const lease = await next
    await lease.release()
  })

  test('does not come when the key is free in the last millisecond', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: 1000 })
    await clock.advance(999)
    await held.release()
    const lease = await clock.until(waiting, { stepMs: 0.1 })
    await lease.release()
  })

  test('never comes with wait: Infinity', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: Number.POSITIVE_INFINITY })
    await clock.advance(10_000)
    for (let hour = 0; hour < 3; hour += 1) await clock.advance(3_600_000)
    expect(await outcomeOf(waiting)).toBe('pending')
    await held.release()
    await (await clock.until(waiting)).release()
  })

  test('comes at once with wait: 0 when the key is held, and not when it is free', async () => {
    const { locks, other, store } = scene()
    const held = await other.locks.acquire('k')
    expect(await outcomeOf(locks.acquire('k', { wait: 0 }))).toMatchObject({
      error: { code: 'acquire-timeout', waitedMs: 0 },
    })
    expect(store.count('acquire')).toBe(1)
    await held.release()
    const lease = await locks.acquire('k', { wait: 0 })
    await lease.release()
  })
})

describe('an aborted wait rejects with the reason of the signal', () => {
  test('before the first request', async () => {
    const { locks, store } = scene()
    const signal = AbortSignal.abort(NO_LONGER)
    for (const call of [locks.acquire('k', { signal }), locks.tryAcquire('k', { signal })])
      expect(await errorOf(call)).toBe(NO_LONGER)
    expect(await errorOf(locks.withLock('k', { signal }, () => 'ran'))).toBe(NO_LONGER)
    expect(store.sent).toEqual([])
  })

  test('while the first request is being written', async () => {
    const { clock, store, locks, rooms } = scene()
    const giveUp = new AbortController()
    const acquire = store.acquire.bind(store)
    store.acquire = (ticket) => {
      giveUp.abort(NO_LONGER)
      return acquire(ticket)
    }
    expect(await outcomeOf(locks.acquire('k', { signal: giveUp.signal }))).toEqual({ error: NO_LONGER })
    await clock.advance(10)
    expect(await rooms()).toEqual([])
    await clock.until(locks.close())
  })

  test('while the first request is being written, whose reply is lost', async () => {
    const { store, locks } = scene()
    const giveUp = new AbortController()
    const slow = new Letter()
    store.next('acquire', slow)
    locks.on('requested', () => giveUp.abort(NO_LONGER))
    expect(await errorOf(locks.acquire('k', { signal: giveUp.signal }))).toBe(NO_LONGER)
    // The store may get the release first. The tombstone keeps the ticket from taking the key afterwards.
    expect(store.sent.at(-1)).toMatchObject({ verb: 'release', cancel: true })
  })

  test('while the first request is on its way, and the grant that comes late is released', async () => {
    const { clock, store, locks, rooms } = scene()
    const slow = new Letter()
    store.next('acquire', slow)
    const giveUp = new AbortController()
    const asking = errorOf(locks.acquire('k', { signal: giveUp.signal }))
    await clock.advance(10)
    giveUp.abort(NO_LONGER)
    expect(await asking).toBe(NO_LONGER)
    expect(store.sent.at(-1)).toMatchObject({ verb: 'release', cancel: true })
    slow.arrive().reply()
    await clock.advance(0)
    expect(await rooms()).toEqual([])
  })

  test('while the grant is on its way back, and it is released', async () => {
    const { clock, store, locks, rooms } = scene()
    const slow = new Letter()
    store.next('acquire', slow)
    const giveUp = new AbortController()
    const asking = errorOf(locks.acquire('k', { signal: giveUp.signal }))
    slow.arrive()
    giveUp.abort(NO_LONGER)
    slow.reply()
    expect(await asking).toBe(NO_LONGER)
    await clock.advance(0)
    expect(await rooms()).toEqual([])
  })

  test('between two attempts at a store that does not answer', async () => {
    const { clock, store, locks } = scene()
    store.always('fail', ['acquire'])
    const giveUp = new AbortController()
    const asking = errorOf(locks.acquire('k', { signal: giveUp.signal }))
    await clock.advance(130)
    giveUp.abort(NO_LONGER)
    expect(await asking).toBe(NO_LONGER)
    const before = store.count('acquire')
    await clock.advance(60_000)
    expect(store.count('acquire')).toBe(before)
  })

  test('while it waits in the queue', async () => {
    const { clock, locks, other, rooms } = scene()
    const held = await other.locks.acquire('k')
    const giveUp = new AbortController()
    const waiting = errorOf(locks.acquire('k', { signal: giveUp.signal }))
    await clock.advance(100)
    giveUp.abort(NO_LONGER)
    expect(await waiting).toBe(NO_LONGER)
    await clock.advance(0)
    expect(await rooms()).toMatchObject([{ queue: [] }])
    await held.release()
  })

  test('while it is offered the key and confirms it, and the next one gets the key instead', async () => {
    const { clock, store, locks, other } = scene({ grants: false })
    const held = await other.locks.acquire('k')
    const giveUp = new AbortController()
    const waiting = errorOf(locks.acquire('k', { signal: giveUp.signal }))
    await clock.advance(1)
    const next = other.locks.acquire('k')
    await clock.advance(1)
    const confirming = new Letter()
    store.next('renew', confirming)
    await held.release()
    await clock.advance(0)
    confirming.arrive()
    giveUp.abort(NO_LONGER)
    confirming.reply()
    expect(await waiting).toBe(NO_LONGER)
    await clock.advance(1)
    const lease = await next
    await lease.release()
  })

  test('with whatever the reason is, also when that is no error', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const giveUp = new AbortController()
    const waiting = locks.acquire('k', { signal: giveUp.signal })
    waiting.catch(() => {})
    await clock.advance(1)
    giveUp.abort('enough')
    expect(await outcomeOf(waiting)).toEqual({ error: 'enough' })
    await held.release()
  })

  test('but the lease is kept when the abort comes in the tick of the grant, after it', async () => {
    const { clock, store, locks, rooms } = scene()
    const slow = new Letter()
    store.next('acquire', slow)
    const giveUp = new AbortController()
    const acquiring = locks.acquire('k', { signal: giveUp.signal })
    slow.arrive().reply()
    await Promise.resolve()
    await settled()
    giveUp.abort(NO_LONGER)
    const lease = await acquiring
    expect(lease.state).toBe('held')
    expect(lease.signal.aborted).toBe(false)
    await clock.advance(1000)
    expect(await rooms()).toMatchObject([{ holders: [{ id: lease.id }] }])
    await lease.release()
  })

  test('and leaves no listener on the signal, however the waits ended', async () => {
    const { clock, locks, other, store } = scene()
    const giveUp = new AbortController()
    const counts = { added: 0, removed: 0 }
    const { signal } = giveUp
    const add = signal.addEventListener.bind(signal)
    const remove = signal.removeEventListener.bind(signal)
    signal.addEventListener = (...args: Parameters<typeof add>) => {
      counts.added += 1
      add(...args)
    }
    signal.removeEventListener = (...args: Parameters<typeof remove>) => {
      counts.removed += 1
      remove(...args)
    }
    const granted = await locks.acquire('k', { signal })
    const late = errorOf(other.locks.acquire('k', { signal, wait: 50 }))
    store.next('acquire', 'refuse')
    const refused = errorOf(locks.acquire('other', { signal }))
    await clock.advance(100)
    await Promise.all([late, refused])
    await granted.release()
    expect(counts.added).toBeGreaterThan(0)
    expect(counts.removed).toBe(counts.added)
  })
})

describe('giving up', () => {
  test('releases a grant that arrives after the cancelling was given up', async () => {
    const { clock, store, locks, rooms } = scene()
    const late = new Letter()
    store.next('acquire', late)
    store.always('lose request')
    const failing = errorOf(locks.acquire('k', { ttl: 1000, wait: 500 }))
    await clock.advance(120_000)
    await failing
    store.always('answer')
    late.arrive().reply()
    await clock.advance(100)
    expect(await rooms()).toEqual([])
    await clock.advance(10_000)
  })

  test('releases each of several grants that arrive so late, with a tombstone for the requests still on their way', async () => {
    const { clock, store, locks, rooms } = scene()
    const [first, second] = [new Letter(), new Letter()]
    store.next('acquire', first, second)
    store.always('lose request')
    const failing = errorOf(locks.acquire('k', { ttl: 1000, wait: 5000 }))
    await clock.advance(120_000)
    await failing
    store.always('answer')
    first.arrive().reply()
    await clock.advance(100)
    expect(store.sent.at(-1)).toMatchObject({ verb: 'release', cancel: true })
    second.arrive().reply()
    await clock.advance(0)
    expect(await rooms()).toEqual([])
  })

  test('says that the store did not answer when it hung, as it does when it failed', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: '20s' })
    await clock.advance(1000)
    store.always('lose request')
    const error = await clock.until(errorOf(waiting))
    store.always('answer')
    await clock.advance(60_000)
    await held.release()
    expect(error).toMatchObject({ code: 'store-unavailable' })
  })

  // The engine asks every 2 s. It writes the last request at 4 s, and the store hangs since 3 s.
  test.each([
    ['a second ago, and is unanswered: the store is silent', 5000, 'store-unavailable'],
    ['just now, and its answer may be on its way: the key is taken', 4300, 'acquire-timeout'],
  ])('when the last request was written %s', async (_what, wait, code) => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const waiting = errorOf(locks.acquire('k', { wait }))
    await clock.advance(3000)
    store.always('lose request', ['renew'])
    expect(await clock.until(waiting)).toMatchObject({ code })
    await held.release()
  })

  test('rejects at once although the store hangs, and cancels in the background until it answers', async () => {
    const { clock, store, locks, other, rooms } = scene()
    const held = await other.locks.acquire('k')
    const waiting = locks.acquire('k', { wait: 1000 })
    await clock.advance(100)
    store.always('lose request')
    const outcome = errorOf(waiting)
    await clock.advance(900)
    await outcome
    const sent = store.count('release')
    expect(sent).toBe(1)
    await clock.advance(4000)
    expect(store.count('release')).toBeGreaterThan(sent)
    store.always('answer')
    await clock.advance(10_000)
    const after = store.count('release')
    expect(await rooms()).toMatchObject([{ queue: [] }])
    await clock.advance(60_000)
    expect(store.count('release')).toBe(after)
    await held.release()
  })

  test('stops cancelling once the store would have forgotten the ticket by itself', async () => {
    const { clock, store, locks } = scene()
    store.always('lose request')
    const failing = errorOf(locks.acquire('k', { ttl: 1000, wait: 500 }))
    await clock.advance(10_000)
    await failing
    const before = store.sent.length
    await clock.advance(600_000)
    expect(store.sent.length).toBe(before)
    expect(clock.timers.running).toBe(0)
  })

  test('works on a store that answers at once, too', async () => {
    const { locks } = realScene()
    const held = await locks.acquire('k')
    const giveUp = new AbortController()
    const waiting = errorOf(locks.acquire('k', { signal: giveUp.signal }))
    await settled()
    giveUp.abort(NO_LONGER)
    expect(await waiting).toBe(NO_LONGER)
    expect(await errorOf(locks.acquire('k', { wait: 20 }))).toMatchObject({ code: 'acquire-timeout' })
    await held.release()
  })

  // The moments are half a millisecond apart. At each of them either the caller has the lease, or no ticket has it.
  test('in any moment around the grant ends with a lease or without a ghost', async () => {
    for (let at = 990; at <= 1010; at += 0.5) {
      const { clock, locks, other, rooms } = scene()
      const held = await other.locks.acquire('k')
      const giveUp = new AbortController()
      const waiting = locks.acquire('k', { wait: 1000, signal: giveUp.signal }).then(
        (lease) => lease,
        () => undefined,
      )
      await clock.advance(at - 0.25)
      const leaving = held.release()
      await clock.advance(0.25)
      giveUp.abort(NO_LONGER)
      await leaving
      await clock.advance(100)
      const lease = await waiting
      expect(await rooms()).toMatchObject(lease === undefined ? [] : [{ holders: [{ id: lease.id }] }])
      await lease?.release()
    }
  })
})

test('an abort while the first request is being written leaves nothing to look after', async () => {
  const { clock, store, locks } = scene()
  const reason = new Error('the user left')
  const giveUp = new AbortController()
  const acquire = store.acquire.bind(store)
  store.acquire = (ticket) => {
    giveUp.abort(reason)
    return acquire(ticket)
  }
  expect(await outcomeOf(locks.acquire('k', { signal: giveUp.signal, wait: 1000 }))).toEqual({
    error: reason,
  })
  expect(clock.timers.keepingAlive).toBe(0)
  const delays = delaysOf(clock)
  await clock.advance(10_000)
  expect(delays.length).toBeLessThanOrEqual(5)
  expect(store.count('renew')).toBe(0)
})

test('two renewals on their way at the end of a wait do not make the store silent: the key was taken', async () => {
  const { clock, store, locks, other } = scene()
  const held = await other.locks.acquire('k')
  const waiting = locks.acquire('k', { wait: 300 })
  await clock.advance(100)
  const { tickets } = store.sent.at(-1) ?? {}
  store.always('lose request', ['renew'])
  for (let wakes = 0; wakes < 2; wakes += 1) {
    store.wake({ tag: 'ticket', id: tickets?.[0]?.id ?? '' })
    await clock.advance(1)
  }
  expect(store.count('renew')).toBeGreaterThanOrEqual(2)
  await expect(clock.until(waiting)).rejects.toMatchObject({ code: 'acquire-timeout' })
  await held.release()
})
