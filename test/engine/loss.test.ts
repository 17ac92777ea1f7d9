import { describe, expect, test } from 'vitest'
import type { HeldLease } from '../../src/engine/held-lease.ts'
import { LeaseLostError } from '../../src/errors.ts'
import { delaysOf, settled } from './fake-clock.ts'
import { realScene, scene, startWakes } from './scene.ts'
import { Letter } from './scripted-store.ts'

const TTL = 30_000

describe('a lease that is lost', () => {
  test('aborts its signal by the deadline while the renewal hangs', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    store.always('lose request')
    const deadline = clock.monotonicMs() + lease.remainingMs
    await clock.untilTrue(() => signal.aborted, { stepMs: 1 })
    expect(clock.monotonicMs()).toBeGreaterThanOrEqual(Math.floor(deadline))
    expect(clock.monotonicMs()).toBeLessThanOrEqual(Math.ceil(deadline) + 1)
    expect(signal.reason).toBeInstanceOf(LeaseLostError)
    expect(signal.reason).toMatchObject({ code: 'lease-lost', reason: 'expired', key: 'k' })
    await clock.advance(TTL)
  })

  test('aborts its signal by the deadline while every renewal fails, and keeps why as the cause', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    store.always('fail')
    await clock.advance(lease.remainingMs + 1)
    expect(signal.aborted).toBe(true)
    expect(signal.reason).toMatchObject({ reason: 'expired', cause: { code: 'store-unavailable' } })
    await clock.advance(TTL)
  })

  test('is asked for until the deadline even when the store refuses, since a person may set the store right', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('refuse', ['renew'])
    await clock.advance(0.8 * TTL)
    store.always('answer')
    await clock.advance(0.15 * TTL)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('has a signal that is aborted from the start, for a caller that asks only then', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('lose request')
    await clock.advance(TTL)
    expect(lease.signal.aborted).toBe(true)
    expect(lease.signal.reason).toMatchObject({ reason: 'expired' })
    expect(lease.signal).toBe(lease.signal)
    await clock.advance(TTL)
  })

  test('says the same to the signal and to assertHeld, once and for good', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    let aborts = 0
    lease.signal.addEventListener('abort', () => {
      aborts += 1
    })
    clock.block(TTL)
    expect(() => lease.assertHeld()).toThrow(lease.signal.reason)
    await clock.advance(TTL)
    expect(() => lease.assertHeld()).toThrow(lease.signal.reason)
    expect(aborts).toBe(1)
  })

  test('is known on the spot after a blocked event loop, before any timer has run', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    clock.block(TTL)
    expect(lease.state).toBe('lost')
    expect(lease.remainingMs).toBe(0)
    expect(() => lease.assertHeld()).toThrow(
      expect.objectContaining({ code: 'lease-lost', reason: 'expired' }),
    )
    expect(lease.signal.aborted).toBe(true)
    await lease.release()
  })

  test('because the store was reset is told at the next renewal, as that and not as an expiry', async () => {
    const { clock, store, locks, rooms } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    await store.real.release({ key: 'k', id: lease.id, cancel: false })
    await clock.advance(TTL / 3 + 2000)
    expect(signal.reason).toMatchObject({ code: 'lease-lost', reason: 'store-reset' })
    expect(lease.state).toBe('lost')
    expect(await rooms()).toEqual([])
  })

  test('by eviction is told at the next renewal, with the reason that was given', async () => {
    const { clock, locks, store, other } = scene()
    store.wakes = false
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    await other.locks.evict('k', lease.id, { reason: 'stuck since noon' })
    await clock.advance(TTL / 3 + 2000)
    expect(signal.reason).toMatchObject({ code: 'lease-lost', reason: 'evicted', key: 'k' })
    expect(signal.reason.message).toContain('stuck since noon')
  })

  test('by eviction is told at once to a listener of the signal, when wakes flow', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    await clock.advance(1)
    await other.locks.evict('k', lease.id, { reason: 'stuck' })
    await clock.advance(1)
    expect(signal.reason).toMatchObject({ reason: 'evicted' })
  })

  test('by eviction is told at once also to a holder that has not read its signal yet', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const reasons: string[] = []
    locks.on('lost', ({ reason }) => reasons.push(reason))
    await startWakes(locks)
    await clock.advance(1)
    await other.locks.evict('k', lease.id, { reason: 'stuck' })
    await clock.advance(1)
    expect(lease.state).toBe('lost')
    expect(reasons).toEqual(['evicted'])
    expect(lease.signal.reason).toMatchObject({ reason: 'evicted', evictedBecause: 'stuck' })
  })

  test('by eviction before the holder listens at all is told when the signal is read', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    await other.locks.evict('k', lease.id, { reason: 'stuck' })
    await clock.advance(1)
    const { signal } = lease
    expect(signal.aborted).toBe(false)
    await clock.advance(1)
    expect(signal.reason).toMatchObject({ reason: 'evicted' })
  })

  test('by eviction is told at once in the process that has the store, before any holder listens', async () => {
    const { locks, store } = realScene()
    const lease = await locks.acquire('k', { ttl: TTL })
    void store.evict({ key: 'k', id: lease.id, reason: 'stuck' })
    const { signal } = lease
    await settled()
    expect(signal.reason).toMatchObject({ reason: 'evicted' })
  })

  test('by eviction is told at once when the wake overtakes the grant of several keys', async () => {
    const { clock, store, locks, other } = scene({ takesAll: true })
    await startWakes(locks)
    await clock.advance(1)
    const letter = new Letter()
    store.next('acquireAll', letter)
    const taking = locks.acquireAll(['a', 'b'], { ttl: TTL })
    await settled()
    letter.arrive()
    await settled()
    await other.locks.evictAll('b', { reason: 'stuck' })
    await clock.advance(1)
    letter.reply()
    const leases = await taking
    await clock.advance(1)
    expect(leases.leases.map(({ state }) => state)).toEqual(['held', 'lost'])
    await leases.release()
  })

  test('by eviction is told at once when the wake overtakes the answer that adopts the lease', async () => {
    const { clock, store, locks, other } = scene()
    const first = await other.locks.acquire('k', { ttl: TTL })
    await startWakes(locks)
    await clock.advance(1)
    const letter = new Letter()
    store.next('renew', letter)
    const adopting = locks.adopt(first.detach())
    await settled()
    letter.arrive()
    await settled()
    await other.locks.evictAll('k', { reason: 'stuck' })
    await clock.advance(1)
    letter.reply()
    const lease = await adopting
    await clock.advance(1)
    expect(lease.signal.reason).toMatchObject({ reason: 'evicted' })
  })

  test('by eviction is told as soon as wakes flow, when it happened before that', async () => {
    const { clock, store, locks, other } = scene()
    let flow = () => {}
    store.listenAfter = new Promise((resolve) => {
      flow = resolve
    })
    const renewed = await locks.acquire('renewed', { ttl: '1h' })
    const single = await locks.acquire('single', { ttl: '1h', renew: false })
    const signals = [renewed.signal, single.signal]
    await other.locks.evict('renewed', renewed.id, { reason: 'stuck' })
    await other.locks.evict('single', single.id, { reason: 'stuck' })
    await clock.advance(1000)
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, false])
    flow()
    await clock.advance(1)
    for (const { reason } of signals) expect(reason).toMatchObject({ reason: 'evicted' })
  })

  test('by eviction is told at once also when the lease is not renewed and its own wake was missed', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: '1h', renew: false })
    expect(lease.signal.aborted).toBe(false)
    await clock.advance(1)
    store.wakes = false
    await store.real.evict({ key: 'k', id: lease.id, reason: 'stuck' })
    store.wake({ tag: 'all' })
    await clock.advance(1)
    expect(lease.signal.reason).toMatchObject({ reason: 'evicted' })
  })

  test('by eviction is told at once when its wake overtakes the grant', async () => {
    const { clock, store, locks, other } = scene()
    expect((await locks.acquire('listening')).signal.aborted).toBe(false)
    await clock.advance(1)
    const grant = new Letter()
    store.next('acquire', grant)
    const acquiring = locks.acquire('k', { ttl: '1h' })
    grant.arrive()
    await other.locks.evictAll('k', { reason: 'stuck' })
    grant.reply()
    const lease = await clock.until(acquiring)
    await clock.advance(1)
    expect(lease.state).toBe('lost')
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: 'evicted' }))
    await locks.close()
  })

  test('by eviction is told at once when its wake overtakes the confirmation of an offer', async () => {
    const { clock, store, locks, other } = scene({ grants: false })
    const holder = await other.locks.acquire('k')
    const acquiring = locks.acquire('k', { ttl: '1h' })
    await clock.advance(1)
    const [confirmation, question] = [new Letter(), new Letter()]
    store.next('renew', confirmation, question)
    await holder.release()
    await clock.untilTrue(() => store.count('renew') === 2)
    confirmation.arrive()
    await other.locks.evictAll('k', { reason: 'stuck' })
    await clock.untilTrue(() => store.count('renew') === 3)
    confirmation.reply()
    const lease = await clock.until(acquiring)
    await clock.advance(1)
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: 'evicted' }))
  })

  test('by eviction is told at once also when the lease is not renewed', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    const signal = lease.signal
    await clock.advance(1)
    await other.locks.evict('k', lease.id, { reason: 'stuck' })
    await clock.advance(1)
    expect(signal.reason).toMatchObject({ reason: 'evicted' })
  })

  test('by eviction is told also when the first question about it failed, and without asking in a frenzy', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: '1h', renew: false })
    const signal = lease.signal
    await clock.advance(1)
    const delays = delaysOf(clock)
    store.always('fail', ['renew'])
    store.wake({ tag: 'ticket', id: lease.id })
    await clock.advance(2000)
    expect(delays.length).toBeLessThanOrEqual(150)
    expect(store.count('renew')).toBeGreaterThan(1)
    await store.real.evict({ key: 'k', id: lease.id, reason: 'stuck' })
    store.always('answer')
    await clock.advance(2000)
    expect(signal.reason).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
  })

  test('is asked about once when it was woken twice', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const { signal } = lease
    await clock.advance(10)
    const before = store.count('renew')
    store.wake({ tag: 'all' })
    store.wake({ tag: 'ticket', id: lease.id })
    await settled()
    const asked = store.sent.filter((request) => request.verb === 'renew').slice(before)
    expect(asked.map((request) => request.tickets.length)).toEqual([1])
    expect(signal.aborted).toBe(false)
    await lease.release()
  })

  test('and that is not renewed is not prolonged in the store by a question about an eviction', async () => {
    const { clock, store, locks, rooms } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    const { signal } = lease
    await clock.advance(TTL / 2)
    const asked = store.count('renew')
    store.wake({ tag: 'all' })
    await settled()
    expect(store.count('renew')).toBe(asked + 1)
    const [room] = await rooms()
    expect(room?.holders[0]?.remainingMs).toBeLessThanOrEqual(TTL / 2)
    expect(signal.aborted).toBe(false)
    await lease.release()
  })

  test('by eviction is looked for under its id: a wake for another process looks at few leases', async () => {
    const { clock, store, locks } = scene()
    const leases = await Promise.all(Array.from({ length: 100 }, (_, index) => locks.acquire(`k${index}`)))
    expect(leases.filter(({ signal }) => signal.aborted)).toEqual([])
    await clock.advance(1)
    let looks = 0
    for (const lease of leases) {
      const { ticket } = lease as HeldLease
      Object.defineProperty(lease, 'ticket', {
        get: () => {
          looks += 1
          return ticket
        },
      })
    }
    store.wake({ tag: 'ticket', id: 'of another process' })
    expect(looks).toBeLessThan(20)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('and was seen to be lost stays lost, although a renewal that was in time is answered later', async () => {
    const { clock, store, locks } = scene()
    const late = new Letter()
    store.next('renew', late)
    const lease = await locks.acquire('k', { ttl: TTL })
    await clock.untilTrue(() => store.count('renew') === 1)
    late.arrive()
    // Past the deadline that is known here, but not past the deadline of the answer.
    clock.block((TTL / 4) * 3)
    expect(lease.state).toBe('lost')
    late.reply()
    // No timer has run yet, so only the caller that has read the state knows of the loss.
    await settled()
    expect(lease.state).toBe('lost')
    expect(lease.remainingMs).toBe(0)
    expect(lease.signal.aborted).toBe(true)
    await lease.release()
  })

  test('because the store knows its id only under another fence is lost: another ticket may have held in between', async () => {
    const { clock, store, locks, other } = scene()
    const late = new Letter()
    store.next('acquire', late)
    const acquiring = locks.acquire('k', { ttl: TTL })
    const lease = await clock.until(acquiring)
    // The store forgets everything, another ticket holds and is done, and then our first request arrives at last.
    await store.real.release({ key: 'k', id: lease.id, cancel: false })
    await (await other.locks.acquire('k')).release()
    late.arrive()
    await clock.advance(TTL)
    expect(lease.state).toBe('lost')
    expect(lease.signal.reason).toMatchObject({ reason: 'store-reset' })
    await clock.advance(TTL)
  })

  test('takes no other lease of the process with it', async () => {
    const { clock, locks, other } = scene()
    const lost = await locks.acquire('a', { ttl: TTL })
    const kept = await locks.acquire('b', { ttl: TTL })
    await other.locks.evict('a', lost.id, { reason: 'stuck' })
    await clock.advance(TTL)
    expect(lost.state).toBe('lost')
    expect(kept.state).toBe('held')
    await kept.release()
  })
})

