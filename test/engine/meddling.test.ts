import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, onTestFinished, test } from 'vitest'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { FakeClock, settled } from './fake-clock.ts'
import { hear, last, story } from './hearing.ts'
import { outcomeOf, scene, startProcess } from './scene.ts'

// The engine calls listeners in the middle of its work, and they may use the very locks that they hear of.

describe('a listener that releases', () => {
  test('the lease that was evicted is too late: it is lost, and ends once', async () => {
    const { clock, store, locks, other } = scene()
    const lease = await locks.acquire('k')
    const { signal } = lease
    // Wakes flow from now on, and the engine has asked about the lease since.
    await clock.advance(1)
    locks.on('evicted', () => void lease.release())
    const heard = hear(locks)
    await other.locks.evict('k', lease.id, { reason: 'it is stuck' })
    await clock.untilTrue(() => signal.aborted)
    expect(story(heard)).toBe('evicted lost')
    expect(lease.state).toBe('lost')
    expect(store.count('release')).toBe(0)
  })

  test('as soon as a ticket queues is as quick as any other: the wake is heard', async () => {
    const clock = new FakeClock()
    const { locks } = startProcess(memoryStore({ now: clock.storeTime }), clock)
    onTestFinished(() => locks.close())
    const first = await locks.acquire('k')
    locks.on('queued', () => void first.release())
    expect(await outcomeOf(locks.acquire('k'))).toMatchObject({ value: { key: 'k' } })
  })
})

describe('the events that a listener causes are told after all listeners have heard of the first event', () => {
  test('the release of a lease that was renewed', async () => {
    const { locks } = scene()
    const lease = await locks.acquire('k')
    locks.on('renewed', () => void lease.release())
    const heard = hear(locks)
    await expect(lease.extend()).rejects.toMatchObject({ code: 'lease-lost' })
    expect(story(heard)).toBe('renewed released')
  })

  test('all that it does with a lock that is answered at once, whose callback still runs inside of what it is given', async () => {
    const { locks } = startProcess(memoryStore(), new FakeClock())
    onTestFinished(() => locks.close())
    const storage = new AsyncLocalStorage<string>()
    const inside: unknown[] = []
    locks.on('busy', () => void locks.withLock('audit', () => void inside.push(storage.getStore())))
    locks.on('working', ({ key, around }) => around((run) => storage.run(key, run)))
    const heard = hear(locks)
    const lease = await locks.acquire('k')
    expect(await locks.tryAcquire('k')).toBe(null)
    await lease.release()
    await settled()
    expect(inside).toEqual(['audit'])
    expect(story(heard, 'audit')).toBe('requested acquired working released')
  })
})

test('the store has heard of a release by the time it is told', async () => {
  const { store, locks } = scene()
  const lease = await locks.acquire('k')
  const releases: number[] = []
  locks.on('released', () => releases.push(store.count('release')))
  await lease.release()
  expect(releases).toEqual([1])
})

test('a listener that aborts the request which it hears of leaves the order to the others as it is', async () => {
  const { clock, locks, other } = scene()
  const first = await other.locks.acquire('k')
  const caller = new AbortController()
  locks.on('queued', () => caller.abort(new Error('Too many.')))
  const heard = hear(locks)
  const waiting = locks.acquire('k', { signal: caller.signal })
  await expect(clock.until(waiting)).rejects.toThrow('Too many.')
  expect(story(heard)).toBe('requested queued withdrawn')
  expect(last(heard, 'withdrawn')).toMatchObject({ reason: 'aborted' })
  await first.release()
})

test('the end of a request is not told in the context of the caller that aborts it or closes the locks', async () => {
  const { clock, locks, other } = scene()
  const held = await other.locks.acquire('k')
  const own = await locks.acquire('own')
  const storage = new AsyncLocalStorage<string>()
  const contexts: unknown[] = []
  for (const name of ['withdrawn', 'released'] as const)
    locks.on(name, () => contexts.push(storage.getStore()))
  const caller = new AbortController()
  const waiting = [locks.acquire('k', { signal: caller.signal }), locks.acquire('k')].map(outcomeOf)
  await clock.advance(10)
  storage.run('somebody else', () => caller.abort())
  await clock.until(storage.run('somebody else', () => locks.close()))
  await Promise.all(waiting)
  expect(own.state).toBe('lost')
  expect(contexts).toEqual([undefined, undefined, undefined])
  await held.release()
})

test('a release that has failed is not silent as well', async () => {
  const { clock, store, locks } = scene()
  const lease = await locks.acquire('k', { ttl: 5000 })
  const heard = hear(locks)
  store.always('fail', ['release'])
  await clock.until(lease.release())
  await clock.advance(5000)
  const errors = heard.flatMap((event) => (event.event === 'store-error' ? [event.error] : []))
  expect(errors.length).toBe(store.count('release'))
  expect(errors).not.toContain(undefined)
})
