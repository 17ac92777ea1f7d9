import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { createLocks, type Locks, lockEvents, StoreError } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { webLocks } from '../../src/web-locks/index.ts'
import { afterTurns, block } from '../engine/block.ts'
import { settled } from '../engine/fake-clock.ts'
import { methodsOf } from '../engine/methods-of.ts'
import { errorOf, outcomeOf } from '../engine/scene.ts'
import { until } from '../servers/until.ts'
import { held, scene } from './scene.ts'

// Checks the behaviour under each heading of https://w3c.github.io/web-locks/, and of the tests that browsers share for
// it.

test('request calls back with the lock, and resolves with what the callback returns', async () => {
  const { one } = scene()
  expect(await one.request('r', (lock) => [lock.name, lock.mode])).toEqual(['r', 'exclusive'])
  expect(await one.request('r', { mode: 'shared' }, async (lock) => lock.mode)).toBe('shared')
  expect(await one.request('', () => 'an empty name is one')).toBe('an empty name is one')
  expect(await one.request(7 as never, (lock) => lock.name)).toBe('7')
})

test('request rejects with the error of the callback, at once or later, and the lock is free', async () => {
  const { one, other } = scene()
  const broken = new Error('broken')
  const throwing = one.request('r', () => {
    throw broken
  })
  expect(await errorOf(throwing)).toBe(broken)
  expect(await errorOf(one.request('r', () => Promise.reject(broken)))).toBe(broken)
  expect(await other.request('r', { ifAvailable: true }, (lock) => lock !== null)).toBe(true)
})

test('a lock is held until the callback’s promise has settled, and waiters come in order', async () => {
  const { one, other } = scene()
  const first = await held(one, 'r')
  const order: string[] = []
  const waiting = ['b', 'c', 'd'].map((name, index) =>
    (index % 2 === 0 ? other : one).request('r', () => order.push(name)),
  )
  await settled()
  expect(order).toEqual([])
  first.release('done')
  await Promise.all(waiting)
  expect(order).toEqual(['b', 'c', 'd'])
  expect(await first.result).toBe('done')
})

test('locks of different names, and of different prefixes, are independent', async () => {
  const { one, store } = scene()
  const first = await held(one, 'a')
  expect(await one.request('b', () => 'free')).toBe('free')
  const elsewhere = createLocks(store)
  expect(await webLocks(elsewhere, { prefix: 'other-origin:' }).request('a', () => 'free')).toBe('free')
  await elsewhere.close()
  first.release('')
})

test('shared locks stand together, an exclusive one alone, and no request overtakes it', async () => {
  const { one, other } = scene()
  const [a, b] = [await held(one, 'r', { mode: 'shared' }), await held(other, 'r', { mode: 'shared' })]
  const order: string[] = []
  const writing = one.request('r', () => order.push('exclusive'))
  await settled()
  const reading = other.request('r', { mode: 'shared' }, () => order.push('shared'))
  await settled()
  expect(order).toEqual([])
  a.release('')
  b.release('')
  await Promise.all([writing, reading])
  expect(order).toEqual(['exclusive', 'shared'])
})

test('ifAvailable calls back with null where the lock is not free, and never waits', async () => {
  const { one, other } = scene()
  const first = await held(one, 'r')
  expect(await other.request('r', { ifAvailable: true }, (lock) => lock)).toBeNull()
  expect(await other.request('r', { ifAvailable: true, mode: 'shared' }, (lock) => lock)).toBeNull()
  expect((await other.query()).pending).toEqual([])
  first.release('')
  await first.result
  expect(await other.request('r', { ifAvailable: true }, (lock) => lock?.name)).toBe('r')
})

test('signal ends the wait with its reason, and has no effect once the lock is held', async () => {
  const { one, other } = scene()
  const first = await held(one, 'r')
  const controller = new AbortController()
  const waiting = other.request('r', { signal: controller.signal }, () => expect.unreachable())
  await settled()
  controller.abort('no more')
  await expect(waiting).rejects.toBe('no more')
  expect((await one.query()).pending).toEqual([])
  first.release('')
  const late = new AbortController()
  const second = await held(other, 'r', { signal: late.signal })
  late.abort()
  second.release('held to the end')
  expect(await second.result).toBe('held to the end')
  const aborted = one.request('r', { signal: AbortSignal.abort('before') }, () => expect.unreachable())
  await expect(aborted).rejects.toBe('before')
})

