import { describe, expect, test } from 'vitest'
import type { Owner } from '../../src/index.ts'
import { errorOf, scene } from '../engine/scene.ts'
import { releaseOf, ticket } from '../stores/tickets.ts'

const TTL = 30_000

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

describe('inspect', () => {
  test('shows the holders and waiters, how long, and their owners', async () => {
    const { clock, locks, other } = scene()
    const held = await locks.acquire('k', { ttl: TTL })
    await clock.advance(1000)
    const waiting = other.locks.acquire('k', { ttl: TTL })
    await clock.advance(500)
    const rooms = await all(locks.inspect())
    expect(rooms).toMatchObject([
      {
        key: 'k',
        holders: [{ id: held.id, fence: held.fence, units: 1, limit: 1, heldMs: 1500, state: 'held' }],
        queue: [{ units: 1, limit: 1, waitedMs: 500 }],
        closedMs: 0,
      },
    ])
    expect(rooms[0]?.holders[0]?.owner).toEqual({ label: 'test' })
    await held.release()
    await (await clock.until(waiting)).release()
  })

  test.each<[string, Owner]>([
    [
      '{"host":"web","pid":7,"label":"mailer","value":"v","more":1}',
      { host: 'web', pid: 7, label: 'mailer', value: 'v' },
    ],
    ['{"host":5,"label":"mailer"}', { label: 'mailer' }],
    ['{}', { text: '{}' }],
    ['null', { text: 'null' }],
    ['no JSON', { text: 'no JSON' }],
  ])('shows the owner %s of another program as far as it can be read', async (owner, seen) => {
    const { locks, store } = scene()
    const foreign = ticket({ key: 'k', owner })
    await store.acquire(foreign)
    await store.acquire(ticket({ key: 'k', id: 'waits', owner }))
    const [room] = await all(locks.inspect())
    expect(room).toMatchObject({ holders: [{ owner: seen }], queue: [{ owner: seen }] })
    expect(room?.holders[0]?.owner).toEqual(seen)
    expect(await locks.election('k').leader()).toMatchObject({
      value: seen.value,
      fence: room?.holders[0]?.fence,
    })
    await locks.evictAll('k', { reason: 'the end of the test' })
    await store.release(releaseOf(foreign))
  })

  test('changes nothing: a room that is inspected all the time expires all the same', async () => {
    const { clock, locks, other } = scene()
    const held = await other.locks.acquire('k', { ttl: TTL, renew: false })
    for (let second = 0; second < 30; second += 1) {
      expect(await all(locks.inspect())).toHaveLength(1)
      await clock.advance(1000)
    }
    expect(await all(locks.inspect())).toEqual([])
    expect(held.state).toBe('lost')
  })

  test('finds rooms by their prefix, in pages of any size, each once', async () => {
    const { locks } = scene()
    const keys = Array.from({ length: 25 }, (_, index) => `job:${String(index).padStart(2, '0')}`)
    const leases = await Promise.all([...keys, 'other'].map((key) => locks.acquire(key)))
    for (const pageSize of [1, 7, 25, 26]) {
      const found = (await all(locks.inspect({ prefix: 'job:', pageSize }))).map(({ key }) => key)
      expect(found).toEqual(keys)
    }
    expect(await all(locks.inspect({ prefix: 'job:07' }))).toHaveLength(1)
    expect(await all(locks.inspect({ prefix: 'j*' }))).toEqual([])
    expect(await all(locks.inspect())).toHaveLength(26)
    await Promise.all(leases.map((lease) => lease.release()))
  })

  test('goes on behind a room that is gone by the time of the next page', async () => {
    const { locks } = scene()
    const leases = await Promise.all(['a', 'b', 'c'].map((key) => locks.acquire(key)))
    const seen: string[] = []
    for await (const { key } of locks.inspect({ pageSize: 1 })) {
      seen.push(key)
      await leases.find((lease) => lease.key === key)?.release()
    }
    expect(seen).toEqual(['a', 'b', 'c'])
  })

  test.each([
    [{ prefix: 5 }, 'Expected `prefix` to be a string, got 5.'],
    [{ pageSize: 0 }, 'Expected `pageSize` to be a whole number from 1 to 10000, got 0.'],
    [{ pageSize: 1.5 }, 'Expected `pageSize` to be a whole number from 1 to 10000, got 1.5.'],
    [{ perfix: 'k' }, 'Expected the options to be among `prefix`, `pageSize`, `onPage`, got `perfix`.'],
    [null, 'Expected the options to be an object, got null.'],
    ['k', 'Expected the options to be an object, got "k".'],
  ])('refuses %j', async (options, message) => {
    const { store, locks } = scene()
    expect(await errorOf(locks.inspect(options as never).next())).toMatchObject({ message })
    expect(store.sent).toEqual([])
  })
})