describe('a lease is in jeopardy', () => {
  test('when less than half of it is left and renewals fail, and held again after one that succeeds', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    store.always('fail', ['renew'])
    const seen = new Set<string>()
    await clock.untilTrue(() => {
      seen.add(lease.state)
      return lease.remainingMs < TTL / 4
    })
    expect([...seen]).toEqual(['held', 'jeopardy'])
    expect(() => lease.assertHeld()).not.toThrow()
    store.always('answer')
    await clock.untilTrue(() => lease.state === 'held', { withinMs: 2000 })
    expect(signal.aborted).toBe(false)
    await lease.release()
  })

  test('when the renewal hangs, and lost in the end', async () => {
    const { clock, store, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    store.always('lose request')
    const seen = new Set<string>()
    await clock.untilTrue(() => {
      seen.add(lease.state)
      return lease.state === 'lost'
    })
    expect([...seen]).toEqual(['held', 'jeopardy', 'lost'])
    await clock.advance(TTL)
  })

  test('when its renewal is overdue because the event loop was blocked', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    clock.block(0.8 * TTL)
    expect(lease.state).toBe('jeopardy')
    await clock.advance(10)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('never when it is not meant to be renewed', async () => {
    const { clock, locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL, renew: false })
    await clock.advance(0.8 * TTL)
    expect(lease.state).toBe('held')
    await lease.release()
  })
})

test('a question about an eviction that fails is asked again with growing pauses', async () => {
  const { clock, store, locks } = scene()
  const lease = await locks.acquire('k', { ttl: '1h', renew: false })
  expect(lease.signal.aborted).toBe(false)
  await clock.advance(1)
  store.always('fail', ['renew'])
  store.wake({ tag: 'ticket', id: lease.id })
  await clock.advance(10_000)
  expect(store.count('renew')).toBeLessThanOrEqual(25)
  await lease.release()
})