test('steal takes a lock from its holder, whose request rejects with an AbortError while its callback goes on', async () => {
  const { one, other } = scene()
  const robbed = await held(one, 'r')
  const thief = await held(other, 'r', { steal: true })
  expect(await errorOf(robbed.result)).toMatchObject({ name: 'AbortError' })
  robbed.release('of no use')
  expect((await one.query()).held).toMatchObject([{ name: 'r', clientId: expect.stringContaining('other') }])
  thief.release('kept')
  expect(await thief.result).toBe('kept')
  expect(await one.request('free', { steal: true }, () => 'nothing to steal')).toBe('nothing to steal')
})

test('steal goes before the waiters, which keep their order', async () => {
  const { one, other } = scene()
  const robbed = await held(one, 'r')
  const order: string[] = []
  const waiting = [1, 2, 3].map((number) => one.request('r', () => order.push(`waiting ${number}`)))
  await until('all wait', async () => (await one.query()).pending.length === 3)
  const thief = other.request('r', { steal: true }, async () => {
    order.push('thief')
    await sleep(20)
    order.push('thief is done')
  })
  await Promise.all([thief, ...waiting])
  expect(order.slice(0, 2)).toEqual(['thief', 'thief is done'])
  expect(order.slice(2).sort()).toEqual(['waiting 1', 'waiting 2', 'waiting 3'])
  robbed.release('')
})

test('thieves that come together rob one another, and the last one keeps the lock', async () => {
  const { one, other } = scene()
  const outcomes = await Promise.allSettled(
    Array.from({ length: 10 }, (_, index) =>
      (index % 2 === 0 ? one : other).request('r', { steal: true }, () => sleep(20)),
    ),
  )
  const robbed = outcomes.filter(({ status }) => status === 'rejected')
  for (const outcome of robbed) expect(outcome).toMatchObject({ reason: { name: 'AbortError' } })
  expect(robbed.length).toBeLessThan(10)
  expect(await one.query()).toEqual({ held: [], pending: [] })
})

test('what comes in the tick of a theft, or after it, stands behind the thief', async () => {
  const { one, other } = scene()
  const victim = await held(other, 'r')
  const events: string[] = []
  const thief = one.request('r', { steal: true }, async () => {
    events.push('thief begins')
    await sleep(20)
    events.push('thief ends')
  })
  const later = one.request('r', () => events.push('later'))
  const impatient = one.request('r', { ifAvailable: true }, (lock) => lock === null)
  const end = new AbortController()
  const aborted = one.request('r', { signal: end.signal }, () => events.push('aborted'))
  end.abort('enough')
  expect(await impatient).toBe(true)
  await expect(aborted).rejects.toBe('enough')
  await Promise.all([thief, later])
  expect(events).toEqual(['thief begins', 'thief ends', 'later'])
  victim.release('')
})

test('a signal that aborts between the grant and the callback ends the request', async () => {
  for (let microtasks = 0; microtasks < 16; microtasks += 1) {
    const { one } = scene()
    const end = new AbortController()
    const seen: boolean[] = []
    const request = one.request('r', { signal: end.signal }, () => seen.push(end.signal.aborted))
    for (let passed = 0; passed < microtasks; passed += 1) await undefined
    end.abort('enough')
    const outcome = await request.then(
      () => 'called',
      (error) => error,
    )
    expect(outcome).toBe(seen.length > 0 ? 'called' : 'enough')
    expect(seen).not.toContain(true)
    expect((await one.query()).held).toEqual([])
  }
})

test('query shows a request that a thief has sent back', async () => {
  const { one } = scene()
  const victim = await held(one, 'r')
  const waiter = one.request('r', () => 'done')
  await sleep(5)
  const thief = await held(one, 'r', { steal: true })
  await sleep(5)
  expect(await one.query()).toMatchObject({ held: [{ name: 'r' }], pending: [{ name: 'r' }] })
  thief.release('')
  expect(await waiter).toBe('done')
  victim.release('')
})

