import { describe, expect, test } from 'vitest'
import type { Granted } from '../../src/contract/store.ts'
import { settled } from './fake-clock.ts'
import { errorOf, outcomeOf, scene } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000
const NO_LONGER = new Error('no longer')
/** The allowance for clocks that run at different rates (0.5 % of the ttl), and the margin. */
const ALLOWANCE = 150 + 250
/** The engine asks about a waiter this often: a third of the patience of 6 s. */
const ASKED_EVERY = 2000

/** A waiter of `locks` for the key of `held`. The store has heard of the waiter `sinceMs` ago. */
async function waitingScene(sinceMs: number) {
  const all = scene()
  const held = await all.other.locks.acquire('k')
  const giveUp = new AbortController()
  const waiting = all.locks.acquire('k', { ttl: TTL, wait: '5m', signal: giveUp.signal })
  // The engine has asked once more since its messages flow.
  await all.clock.advance(1)
  const asked = all.store.sent.length
  await all.clock.advance(sinceMs - 1)
  return { ...all, held, giveUp, waiting, asked }
}

describe('a message that is a lease', () => {
  test('ends the wait without a request, with the lease that the store has', async () => {
    const { store, held, waiting, asked, rooms } = await waitingScene(1000)
    await held.release()
    const lease = await waiting
    expect(store.sent.length).toBe(asked)
    expect(await rooms()).toMatchObject([{ holders: [{ id: lease.id, fence: lease.fence, state: 'held' }] }])
    await lease.release()
  })

  test('is renewed like every lease', async () => {
    const { clock, store, held, waiting } = await waitingScene(1000)
    await held.release()
    const lease = await waiting
    const before = store.count('renew')
    await clock.advance(3 * TTL)
    expect(store.count('renew') - before).toBeGreaterThan(5)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('counts from the grant, by the clock of the last answer, less 0.5 % of the time since', async () => {
    const { held, waiting } = await waitingScene(1000)
    await held.release()
    const lease = await waiting
    expect(lease.remainingMs).toBeCloseTo(TTL - ALLOWANCE - 5, 0)
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL - ALLOWANCE - 4)
    await lease.release()
  })

  test('that is late leaves so much less', async () => {
    const { clock, store, held, waiting, late } = await lateScene()
    await held.release()
    await clock.advance(500)
    store.wake(late())
    const lease = await waiting
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL - ALLOWANCE - 500)
    expect(lease.remainingMs).toBeGreaterThan(TTL - ALLOWANCE - 520)
    await lease.release()
  })

  test('of which nothing is left is a hint', async () => {
    const { clock, store, held, waiting, late, other } = await lateScene()
    await held.release()
    store.always('lose request')
    await clock.advance(TTL + 1000)
    const next = await clock.until(other.locks.acquire('k'))
    store.always('answer')
    store.wake(late())
    expect(await outcomeOf(waiting)).toBe('pending')
    await next.release()
    await (await clock.until(waiting)).release()
  })

  test('that is lost costs the time until the next question', async () => {
    const { clock, store, held, waiting } = await waitingScene(1000)
    store.wakes = false
    await held.release()
    const from = clock.monotonicMs()
    const lease = await clock.until(waiting)
    expect(clock.monotonicMs() - from).toBeLessThanOrEqual(ASKED_EVERY)
    await lease.release()
  })

  test('that comes twice, or after the release, changes nothing', async () => {
    const { clock, store, held, waiting, late } = await lateScene()
    await held.release()
    const message = late()
    store.wake(message)
    const lease = await waiting
    const asked = store.sent.length
    store.wake(message)
    await clock.advance(1)
    expect(store.sent.length).toBe(asked)
    await lease.release()
    store.wake(message)
    await clock.advance(1)
    expect(store.sent.length).toBe(asked + 1)
  })

  test('comes in vain to a caller that gives up in the same tick', async () => {
    const { clock, giveUp, held, waiting, rooms } = await waitingScene(1000)
    const error = errorOf(waiting)
    const released = held.release()
    giveUp.abort(NO_LONGER)
    expect(await error).toBe(NO_LONGER)
    await released
    await clock.advance(1)
    expect(await rooms()).toEqual([])
  })

  test('is a hint if the store has said since that the ticket waits', async () => {
    const { clock, store, held, waiting, id } = await lateScene()
    const old: Granted = { tag: 'granted', id, fence: 1n, storeMs: clock.storeTime().ms }
    await clock.advance(ASKED_EVERY + 1)
    const asked = store.sent.length
    store.wake(old)
    expect(await outcomeOf(waiting)).toBe('pending')
    expect(store.sent.length).toBe(asked + 1)
    store.wakes = true
    await held.release()
    await (await waiting).release()
  })

  test('that comes after the store has lost its data is a lease until the first renewal, which tells', async () => {
    const { clock, store, held, waiting, id, late, other } = await lateScene()
    await held.release()
    const message = late()
    // Nothing is left of the ticket, not even a tombstone.
    await store.real.release({ key: 'k', id, cancel: false })
    const next = await other.locks.acquire('k')
    const [asked, renewals] = [store.sent.length, store.count('renew')]
    store.wake(message)
    const lease = await waiting
    expect(store.sent.length).toBe(asked)
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL - ALLOWANCE)
    expect(lease.fence).toBeLessThan(next.fence)
    await clock.untilTrue(() => store.count('renew') > renewals)
    await clock.advance(0)
    expect(store.count('renew')).toBe(renewals + 1)
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: 'store-reset' }))
    await next.release()
  })

  test('before the first answer is a hint', async () => {
    const { clock, store, locks, other } = scene()
    const held = await other.locks.acquire('k')
    const first = new Letter()
    store.next('acquire', first)
    const waiting = locks.acquire('k', { ttl: TTL })
    await settled()
    const [id = ''] = store.sent.flatMap(({ tickets }) => tickets.map((ticket) => ticket.id))
    first.arrive()
    store.wake({ tag: 'granted', id, fence: 1n, storeMs: clock.storeTime().ms })
    first.reply()
    expect(await outcomeOf(waiting)).toBe('pending')
    await held.release()
    await (await waiting).release()
  })

  test('of a store whose clock was set forward is no longer than one that was granted as it came', async () => {
    const { clock, store, held, waiting, late } = await lateScene()
    await held.release()
    const message = late()
    store.wake({ ...message, storeMs: message.storeMs + 3_600_000 })
    const lease = await waiting
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL - ALLOWANCE)
    await clock.advance(1)
    await lease.release()
  })

  test('of an earlier wait of the same ticket is a hint, also if the store’s clock was set back since', async () => {
    const { clock, store, held, waiting, late, other } = await lateScene()
    await held.release()
    store.always('lose request')
    await clock.advance(TTL + 1000)
    const next = await clock.until(other.locks.acquire('k', { ttl: '10m' }))
    store.always('answer')
    const acquires = store.count('acquire')
    await clock.advance(20_000)
    // The store has forgotten the ticket, which was asked for anew.
    expect(store.count('acquire')).toBeGreaterThan(acquires)
    // A store's clock that was set back makes the message seem newer than the last answer.
    store.wake({ ...late(), storeMs: clock.storeTime().ms + 1 })
    expect(await outcomeOf(waiting)).toBe('pending')
    store.wakes = true
    await next.release()
    await (await clock.until(waiting)).release()
  })

  test('counts the time that this machine slept since', async () => {
    const { clock, store, held, waiting, late } = await lateScene()
    await held.release()
    const message = late()
    clock.suspend(5000)
    store.wake(message)
    const lease = await waiting
    expect(lease.remainingMs).toBeLessThanOrEqual(TTL - ALLOWANCE - 5000)
    await lease.release()
  })

  test('is checked when it overtook the answer to a question, since that may tell of an eviction', async () => {
    const { clock, store, held, waiting, late, other } = await lateScene()
    await held.release()
    const message = late()
    const question = new Letter()
    store.next('renew', question)
    store.wake({ tag: 'ticket', id: message.id })
    await clock.advance(0)
    await other.locks.evictAll('k', { reason: 'stuck' })
    store.wake(message)
    const lease = await waiting
    await clock.advance(1)
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: 'evicted' }))
  })

  test('is checked when another message comes with it, since that may tell of an eviction', async () => {
    const { clock, held, waiting, other } = await waitingScene(1000)
    const released = held.release()
    const evicted = other.locks.evictAll('k', { reason: 'stuck' })
    const lease = await waiting
    await Promise.all([released, evicted])
    await clock.advance(1)
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: 'evicted' }))
  })
})

/** The same as `waitingScene`, but messages do not arrive. `late` is the message for the waiter. */
async function lateScene() {
  const all = await waitingScene(1000)
  all.store.wakes = false
  const [id = ''] = all.store.sent.flatMap(({ tickets }) => tickets.map((ticket) => ticket.id))
  const late = (): Granted => {
    const granted = all.store.missed.find((wake) => wake.tag === 'granted' && wake.id === id)
    if (granted?.tag !== 'granted') throw new Error('Expected a message that is a lease')
    return granted
  }
  return { ...all, id, late }
}
