import { afterEach, expect, test } from 'vitest'
import { type Actor, createActor, fromPromise } from 'xstate'
import { InvalidArgumentError, LeaseLostError } from '../../src/index.ts'
import {
  callbackLock,
  type LockCallbacks,
  type LockWorkerContext,
  lockWorkerMachine,
  type WorkerLease,
} from '../../src/worker/machine/index.ts'
import { until } from '../servers/until.ts'
import { Open } from './rehearsal.ts'

/** One lock that any number of processes try for. Who holds it is a token. */
class Shared {
  holder: string | undefined
  renewals = 0

  callbacks(token: string, ttl: string): LockCallbacks<string> {
    return {
      ttl,
      pollInterval: 10,
      acquire: async () => {
        if (this.holder !== undefined) return null
        this.holder = token
        return token
      },
      renew: async (held) => {
        this.renewals += 1
        return this.holder === held
      },
      release: async (held) => {
        if (this.holder === held) this.holder = undefined
      },
    }
  }
}

const actors: Actor<typeof lockWorkerMachine>[] = []
afterEach(() => {
  for (const actor of actors.splice(0)) {
    if (actor.getSnapshot().status === 'active') actor.send({ type: 'stop' })
  }
})

/** A worker over such a lock, and what it did. */
function worker(callbacks: LockCallbacks<string>, machine: typeof lockWorkerMachine = lockWorkerMachine) {
  const calls: string[] = []
  const actor = createActor(machine, {
    input: {
      lock: callbackLock(callbacks),
      start: () => calls.push('start'),
      stop: (reason) => calls.push(reason),
      grace: '10s',
      backoff: 10,
      maxBackoff: 10,
      chance: Math.random,
    },
  }).start()
  actors.push(actor)
  actor.send({ type: 'start' })
  return { actor, calls }
}

const signal = new AbortController().signal

async function leaseOf(callbacks: LockCallbacks<string>): Promise<WorkerLease> {
  const lease = await callbackLock(callbacks).tryAcquire(signal)
  if (lease === null) throw new Error('Expected the lock to be free')
  return lease
}

test('one works while its lock is renewed, and the next one takes over', async () => {
  const shared = new Shared()
  const first = worker(shared.callbacks('first', '3s'))
  await until('the first works', () => first.calls.length === 1)
  const second = worker(shared.callbacks('second', '3s'))
  await until('the second waits', () => second.actor.getSnapshot().matches('waiting'))
  await until('the lock was renewed twice', () => shared.renewals >= 2)
  first.actor.send({ type: 'stop' })
  await until('the second works', () => shared.holder === 'second' && second.calls.length === 1)
  expect(first.calls).toEqual(['start', 'stopped'])
})

test('the work ends when a renewal says that the lock is lost', async () => {
  const shared = new Shared()
  const { calls } = worker(shared.callbacks('own', '300ms'))
  await until('it works', () => calls.length === 1)
  shared.holder = 'another'
  await until('it has ended the work', () => calls.includes('lost'))
  expect(shared.holder).toBe('another')
})

test('a lease whose renewals fail is in jeopardy, and lost at its deadline with the last failure as the cause', async () => {
  const failure = new Error('away')
  const lease = await leaseOf({
    ...new Shared().callbacks('own', '600ms'),
    renew: () => Promise.reject(failure),
  })
  const states = new Set<string | undefined>()
  await until('it is lost', () => {
    states.add(lease.state)
    return lease.signal.aborted
  })
  expect(lease.signal.reason).toBeInstanceOf(LeaseLostError)
  expect(lease.signal.reason.cause).toBe(failure)
  expect(lease.remainingMs).toBe(0)
  expect([...states]).toContain('lost')
  expect(() => lease.assertHeld?.()).toThrow('The lock was not renewed within its ttl of 600 ms.')
})

test('a lease whose renewal gives no answer is lost at its deadline, and its late answer changes nothing', async () => {
  let answer: (isHeld: boolean) => void = () => {}
  let isAborted = false
  const lease = await leaseOf({
    ...new Shared().callbacks('own', '300ms'),
    renew: (_, ended) =>
      new Promise((resolve) => {
        ended.addEventListener('abort', () => {
          isAborted = true
        })
        answer = resolve
      }),
  })
  await until('it is lost', () => lease.signal.aborted)
  answer(true)
  expect(isAborted).toBe(true)
  expect(lease.state).toBe('lost')
})

test('a lost lock is not released, and a renewal that runs ends before the release', async () => {
  const order: string[] = []
  let renewed: (isHeld: boolean) => void = () => {}
  const callbacks: LockCallbacks<string> = {
    ...new Shared().callbacks('own', '10s'),
    renew: () =>
      new Promise((resolve) => {
        order.push('renew')
        renewed = resolve
      }),
    release: async () => order.push('release'),
  }
  const lease = await leaseOf(callbacks)
  await until('it renews', () => order.length === 1)
  const released = lease.release()
  expect(order).toEqual(['renew'])
  renewed(true)
  await released
  expect(order).toEqual(['renew', 'release'])
  expect(lease.state).toBe('released')

  const lost = await leaseOf({ ...callbacks, acquire: async () => 'again', ttl: '60ms' })
  await until('it is lost', () => lost.signal.aborted)
  renewed(true)
  await lost.release()
  expect(order.filter((call) => call === 'release')).toEqual(['release'])
})