test('a signal also ends the wait of a request that a thief has sent back', async () => {
  const { one, other } = scene()
  const robbed = await held(one, 'r')
  const giveUp = new AbortController()
  const waiting = one.request('r', { signal: giveUp.signal }, () => expect.unreachable())
  await until('it waits', async () => (await one.query()).pending.length === 1)
  const thief = await held(other, 'r', { steal: true })
  giveUp.abort('no more')
  await expect(waiting).rejects.toBe('no more')
  thief.release('')
  robbed.release('')
})

test('query lists holders and waiters, in every client', async () => {
  const { one, other } = scene()
  const first = await held(one, 'a')
  const second = await held(other, 'b', { mode: 'shared' })
  const waiting = other.request('a', { mode: 'shared' }, () => {})
  await until('it waits', async () => (await one.query()).pending.length === 1)
  const { held: holding, pending } = await one.query()
  expect(holding.map(({ name, mode }) => [name, mode])).toEqual([
    ['a', 'exclusive'],
    ['b', 'shared'],
  ])
  expect(pending.map(({ name, mode }) => [name, mode])).toEqual([['a', 'shared']])
  expect(holding[0]?.clientId).toMatch(/:one$/)
  expect(holding[1]?.clientId).toBe(pending[0]?.clientId)
  first.release('')
  second.release('')
  await waiting
  expect(await one.query()).toEqual({ held: [], pending: [] })
})

test('a lock that is lost rejects as one that is stolen, and says why', async () => {
  const store = memoryStore()
  const { one } = scene(store)
  const first = await held(one, 'r')
  await store.evict({ key: 'web-locks:r', id: undefined, reason: 'an operator' })
  await until('it is known', async () => (await outcomeOf(first.result)) !== 'pending')
  expect(await errorOf(first.result)).toMatchObject({
    name: 'AbortError',
    cause: { code: 'lease-lost', evictedBecause: 'an operator' },
  })
  first.release('')
})

test.each<[string, object]>([
  ['waits', {}],
  ['is shared', { mode: 'shared' }],
  ['takes what is available', { ifAvailable: true }],
  ['steals', { steal: true }],
])(
  'a request that %s runs no callback with a lock that ended while the event loop stood still',
  async (_, options) => {
    const locks = createLocks(memoryStore(), { ttl: 60 })
    onTestFinished(() => locks.close())
    let [turns, isLost] = [0, false]
    locks.on('acquired', () =>
      afterTurns(turns, () => {
        block(60)
        isLost = true
      }),
    )
    // The loop tries every point between the grant and the callback.
    for (; turns < 8; turns += 1) {
      isLost = false
      let hasBegun = false
      const request = webLocks(locks).request('r', options, () => {
        hasBegun = true
        expect(isLost).toBe(false)
      })
      const error = await request.then(() => undefined, String)
      if (!hasBegun) expect(error).toMatch(/AbortError/)
      else expect(error ?? '').not.toMatch(/Assertion/)
    }
  },
)

test('a request whose callback blocked the event loop for longer than the ttl rejects', async () => {
  const locks = createLocks(memoryStore(), { ttl: 60 })
  onTestFinished(() => locks.close())
  const request = webLocks(locks).request('r', () => {
    block(100)
    return 'done'
  })
  expect(await errorOf(request)).toMatchObject({ name: 'AbortError', cause: { reason: 'expired' } })
})

test('a request whose lock is lost rejects at once, although the store does not answer', async () => {
  const store = memoryStore()
  const silent: Store = {
    ...methodsOf(store),
    renew: () => new Promise(() => {}),
    release: () => new Promise(() => {}),
  }
  delete silent.giveBack
  const locks = createLocks(silent, { ttl: 2000 })
  onTestFinished(() => locks.close())
  let lostAt = 0
  const request = webLocks(locks).request('r', async ({ signal }) => {
    if (!signal.aborted) await once(signal, 'abort')
    lostAt = performance.now()
    await new Promise(() => {})
  })
  expect(await errorOf(request)).toMatchObject({ name: 'AbortError' })
  expect(performance.now() - lostAt).toBeLessThan(1500)
})