describe('peek', () => {
  test('shows one key in one request, whatever other keys there are, and null where nobody is', async () => {
    const { clock, locks, other, store } = scene()
    expect(await locks.peek('k')).toBeNull()
    const held = await other.locks.acquire('k', { ttl: TTL })
    const longer = await other.locks.acquire('k:1')
    const waiting = locks.acquire('k')
    await clock.advance(500)
    const before = store.sent.length
    expect(await locks.peek('k')).toMatchObject({
      key: 'k',
      holders: [{ id: held.id, fence: held.fence, heldMs: 500, state: 'held', owner: { label: 'test' } }],
      queue: [{ waitedMs: 500, owner: { label: 'test' } }],
      closedMs: 0,
    })
    expect(store.sent.slice(before).map(({ verb }) => verb)).toEqual(['inspect'])
    await held.release()
    await (await clock.until(waiting)).release()
    await longer.release()
    expect(await locks.peek('k')).toBeNull()
  })

  test('shows a key that only a lock-delay keeps closed', async () => {
    const { clock, locks, other } = scene()
    await other.locks.acquire('k', { ttl: 1000, renew: false, lockDelay: '5s' })
    await clock.advance(2000)
    expect(await locks.peek('k')).toMatchObject({ holders: [], queue: [], closedMs: 4000 })
    await clock.advance(4000)
    expect(await locks.peek('k')).toBeNull()
  })

  test('refuses what is no key', async () => {
    const { locks, store } = scene()
    expect(await errorOf(locks.peek(''))).toMatchObject({ code: 'invalid-argument' })
    expect(await errorOf(locks.waitUntilFree('k', { wiat: 5 } as never))).toMatchObject({
      message: 'Expected the options to be among `wait`, `storeTimeout`, `signal`, got `wiat`.',
    })
    expect(store.sent).toEqual([])
  })
})

describe('evict', () => {
  test('takes the key from a holder and gives it to the next one', async () => {
    const { clock, locks, other } = scene()
    const stuck = await locks.acquire('k', { ttl: TTL })
    const next = other.locks.acquire('k')
    await clock.advance(10)
    expect(await other.locks.evict('k', stuck.id, { reason: 'stuck' })).toEqual([stuck.id])
    const heir = await clock.until(next, { withinMs: 100 })
    expect(heir.fence).toBeGreaterThan(stuck.fence)
    await clock.advance(TTL)
    expect(stuck.state).toBe('lost')
    expect(() => stuck.assertHeld()).toThrow(expect.objectContaining({ reason: 'evicted' }))
    await stuck.release()
    expect(() => heir.assertHeld()).not.toThrow()
    await heir.release()
  })

  test('without an id takes the key from all tickets, waiters too', async () => {
    const { clock, locks, other } = scene()
    const held = await locks.acquire('k')
    const waiting = [errorOf(other.locks.acquire('k')), errorOf(locks.acquire('k'))]
    await clock.advance(10)
    expect(await other.locks.evictAll('k', { reason: 'maintenance' })).toHaveLength(3)
    for (const error of await clock.until(Promise.all(waiting)))
      expect(error).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
    await clock.advance(TTL)
    expect(held.state).toBe('lost')
  })

  test('of an id or a key that no ticket has removes nothing', async () => {
    const { locks } = scene()
    const held = await locks.acquire('k')
    expect(await locks.evict('k', 'nobody', { reason: 'r' })).toEqual([])
    expect(await locks.evictAll('nothing', { reason: 'r' })).toEqual([])
    expect(() => held.assertHeld()).not.toThrow()
    await held.release()
  })

  test.each([
    ['', 'id', { reason: 'r' }],
    ['k', undefined, { reason: 'r' }],
    ['k', '', { reason: 'r' }],
    ['k', null, { reason: 'r' }],
    ['k', 5, { reason: 'r' }],
    ['k', 'id', { reason: '' }],
    ['k', 'id', { reason: 'r'.repeat(501) }],
    ['k', 'id', { reason: 5 }],
    ['k', 'id', {}],
    ['k', 'id', undefined],
    ['k', 'id', null],
    ['k', 'id', 'stuck'],
    ['k', 'id', { reason: 'r', force: true }],
  ])('evict refuses %j, %j, %j before the store is asked', async (key, id, options) => {
    const { store, locks } = scene()
    const error = await errorOf(locks.evict(key, id as never, options as never))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toMatch(/^Expected .* to be .*, got .*\.$/)
    expect(store.sent).toEqual([])
  })

  test.each([
    ['', { reason: 'r' }],
    ['k', { reason: '' }],
    ['k', undefined],
    ['k', { reason: 'r', id: 'id' }],
  ])('evictAll refuses %j, %j before the store is asked', async (key, options) => {
    const { store, locks } = scene()
    expect(await errorOf(locks.evictAll(key, options as never))).toMatchObject({ code: 'invalid-argument' })
    expect(store.sent).toEqual([])
  })
})
