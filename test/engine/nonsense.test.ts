import { describe, expect, test } from 'vitest'
import type { Store } from '../../src/contract/store.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { delaysOf, FakeClock } from './fake-clock.ts'
import { errorOf, outcomeOf, type Process, startProcess } from './scene.ts'
import { ScriptedStore } from './scripted-store.ts'

/** The methods of a store that another author has written, and that is not quite right. */
type Damage = Partial<Record<'acquire' | 'renew' | 'release', (...request: never[]) => unknown>>

// An unhandled rejection fails the test; see scene.ts.
describe.each(['at once', 'later'] as const)('a store that answers nonsense %s', (when) => {
  function damaged(damage: Damage): Process & { readonly clock: FakeClock } {
    const clock = new FakeClock()
    const store: Store = Object.assign(memoryStore({ now: clock.storeTime }), damage as object)
    return { clock, ...startProcess(when === 'at once' ? store : new ScriptedStore(store), clock) }
  }

  test.each([
    ['nothing', undefined],
    ['null', null],
    ['that it is busy', { tag: 'busy', retryMs: 5 }],
  ])(
    'to a waiter, %s, is asked again with pauses, and the waiter was not there in the end',
    async (_what, answer) => {
      let asked = 0
      const acquire = () => {
        asked += 1
        return answer
      }
      const { clock, locks } = damaged({ acquire })
      let ran = false
      const calls = [
        locks.acquire('k', { wait: 1000 }),
        locks.withLock('k', { wait: 1000 }, () => {
          ran = true
        }),
      ]
      const errors = await clock.until(Promise.all(calls.map(errorOf)), { withinMs: 1100 })
      for (const error of errors) expect(error).toMatchObject({ code: 'store-unavailable', key: 'k' })
      expect(ran).toBe(false)
      expect(asked).toBeGreaterThan(calls.length)
      expect(asked).toBeLessThanOrEqual(30 * calls.length)
    },
  )

  test('that a try waits, has it refused', async () => {
    const acquire = () => ({ tag: 'queued', ahead: 0, askAgainMs: 100 })
    const { clock, locks } = damaged({ acquire })
    expect(await clock.until(locks.tryAcquire('k'))).toBeNull()
    expect(await clock.until(locks.tryWithLock('k', () => 'ran'))).toEqual({ ran: false })
  })

  test.each([Number.NaN, 0, -1, undefined])(
    'that asking again is useful in %s ms is asked with pauses',
    async (askAgainMs) => {
      let asked = 0
      const queued = { tag: 'queued', ahead: 0, askAgainMs }
      const renew = (tickets: readonly unknown[]) => {
        asked += 1
        return tickets.map(() => queued)
      }
      const { clock, locks } = damaged({ acquire: () => queued, renew })
      const delays = delaysOf(clock)
      const error = await clock.until(errorOf(locks.acquire('k', { wait: 3000 })), { withinMs: 3100 })
      expect(error).toMatchObject({ code: 'acquire-timeout' })
      expect(asked).toBeLessThanOrEqual(20)
      expect(delays.length).toBeLessThanOrEqual(100)
    },
  )

  test.each([
    ['nothing', undefined],
    ['null', null],
    ['no answers', []],
    ['an answer that is none', [undefined]],
  ])(
    'to a renewal, %s, is asked again until the deadline, and the lease is lost then',
    async (_what, answer) => {
      let asked = 0
      const renew = () => {
        asked += 1
        return answer
      }
      const { clock, locks } = damaged({ renew })
      const lease = await locks.acquire('k', { ttl: 3000 })
      const signal = lease.signal
      const delays = delaysOf(clock)
      await clock.advance(2500)
      expect(lease.state).toBe('jeopardy')
      await clock.advance(500)
      expect(signal.reason).toMatchObject({ code: 'lease-lost', reason: 'expired' })
      expect(asked).toBeGreaterThan(1)
      expect(asked).toBeLessThanOrEqual(100)
      expect(delays.length).toBeLessThanOrEqual(200)
    },
  )

  test.each([[], [null]])('to an extend (%j) has not extended anything', async (...answer) => {
    const { clock, locks } = damaged({ renew: () => answer })
    const lease = await locks.acquire('k', { ttl: 3000, renew: false })
    expect(await clock.until(errorOf(lease.extend('1h')))).toMatchObject({ code: 'store-unavailable' })
    expect(lease.state).toBe('lost')
  })

  test.each([undefined, null])(
    'to an adopt (%s) is no loss: the lease may be adopted later',
    async (answer) => {
      const { clock, locks } = damaged({ renew: () => [answer] })
      const json = (await locks.acquire('k')).detach()
      expect(await clock.until(errorOf(locks.adopt(json)))).toMatchObject({
        code: 'store-unavailable',
        key: 'k',
      })
    },
  )
})

test('a promise of another library is a promise', async () => {
  const clock = new FakeClock()
  const real = memoryStore({ now: clock.storeTime })
  let asked = 0
  const foreign = <T>(answer: T) => {
    asked += 1
    const promise = Promise.resolve(answer)
    // biome-ignore lint/suspicious/noThenProperty: what is tested
    return { then: promise.then.bind(promise), catch: promise.catch.bind(promise) } as Promise<T>
  }
  const store: Store = {
    ...{ name: 'foreign', close: () => real.close(), inspect: (request) => real.inspect(request) },
    acquire: (ticket) => foreign(real.acquire(ticket) as Awaited<ReturnType<Store['acquire']>>),
    renew: (tickets) => foreign(real.renew(tickets) as Awaited<ReturnType<Store['renew']>>),
    release: (request) => foreign(real.release(request) as Awaited<ReturnType<Store['release']>>),
    evict: (request) => real.evict(request),
  }
  const { locks } = startProcess(store, clock)
  const lease = await locks.acquire('k', { ttl: 3000 })
  await clock.advance(9000)
  expect(lease.state).toBe('held')
  const before = asked
  expect(await outcomeOf(lease.release())).toEqual({ value: undefined })
  expect(asked).toBe(before + 1)
  expect(before).toBeLessThan(15)
})

test.each([{}, { tag: '?' }])(
  'a store that says %j at once does not make any caller wait for ever',
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
  expect(engine.counts.scheduled).toBe(1)
  await lease.release()
})