test.each<[string, object]>([
  ['takes what is available', { ifAvailable: true }],
  ['is shared and takes what is available', { ifAvailable: true, mode: 'shared' }],
  ['steals', { steal: true }],
])('a request that %s asks again if it was evicted before the answer came', async (_, options) => {
  const store = memoryStore()
  let isFirst = true
  const flaky: Store = {
    ...methodsOf(store),
    async acquire(ticket) {
      const answer = await store.acquire(ticket)
      if (!isFirst) return answer
      isFirst = false
      await store.evict({ key: ticket.key, id: undefined, reason: 'stolen by a web lock' })
      throw new StoreError('store-unavailable', 'The connection was closed.')
    },
  }
  const { one } = scene(flaky)
  expect(await one.request('r', options, (lock) => lock?.name)).toBe('r')
})

test('the defaults of the locks do not change how web locks are held', async () => {
  const locks = createLocks(memoryStore(), { ttl: 3000, renew: false, minHold: '1h', lockDelay: '1h' })
  onTestFinished(() => locks.close())
  const manager = webLocks(locks)
  const robbed = await held(manager, 'r')
  expect(await manager.request('r', { steal: true }, () => sleep(4000, 'thief'))).toBe('thief')
  expect(await errorOf(robbed.result)).toMatchObject({ name: 'AbortError' })
  robbed.release('')
  expect(await manager.request('r', { ifAvailable: true }, (lock) => lock?.name)).toBe('r')
})

test('a theft in the tick of the grant is heard of at once', async () => {
  const { one, store } = scene()
  const stop = lockEvents.on('acquired', ({ key }) => {
    if (key === 'web-locks:r') void store.evict({ key, id: undefined, reason: 'stolen' })
  })
  onTestFinished(stop)
  const robbed = one.request('r', (lock) => once(lock.signal, 'abort'))
  expect(await errorOf(robbed)).toMatchObject({ name: 'AbortError', cause: { reason: 'evicted' } })
})

test('a request inside of one of the same name waits for ever, as in a browser', async () => {
  const { one } = scene()
  const giveUp = new AbortController()
  const inner = one.request('r', () => one.request('r', { signal: giveUp.signal }, () => 'inner'))
  expect(await outcomeOf(inner)).toBe('pending')
  giveUp.abort(new Error('enough'))
  expect(await errorOf(inner)).toMatchObject({ message: 'enough' })
})

const callback = () => expect.unreachable()
test.each<[string, readonly unknown[], string]>([
  ['no callback', ['r'], 'TypeError'],
  ['a callback that is none', ['r', 'callback'], 'TypeError'],
  ['options that are none', ['r', 'options', callback], 'TypeError'],
  ['an unknown mode', ['r', { mode: 'read' }, callback], 'TypeError'],
  ['a signal that is none', ['r', { signal: 'stop' }, callback], 'TypeError'],
  ['a name that begins with a dash', ['-r', callback], 'NotSupportedError'],
  ['steal and ifAvailable', ['r', { steal: true, ifAvailable: true }, callback], 'NotSupportedError'],
  ['a shared thief', ['r', { steal: true, mode: 'shared' }, callback], 'NotSupportedError'],
  ['steal and signal', ['r', { steal: true, signal: AbortSignal.abort() }, callback], 'NotSupportedError'],
  [
    'ifAvailable and signal',
    ['r', { ifAvailable: true, signal: AbortSignal.abort() }, callback],
    'NotSupportedError',
  ],
  ['a name that is too long', ['r'.repeat(961), callback], 'NotSupportedError'],
])('refuses %s', async (_, args, name) => {
  const { one } = scene()
  const request = one.request as (...args: readonly unknown[]) => Promise<unknown>
  expect(await errorOf(request.apply(one, args as never))).toMatchObject({ name })
})

