import { describe, expect, test } from 'vitest'
import { errorOf, outcomeOf, scene } from '../engine/scene.ts'
import { Letter, type ScriptedStore } from '../engine/scripted-store.ts'

const TTL = 30_000

describe('a lease that is handed over', () => {
  test('keeps its id and its fence, and is renewed where it is now', async () => {
    const { clock, store, locks, other, rooms } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const json = JSON.parse(JSON.stringify(lease.detach()))
    const adopted = await other.locks.adopt(json)
    expect(adopted).toMatchObject({ key: 'k', id: lease.id, fence: lease.fence, state: 'held' })
    const before = store.sent.length
    await clock.advance(10 * TTL)
    expect(adopted.state).toBe('held')
    expect(store.sent.length).toBe(before)
    expect(await rooms()).toMatchObject([{ holders: [{ id: lease.id, fence: lease.fence }] }])
    await adopted.release()
  })

  test('is not released by a late reply to a request of its first process', async () => {
    const { clock, store, locks, other, rooms } = scene()
    const late = new Letter()
    store.next('acquire', late)
    const acquiring = locks.acquire('k', { ttl: TTL })
    late.arrive()
    const adopted = await other.locks.adopt((await clock.until(acquiring)).detach())
    late.reply()
    await clock.advance(1000)
    expect(store.count('release')).toBe(0)
    expect(await rooms()).toMatchObject([{ holders: [{ id: adopted.id, fence: adopted.fence }] }])
    await adopted.release()
  })

  test('leaves a tombstone, for a request of its first holder that arrives after the release', async () => {
    const { clock, store, locks, other, rooms } = scene()
    const late = new Letter()
    store.next('acquire', late)
    const lease = await clock.until(locks.acquire('k', { ttl: TTL }))
    const adopted = await other.locks.adopt(lease.detach())
    await adopted.release()
    late.arrive()
    expect(await rooms()).toEqual([])
  })

  test('is asked for with a ticket as every other one, whatever the options', async () => {
    const { store, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const { signal } = new AbortController()
    const adopted = await other.locks.adopt(lease.detach(), {
      signal,
      ttl: '1m',
      maxHold: '1m',
      renew: true,
    })
    const sent = (other.engine.store as ScriptedStore).sent.flatMap(({ tickets }) => tickets)
    expect(sent).toHaveLength(1)
    expect(Object.keys(sent[0] ?? {})).toEqual(Object.keys(store.sent[0]?.tickets[0] ?? {}))
    expect(sent[0]).toMatchObject({ id: lease.id, ttlMs: 60_000 })
    await adopted.release()
  })

  test('cannot be released, extended or detached any more by its first process', async () => {
    const { locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const signal = lease.signal
    const adopted = await other.locks.adopt(lease.detach())
    await lease.release()
    expect(lease.state).toBe('released')
    expect(signal.aborted).toBe(false)
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ code: 'lease-lost' }))
    expect(() => lease.detach()).toThrow(expect.objectContaining({ code: 'lease-lost' }))
    expect(await errorOf(lease.extend())).toMatchObject({ code: 'lease-lost' })
    expect(() => adopted.assertHeld()).not.toThrow()
    await adopted.release()
  })

  test('may be detached by the work of withLock, which then keeps the key', async () => {
    const { locks, other, rooms } = scene()
    const json = await locks.withLock('k', (lease) => lease.detach())
    expect(await rooms()).toMatchObject([{ holders: [{ id: json.id }] }])
    await (await other.locks.adopt(json)).release()
  })

  test('is not brought back by requests of its first process that arrive after its release', async () => {
    const { clock, store, locks, other, rooms } = scene()
    const acquire = new Letter()
    store.next('acquire', acquire)
    const lease = await clock.until(locks.acquire('k', { ttl: TTL }))
    const renewal = new Letter()
    store.next('renew', renewal)
    await clock.untilTrue(() => store.count('renew') === 1)
    const adopted = await other.locks.adopt(lease.detach())
    await adopted.release()
    renewal.arrive().reply()
    expect(await rooms()).toEqual([])
    acquire.arrive().reply()
    await clock.advance(1)
    expect(lease.state).toBe('released')
    expect(await rooms()).toEqual([])
  })

  test('goes on with its units and its ttl, unless another ttl is asked for', async () => {
    const { locks, other, rooms } = scene()
    const lease = await locks.semaphore('k', 5).acquire({ units: 3, ttl: TTL })
    const adopted = await other.locks.adopt(lease.detach(), { ttl: '2m' })
    expect(await rooms()).toMatchObject([{ holders: [{ units: 3, limit: 5 }] }])
    expect(adopted.remainingMs).toBeGreaterThan(115_000)
    expect(adopted.toJSON()).toMatchObject({ units: 3, limit: 5, ttlMs: 120_000 })
    await adopted.release()
  })

  test('goes on with its minimum hold and its lock-delay, and takes no others', async () => {
    const { clock, locks, other } = scene()
    const sent = () => (other.engine.store as ScriptedStore).sent.flatMap(({ tickets }) => tickets).at(-1)
    const lease = await locks.acquire('k', { ttl: TTL, minHold: 10, lockDelay: '3s' })
    const adopted = await other.locks.adopt(JSON.parse(JSON.stringify(lease.detach())))
    expect(sent()).toMatchObject({ minHoldMs: 10, lockDelayMs: 3000 })
    for (const given of [{ minHold: 7 }, { lockDelay: 7 }]) {
      expect(await errorOf(other.locks.adopt(adopted.toJSON(), given as object))).toMatchObject({
        code: 'invalid-argument',
      })
    }
    const { minHoldMs: _minHold, lockDelayMs: _lockDelay, ...older } = adopted.detach()
    const oldest = await other.locks.adopt(older)
    expect(sent()).toMatchObject({ minHoldMs: 0, lockDelayMs: 0 })
    expect(await errorOf(other.locks.adopt({ ...older, lockDelayMs: -1 }))).toMatchObject({
      code: 'invalid-argument',
    })
    await oldest.release()
    await clock.advance(10)
  })

  test('that is aborted while the store is silent rejects at once, with the reason of the signal', async () => {
    const { clock, store, locks, other } = scene()
    const json = (await other.locks.acquire('k', { ttl: TTL })).detach()
    store.next('renew', 'lose request')
    const caller = new AbortController()
    const adopting = errorOf(locks.adopt(json, { signal: caller.signal }))
    await clock.advance(100)
    const enough = new Error('enough')
    caller.abort(enough)
    expect(await clock.until(adopting, { withinMs: 1 })).toBe(enough)
    await clock.advance(TTL)
  })

  test('is lost when no process continued it before its ttl was over', async () => {
    const { clock, locks, other } = scene()
    const json = (await locks.acquire('k', { ttl: TTL })).detach()
    await clock.advance(TTL + 1)
    const error = await errorOf(other.locks.adopt(json))
    expect(error).toMatchObject({ code: 'lease-lost', reason: 'expired', key: 'k' })
    expect(error.message).toBe('The lease on "k" cannot be continued: the store does not hold it any more.')
  })

  test('is not another holder’s: if another ticket holds the key, it keeps it', async () => {
    const { clock, locks, other } = scene()
    const json = (await locks.acquire('k', { ttl: TTL })).detach()
    await clock.advance(TTL + 1)
    const heir = await locks.acquire('k')
    expect(await errorOf(other.locks.adopt(json))).toMatchObject({ code: 'lease-lost' })
    expect(() => heir.assertHeld()).not.toThrow()
    await heir.release()
  })

  test('that only waits is no lease, and it keeps its place in the queue', async () => {
    const { clock, locks, other, rooms } = scene()
    const held = await locks.acquire('k')
    const order: string[] = []
    const waiters = ['first', 'second'].map(async (name) => {
      const lease = await other.locks.acquire('k')
      order.push(name)
      await lease.release()
    })
    await clock.advance(10)
    const first = (await rooms())[0]?.queue[0]?.id ?? ''
    expect(await errorOf(locks.adopt({ ...held.toJSON(), id: first }))).toMatchObject({ code: 'lease-lost' })
    await clock.advance(10)
    await held.release()
    await clock.until(Promise.all(waiters), { withinMs: 100 })
    expect(order).toEqual(['first', 'second'])
  })

  test('under another fence than the store’s is refused, and the holder keeps the key', async () => {
    const { clock, locks, other } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const forged = { ...lease.toJSON(), fence: String(lease.fence + 1n) }
    expect(await errorOf(other.locks.adopt(forged))).toMatchObject({ code: 'lease-lost' })
    await clock.advance(2 * TTL)
    expect(lease.state).toBe('held')
    await lease.release()
  })

  test('of a lease that was evicted says so', async () => {
    const { locks, other } = scene()
    const json = (await other.locks.acquire('k', { ttl: TTL })).detach()
    await other.locks.evictAll('k', { reason: 'stuck' })
    expect(await errorOf(locks.adopt(json))).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
  })

  test.each([
    ['a number', 5],
    ['a Map', new Map()],
    ['null', null],
  ])('with %s for options is bad input', async (_what, options) => {
    const { locks } = scene()
    const lease = await locks.acquire('k', { ttl: TTL })
    const adopting = locks.adopt(lease.toJSON(), options as never)
    const outcome = await outcomeOf(adopting)
    await lease.release()
    expect(outcome).toMatchObject({ error: { code: 'invalid-argument' } })
  })

  test('with an aborted signal rejects with its reason', async () => {
    const { clock, locks, other } = scene()
    const json = (await other.locks.acquire('k', { ttl: TTL })).detach()
    const reason = new Error('no longer wanted')
    const outcome = await outcomeOf(locks.adopt(json, { signal: AbortSignal.abort(reason) }))
    await clock.advance(1)
    const [room] = await locks
      .inspect()
      .next()
      .then((page) => [page.value])
    await other.locks.evict('k', room?.holders[0]?.id ?? '', { reason: 'end of the test' })
    await clock.advance(TTL)
    expect(outcome).toEqual({ error: reason })
  })

  test.each([
    ['an empty key', { key: '' }],
    ['an empty id', { id: '' }],
    ['no units', { units: 0 }],
    ['half a unit', { units: 0.5 }],
    ['more units than its limit', { units: 2 }],
    ['a limit that is no number', { limit: Number.NaN }],
  ])('of json with %s is bad input, and the store is not asked', async (_what, damage) => {
    const { store, locks } = scene()
    const json = { key: 'k', id: 'x', fence: '1', units: 1, limit: 1, ttlMs: TTL, ...damage }
    expect(await errorOf(locks.adopt(json))).toMatchObject({ code: 'invalid-argument' })
    expect(store.sent).toEqual([])
  })

  test.each([
    ['nothing', undefined],
    ['null', null],
    ['a text', '{"key":"k"}'],
    ['a number', 5],
    ['a fence that is a number', { key: 'k', id: 'x', fence: 1, units: 1, limit: 1, ttlMs: TTL }],
    ['a fence that is no number', { key: 'k', id: 'x', fence: '-1', units: 1, limit: 1, ttlMs: TTL }],
    ['a ttl of 0', { key: 'k', id: 'x', fence: '1', units: 1, limit: 1, ttlMs: 0 }],
    [
      'an id of 10,000 characters',
      { key: 'k', id: 'x'.repeat(10_000), fence: '1', units: 1, limit: 1, ttlMs: TTL },
    ],
  ])('described by %s is bad input', async (_what, json) => {
    const { store, locks } = scene()
    const error = await errorOf(locks.adopt(json as never))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toMatch(/^Expected `.*` to be .*, got .*\.$/)
    expect(store.sent).toEqual([])
  })
})