test('a lock that expires while its release waits for a renewal is not released', async () => {
  const shared = new Shared()
  let fail: (error: Error) => void = () => {}
  const lease = await leaseOf({
    ...shared.callbacks('own', '300ms'),
    renew: () =>
      new Promise((_, reject) => {
        fail = reject
        shared.renewals += 1
      }),
  })
  await until('it renews', () => shared.renewals === 1)
  const released = lease.release()
  await until('it has expired', () => lease.remainingMs === 0)
  // The next term, under the same name.
  fail(new Error('away'))
  await released
  expect(shared.holder).toBe('own')
})

test('a lock that a renewal calls lost while its release waits for that is not released', async () => {
  const shared = new Shared()
  const renewed = new Open()
  const lease = await leaseOf({
    ...shared.callbacks('own', '60s'),
    ttl: '1500ms',
    renew: async () => {
      shared.renewals += 1
      await renewed.promise
      return false
    },
  })
  await until('it renews', () => shared.renewals === 1)
  const released = lease.release()
  renewed.resolve()
  await released
  // That of the next holder, under the same name.
  expect(shared.holder).toBe('own')
})

test('a lock that is renewed while its release waits for that is released', async () => {
  const shared = new Shared()
  const renewed = new Open()
  const lease = await leaseOf({
    ...shared.callbacks('own', '9s'),
    renew: async () => {
      shared.renewals += 1
      await renewed.promise
      return true
    },
  })
  const firstTermEndsAt = performance.now() + Number(lease.remainingMs)
  await until('it renews', () => shared.renewals === 1)
  const released = lease.release()
  // From here the lock lasts for three more seconds, thanks to the renewal.
  await until('its first term is over', () => performance.now() > firstTermEndsAt)
  renewed.resolve()
  await released
  expect(shared.holder).toBeUndefined()
})

test.each(['trying', 'waiting'] as const)(
  'a lock that is granted while the worker stops is released before the worker is stopped (%s)',
  async (state) => {
    const shared = new Shared()
    if (state === 'waiting') shared.holder = 'another'
    const callbacks = shared.callbacks('own', '10s')
    let asked = 0
    const [granted, released] = [new Open(), new Open()]
    const { actor, calls } = worker({
      ...callbacks,
      acquire: async (ended) => {
        const held = await callbacks.acquire(ended)
        asked += 1
        if (held !== null) await granted.promise
        return held
      },
      release: async (held) => {
        await released.promise
        await callbacks.release(held)
      },
    })
    await until('it asks', () => asked > 0)
    if (state === 'waiting') shared.holder = undefined
    await until('it is granted the lock', () => shared.holder === 'own')
    expect(actor.getSnapshot().matches(state)).toBe(true)
    actor.send({ type: 'stop' })
    granted.resolve()
    await until('it leaves', () => actor.getSnapshot().matches('leaving'))
    released.resolve()
    await until('it is stopped', () => actor.getSnapshot().status === 'done')
    expect([shared.holder, calls]).toEqual([undefined, []])
  },
)

test('wrong callbacks are refused in one sentence', () => {
  const callbacks = new Shared().callbacks('own', '1s')
  expect(() => callbackLock({ ...callbacks, renew: undefined as never })).toThrow(InvalidArgumentError)
  expect(() => callbackLock({ ...callbacks, ttl: '1 fortnight' })).toThrow('Expected `ttl` to be')
  expect(() => callbackLock({ ...callbacks, prolong: 1 } as never)).toThrow('got `prolong`')
})

test('provide takes the names of the machine, and the compiler refuses others', async () => {
  const heard: string[] = []
  const machine = lockWorkerMachine.provide({
    actors: {
      start: fromPromise<unknown, LockWorkerContext>(async ({ input }) => {
        heard.push(`starts under ${input.term?.lease.state}`)
        await input.start(input.term?.lease as WorkerLease, { signal, fail: () => {} })
      }),
    },
    actions: { report: (_, { during }) => heard.push(during satisfies string) },
    guards: { isClosed: (_, { error }) => error instanceof Error },
    delays: { releaseTimeout: 100 },
  })
  // @ts-expect-error: there is no such actor.
  lockWorkerMachine.provide({ actors: { begin: fromPromise(async () => {}) } })
  // @ts-expect-error: there is no such action.
  lockWorkerMachine.provide({ actions: { reports: () => {} } })
  // @ts-expect-error: there is no such guard.
  lockWorkerMachine.provide({ guards: { isOver: () => true } })
  // @ts-expect-error: there is no such delay.
  lockWorkerMachine.provide({ delays: { gracePeriod: 100 } })
  const { calls } = worker(new Shared().callbacks('own', '5s'), machine)
  await until('it works', () => calls.length === 1)
  expect(heard).toEqual(['starts under held'])
})