test.each([
  ['r'.repeat(961), 'Expected a name of at most 960 characters, got 961.'],
  [
    '%'.repeat(200),
    'Expected a name of at most 960 characters, where "%", NUL and unpaired surrogates count as 5, got 1000.',
  ],
])('says how long a name may be', async (name, message) => {
  expect(await errorOf(scene().one.request(name, () => {}))).toMatchObject({ message })
})

test.each<[string, object, string]>([
  [
    'an empty prefix',
    { prefix: '' },
    'Expected `prefix` to be a text of 1 to 64 characters without NUL and unpaired surrogates, got "".',
  ],
  [
    'a prefix of 64 characters that are two units each',
    { prefix: '😀'.repeat(64) },
    'Expected `prefix` to be a text of 1 to 64 characters',
  ],
  ['a prefix that is no text', { prefix: '\0' }, 'Expected `prefix` to be a text of 1 to 64 characters'],
  ['a ttl that is none', { ttl: 'soon' }, 'Expected `ttl` to be a duration from 50 ms to 24 days'],
  ['an unknown option', { mode: 'shared' }, 'Expected the options to be among `prefix`, `ttl`, got `mode`.'],
])('says at once what is wrong with %s', (_, options, message) => {
  const locks = createLocks(memoryStore())
  expect(() => webLocks(locks, options)).toThrow(message)
})

test('says what is wrong with locks that are none', () => {
  expect(() => webLocks(memoryStore() as unknown as Locks)).toThrow('Expected `locks` to be locks')
})

test('a query does not wait for a request that the store leaves unanswered for longer than a few seconds', async () => {
  const store = memoryStore()
  const silent: Store = { ...methodsOf(store), acquire: () => new Promise(() => {}) }
  const locks = createLocks(silent)
  const manager = webLocks(locks)
  const giveUp = new AbortController()
  const unanswered = errorOf(manager.request('r', { signal: giveUp.signal }, () => {}))
  expect(await manager.query()).toEqual({ held: [], pending: [] })
  giveUp.abort(new Error('enough'))
  expect(await unanswered).toMatchObject({ message: 'enough' })
  await locks.close()
})

/** The listeners that are there now. */
function listenersOf(locks: Locks): ReadonlySet<unknown> {
  const listeners = new Set<unknown>()
  const on = locks.on.bind(locks)
  locks.on = ((event: 'queued', listener: () => void) => {
    const stop = on(event, listener)
    listeners.add(listener)
    return () => {
      listeners.delete(listener)
      stop()
    }
  }) as Locks['on']
  return listeners
}

test('nothing is listened to when every request is answered', async () => {
  const locks = createLocks(memoryStore())
  onTestFinished(() => locks.close())
  const listeners = listenersOf(locks)
  const manager = webLocks(locks)
  const first = await held(manager, 'r')
  const second = manager.request('r', () => 'done')
  await settled()
  expect(listeners.size).toBe(0)
  first.release('')
  expect(await second).toBe('done')
  await manager.query()
  expect(listeners.size).toBe(0)
})

test('nothing is listened to after a request that could not be asked', async () => {
  const locks = createLocks(memoryStore())
  onTestFinished(() => locks.close())
  const listeners = listenersOf(locks)
  locks.readWrite = () => {
    throw new Error('no such key')
  }
  const request = webLocks(locks).request('r', { mode: 'shared' }, () => {})
  expect(await errorOf(request)).toMatchObject({ message: 'no such key' })
  await settled()
  expect(listeners.size).toBe(0)
})

test('query does not wait for a lock that a listener to an event has asked for and that is taken', async () => {
  const locks = createLocks(memoryStore())
  onTestFinished(() => locks.close())
  const manager = webLocks(locks)
  const first = await held(manager, 'taken')
  let waiting: Promise<void> | undefined
  const stop = locks.on('acquired', () => {
    stop()
    waiting = manager.request('taken', () => {})
  })
  await locks.withLock('k', () => {})
  const answer = await Promise.race([manager.query(), sleep(3000)])
  expect(answer?.pending).toMatchObject([{ name: 'taken' }])
  first.release('')
  await waiting
})
