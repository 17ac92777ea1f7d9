import { AsyncLocalStorage } from 'node:async_hooks'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { createLocks, type Locks, type ReadWriteLock, type Semaphore } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { delaysOf, FakeClock, settled } from '../engine/fake-clock.ts'
import { errorOf, outcomeOf, realScene, scene, startProcess } from '../engine/scene.ts'

setFlagsFromString('--expose-gc')
const collectGarbage: () => void = runInNewContext('gc')

test('while the first request is being written, and nothing is looked after any more', async () => {
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

test.each(['looked at', 'closed'])(
  'the listener of a lease that is %s inside another scope is not in that scope',
  async (how) => {
    const clock = new FakeClock()
    const { locks } = startProcess(memoryStore({ now: clock.storeTime }), clock)
    const { locks: others } = startProcess(memoryStore({ now: clock.storeTime }), clock)
    const lease = await others.acquire('b', { ttl: 1000, renew: false })
    const tried: unknown[] = []
    lease.signal.addEventListener('abort', () => {
      tried.push(locks.tryWithLock('a', { reentrant: true }, () => 'in'))
    })
    await locks.withLock('a', async () => {
      if (how === 'closed') await others.close()
      else {
        clock.block(1000)
        expect(lease.state).toBe('lost')
      }
      expect(await Promise.all(tried)).toEqual([{ acquired: false }])
    })
  },
)

test('a re-entrant call inside several keys is waited for, also when nobody awaits it', async () => {
  const { locks } = realScene()
  let inside = 0
  let most = 0
  const work = async () => {
    inside += 1
    most = Math.max(most, inside)
    for (let turn = 0; turn < 5; turn += 1) await settled()
    inside -= 1
  }
  let left: Promise<void> | undefined
  await locks.withLocks(['k', 'l'], () => {
    left = locks.withLock('k', { reentrant: true }, work)
  })
  await locks.withLock('k', work)
  await left
  expect(most).toBe(1)
})

test('a scope that ended while work it left behind was waiting is forgotten when that work is done', async () => {
  const { locks } = realScene()
  const busy = await locks.acquire('busy')
  const left: Promise<unknown>[] = []
  const ended = await locks.withLock('outer', async (lease) => {
    left.push(
      locks.withLock('inner', async () => {
        const waiting = locks.withLock('busy', () => {})
        for (let turn = 0; turn < 5; turn += 1) await settled()
        await locks.withLock('third', () => {})
        await busy.release()
        await waiting
      }),
    )
    await settled()
    return new WeakRef(lease)
  })
  await Promise.all(left.splice(0))
  for (let turn = 0; turn < 5; turn += 1) {
    await settled()
    collectGarbage()
  }
  expect(ended.deref()).toBe(undefined)
})

describe('nonsense', () => {
  test.each([{}, { tag: '?' }])(
    'a store that says %j at once does not make anybody wait for ever',
    async (answer) => {
      const clock = new FakeClock()
      const store: Store = Object.assign(memoryStore({ now: clock.storeTime }), {
        acquire: () => answer as never,
      })
      const { locks } = startProcess(store, clock)
      const error = await clock.until(errorOf(locks.acquire('k', { wait: 1000 })), { withinMs: 1100 })
      expect(error).toMatchObject({ code: 'store-unavailable' })
    },
  )

  test('a thenable whose then() returns nothing is a promise', async () => {
    const clock = new FakeClock()
    const real = memoryStore({ now: clock.storeTime })
    let asked = 0
    const thenable = <T>(answer: T) =>
      // biome-ignore lint/suspicious/noThenProperty: a store whose answers are thenables and no promises
      ({ then: (use: (answer: T) => void) => void setImmediate(() => use(answer)) }) as unknown as Promise<T>
    const store: Store = Object.assign(memoryStore({ now: clock.storeTime }), {
      acquire: (ticket: never) => {
        asked += 1
        return thenable(real.acquire(ticket))
      },
      renew: (tickets: never) => thenable(real.renew(tickets)),
      release: (request: never) => thenable(real.release(request)),
    }) as never
    const { locks, engine } = startProcess(store, clock)
    const lease = await clock.until(locks.acquire('k', { ttl: 3000 }))
    await clock.advance(9000)
    expect(lease.state).toBe('held')
    expect(asked).toBe(1)
    expect(engine.keeper.list(() => true)).toHaveLength(1)
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

test('plain objects for all nouns fit together', () => {
  const part: Pick<Locks, 'readWrite' | 'semaphore'> = {
    readWrite: () => ({}) as ReadWriteLock,
    semaphore: () => ({}) as Semaphore,
  }
  const made: Locks = createLocks(memoryStore())
  expect(Object.keys(part)).toHaveLength(2)
  expect(made).toBeDefined()
})

test('control', () => expect(new AsyncLocalStorage().getStore()).toBe(undefined))
