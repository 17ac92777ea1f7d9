import { describe, expect, test } from 'vitest'
import { createLocks, type Locks } from '../../src/index.ts'
import { errorOf, scene } from '../engine/scene.ts'

const work = () => 'ran'

/** The ways to name a key. */
const byKey: readonly (readonly [string, (locks: Locks, key: string) => unknown])[] = [
  ['acquire', (locks, key) => locks.acquire(key)],
  ['tryAcquire', (locks, key) => locks.tryAcquire(key)],
  ['withLock', (locks, key) => locks.withLock(key, work)],
  ['tryWithLock', (locks, key) => locks.tryWithLock(key, work)],
  ['reentrant withLock', (locks, key) => locks.withLock(key, { reentrant: true }, work)],
  ['acquireAll', (locks, key) => locks.acquireAll([key])],
  ['withLocks', (locks, key) => locks.withLocks([key], work)],
  ['tryWithLocks', (locks, key) => locks.tryWithLocks([key], work)],
  ['readWrite', (locks, key) => locks.readWrite(key)],
  ['semaphore', (locks, key) => locks.semaphore(key, 2)],
  ['evict', (locks, key) => locks.evictAll(key, { reason: 'r' })],
]

/** The error of a call, whether the call throws or rejects. */
function errorIn(call: () => unknown): ReturnType<typeof errorOf> {
  return errorOf((async () => call())())
}

describe.each(byKey)('%s refuses', (_name, call) => {
  test.each([
    ['', 'Expected `key` to be a string with at least one character, got "".'],
    // This comes before any valid key, because the last valid key is remembered.
    [undefined, 'Expected `key` to be a string with at least one character, got undefined.'],
    [null, 'Expected `key` to be a string with at least one character, got null.'],
    [42, 'Expected `key` to be a string with at least one character, got 42.'],
    [42n, 'Expected `key` to be a string with at least one character, got 42n.'],
    [Symbol('k'), 'Expected `key` to be a string with at least one character, got Symbol(k).'],
    [{}, 'Expected `key` to be a string with at least one character, got an object (Object).'],
    [
      Object.create(null),
      'Expected `key` to be a string with at least one character, got an object (no class).',
    ],
    [['a'], 'Expected `key` to be a string with at least one character, got an array of 1.'],
    [Buffer.from('k'), 'Expected `key` to be a string with at least one character, got an object (Buffer).'],
    ['x'.repeat(1025), 'Expected `key` to have at most 1024 characters, got 1025.'],
    ['x'.repeat(10_000_000), 'Expected `key` to have at most 1024 characters, got 10000000.'],
    ['a\0b', 'Expected `key` to be text without NUL and unpaired surrogates, got "a\\u0000b".'],
    ['\ud83d', 'Expected `key` to be text without NUL and unpaired surrogates, got "\\ud83d".'],
  ])('a key that is none: case %#', async (key, message) => {
    const { store, locks } = scene()
    const error = await errorIn(() => call(locks, key as string))
    expect(error).toMatchObject({ name: 'InvalidArgumentError', code: 'invalid-argument', message })
    expect(store.sent).toEqual([])
  })
})

describe('a duration', () => {
  const range = "to be a duration from 50 ms to 24 days (milliseconds, or '250ms', '30s', '5m', '1h', '2d')"

  test.each([
    [0, '0'],
    [49, '49'],
    [-1, '-1'],
    [Number.NaN, 'NaN'],
    [Number.POSITIVE_INFINITY, 'Infinity'],
    [25 * 86_400_000, '2160000000'],
    ['600h', '"600h"'],
    ['30', '"30"'],
    ['1 week', '"1 week"'],
    ['', '""'],
    ['s', '"s"'],
    ['-5s', '"-5s"'],
    ['1e3ms', '"1e3ms"'],
    ['5S', '"5S"'],
    [' 5s', '" 5s"'],
    ['5  s', '"5  s"'],
    ['5s ', '"5s "'],
    ['25d', '"25d"'],
    ['1w', '"1w"'],
    [null, 'null'],
    [true, 'true'],
    [{}, 'an object (Object)'],
    [30_000n, '30000n'],
    [[30_000], 'an array of 1'],
  ])('for ttl that is none is refused: %s', async (ttl, shown) => {
    const { store, locks } = scene()
    const message = `Expected \`ttl\` ${range}, got ${shown}.`
    expect(await errorOf(locks.acquire('k', { ttl: ttl as number }))).toMatchObject({ message })
    expect(await errorOf(locks.withLocks(['k'], { ttl: ttl as number }, work))).toMatchObject({ message })
    expect(() => createLocks(store, { ttl: ttl as number })).toThrow(message)
    expect(store.sent).toEqual([])
  })

  test.each([50, '50ms', 50.4, '0.5s', '30s', '1.5m', '1h', '576h', 24 * 86_400_000])(
    'for ttl may be %s',
    async (ttl) => {
      const { locks } = scene()
      const lease = await locks.acquire('k', { ttl, renew: false })
      expect(Number.isInteger(lease.toJSON().ttlMs)).toBe(true)
      await lease.release()
    },
  )

  test('for wait may be 0 and Infinity, and nothing else that is out of range', async () => {
    const { locks, store } = scene()
    for (const wait of [0, '0s', Number.POSITIVE_INFINITY, '24h'])
      await (await locks.acquire('k', { wait })).release()
    const before = store.sent.length
    for (const wait of [-1, -0.5, Number.NaN, Number.NEGATIVE_INFINITY, '30', 25 * 86_400_000])
      expect(await errorOf(locks.acquire('k', { wait }))).toMatchObject({
        message: expect.stringMatching(
          /^Expected `wait` to be a duration from 0 ms to 24 days .*, or Infinity, got /,
        ),
      })
    expect(store.sent.length).toBe(before)
  })

  test.each(['maxHold', 'minHold', 'lockDelay'] as const)(
    'for %s is checked like the others',
    async (name) => {
      const { locks, store } = scene()
      for (const value of [-1, Number.NaN, '1 week', Number.POSITIVE_INFINITY])
        expect(await errorOf(locks.acquire('k', { [name]: value }))).toMatchObject({
          code: 'invalid-argument',
          message: expect.stringContaining(`Expected \`${name}\` to be a duration from `),
        })
      expect(store.sent).toEqual([])
    },
  )

  test('for extend is checked, and the lease goes on', async () => {
    const { locks, store } = scene()
    const lease = await locks.acquire('k')
    for (const ttl of [0, Number.NaN, '30', -5, Number.POSITIVE_INFINITY])
      expect(await errorOf(lease.extend(ttl))).toMatchObject({ code: 'invalid-argument' })
    expect(store.count('renew')).toBe(0)
    expect(lease.state).toBe('held')
    await lease.release()
  })
})

describe('options', () => {
  test.each([
    [
      { tll: '5s' },
      'Expected the options to be among `ttl`, `renew`, `maxHold`, `minHold`, `lockDelay`, `storeTimeout`, `signal`, `wait`, `maxWaiting`, got `tll`.',
    ],
    [
      { ttlMs: 5000 },
      'Expected the options to be among `ttl`, `renew`, `maxHold`, `minHold`, `lockDelay`, `storeTimeout`, `signal`, `wait`, `maxWaiting`, got `ttlMs`.',
    ],
    [
      { reentrant: true },
      'Expected the options to be among `ttl`, `renew`, `maxHold`, `minHold`, `lockDelay`, `storeTimeout`, `signal`, `wait`, `maxWaiting`, got `reentrant`.',
    ],
    [{ renew: 'yes' }, 'Expected `renew` to be true or false, got "yes".'],
    [{ renew: 1 }, 'Expected `renew` to be true or false, got 1.'],
    [{ signal: {} }, 'Expected `signal` to be an AbortSignal, got an object (Object).'],
    [
      { signal: new AbortController() },
      'Expected `signal` to be an AbortSignal, got an object (AbortController).',
    ],
    [{ signal: null }, 'Expected `signal` to be an AbortSignal, got null.'],
    [null, 'Expected the options to be an object, got null.'],
    [5000, 'Expected the options to be an object, got 5000.'],
    ['5s', 'Expected the options to be an object, got "5s".'],
  ])('that are none are refused: %j', async (options, message) => {
    const { store, locks } = scene()
    expect(await errorOf(locks.acquire('k', options as never))).toMatchObject({
      code: 'invalid-argument',
      message,
    })
    expect(store.sent).toEqual([])
  })

  test('that make no sense for a try are refused: it never waits', async () => {
    const { store, locks } = scene()
    for (const call of [
      locks.tryAcquire('k', { wait: 5 } as never),
      locks.tryWithLock('k', { wait: 5 } as never, work),
      locks.tryAcquireAll(['k'], { wait: 5 } as never),
      locks.readWrite('k').tryAcquireRead({ wait: 5 } as never),
      locks.semaphore('k', 1).tryAcquire({ wait: 5 } as never),
    ])
      expect((await errorOf(call)).message).toMatch(/^Expected the options to be among .*, got `wait`\.$/)
    expect(store.sent).toEqual([])
  })

  test.each([
    ['once', '`remember`', (locks: Locks) => locks.once('k', { remeber: '1h' } as never, work)],
    ['once', '`keepResult`', (locks: Locks) => locks.once('k', { remeber: '1h' } as never, work)],
    ['acquire', '`units`', (locks: Locks) => locks.semaphore('k', 5).acquire({ unit: 2 } as never)],
    ['tryAcquire', '`units`', (locks: Locks) => locks.semaphore('k', 5).tryAcquire({ unit: 2 } as never)],
    [
      'withPermits',
      '`units`',
      (locks: Locks) => locks.semaphore('k', 5).withPermits({ unit: 2 } as never, work),
    ],
    [
      'tryWithPermits',
      '`units`',
      (locks: Locks) => locks.semaphore('k', 5).tryWithPermits({ unit: 2 } as never, work),
    ],
  ])('that are misspelt are answered with all names: %s has %s', async (_, name, call) => {
    const { store, locks } = scene()
    const { message } = await errorOf(call(locks))
    expect(message).toMatch(/^Expected the options to be among .*, got `(remeber|unit)`\.$/)
    expect(message).toContain(name)
    expect(store.sent).toEqual([])
  })

  test('may be undefined, one by one and as a whole', async () => {
    const { locks } = scene()
    const nothing = { ttl: undefined, renew: undefined, signal: undefined, wait: undefined }
    await (await locks.acquire('k', nothing)).release()
    await (await locks.acquire('k', undefined)).release()
    expect(await locks.withLock('k', undefined as never, work)).toBe('ran')
  })

  test('an array or a Map is no options object', async () => {
    const { store, locks } = scene()
    for (const options of [[], new Map([['ttl', 5]])]) {
      expect(await errorOf(locks.tryAcquire('k', options as never))).toMatchObject({
        code: 'invalid-argument',
      })
    }
    expect(store.sent).toEqual([])
  })

  test.each([[2], [null], [true]])(
    'semaphore.acquire(%s) is refused, and does not take one permit',
    async (options) => {
      const { store, locks } = scene()
      const error = await errorOf(locks.semaphore('k', 5).acquire(options as never))
      expect(error).toMatchObject({ code: 'invalid-argument' })
      expect(store.sent).toEqual([])
    },
  )
})

test('observe() refuses a signal that is none, and begins nothing', async () => {
  const { engine, store, locks } = scene()
  for (const observed of [locks.election('k'), locks.group('k')]) {
    const error = await errorIn(() => observed.observe({ signal: null as never }).next())
    expect(error).toMatchObject({
      code: 'invalid-argument',
      message: 'Expected `signal` to be an AbortSignal, got null.',
    })
  }
  expect(engine.onlookers.size).toBe(0)
  expect(store.sent).toEqual([])
})

test('update() of a membership rejects, and does not throw, if the value is none', async () => {
  const { locks } = scene()
  const membership = await locks.group('k').join({ value: 'before' })
  const update = membership.update(5 as never)
  expect(await errorOf(update)).toMatchObject({
    code: 'invalid-argument',
    message: 'Expected `value` to be a text of at most 1000 characters, got 5.',
  })
  await membership.leave()
})

describe('a callback', () => {
  const work = { ttl: '5s' } as unknown as () => void

  test.each([
    'readWrite.read',
    'readWrite.write',
    'readWrite.tryRead',
    'readWrite.tryWrite',
    'semaphore.withPermits',
    'semaphore.tryWithPermits',
  ] as const)('%s with no function is refused before the store is asked', async (what) => {
    const { store, locks } = scene()
    const readWrite = locks.readWrite('k')
    const semaphore = locks.semaphore('k', 5)
    const calls = {
      'readWrite.read': () => readWrite.read(work),
      'readWrite.write': () => readWrite.write(work),
      'readWrite.tryRead': () => readWrite.tryRead(work),
      'readWrite.tryWrite': () => readWrite.tryWrite(work),
      'semaphore.withPermits': () => semaphore.withPermits(work),
      'semaphore.tryWithPermits': () => semaphore.tryWithPermits(work),
    }
    expect(await errorOf(calls[what]())).toMatchObject({ code: 'invalid-argument' })
    expect(store.sent).toEqual([])
  })

  test.each([undefined, null, 'work', {}, 5])(
    'that is %j is refused before the store is asked',
    async (none) => {
      const { store, locks } = scene()
      for (const call of [
        () => locks.withLock('k', none as never),
        () => locks.withLock('k', {}, none as never),
        () => locks.tryWithLock('k', none as never),
        () => locks.withLocks(['k'], none as never),
        () => locks.tryWithLocks(['k'], {}, none as never),
      ])
        expect((await errorIn(call)).message).toMatch(
          /^Expected the last argument to be a function, got .*\.$/,
        )
      expect(store.sent).toEqual([])
    },
  )
})

describe('keys', () => {
  test.each([
    [[], 'Expected `keys` to be an array with at least one key, got an array of 0.'],
    ['k', 'Expected `keys` to be an array with at least one key, got "k".'],
    [undefined, 'Expected `keys` to be an array with at least one key, got undefined.'],
    [new Set(['k']), 'Expected `keys` to be an array with at least one key, got an object (Set).'],
    [['a', ''], 'Expected `key` to be a string with at least one character, got "".'],
    [['a', 5], 'Expected `key` to be a string with at least one character, got 5.'],
  ])('that are none are refused as a whole: %j', async (keys, message) => {
    const { store, locks } = scene()
    expect(await errorOf(locks.acquireAll(keys as never))).toMatchObject({ message })
    expect(await errorOf(locks.tryWithLocks(keys as never, work))).toMatchObject({ message })
    expect(store.sent).toEqual([])
  })
})

describe('createLocks', () => {
  test.each([
    [undefined, 'undefined'],
    [null, 'null'],
    [{}, 'an object (Object)'],
    [() => {}, 'a function'],
  ])('of something that is no store is refused: %s', (store, shown) => {
    expect(() => createLocks(store as never)).toThrow(
      `Expected \`store\` to be a store, such as memoryStore() or redisStore(client), got ${shown}.`,
    )
  })

  test('of a URL is refused without showing it, since it may hold a password', () => {
    expect(() => createLocks('redis://:secret@localhost' as never)).toThrow(
      'Expected `store` to be a store, got a string. For a URL use `await connect(url)`.',
    )
  })

  test('takes no signal, and a label that is a text', () => {
    const { store } = scene()
    expect(() => createLocks(store, { signal: new AbortController().signal } as never)).toThrow(
      /^Expected the options to be among .*, got `signal`\.$/,
    )
    expect(() => createLocks(store, { label: 5 as never })).toThrow(
      'Expected `label` to be a text of at most 500 characters, got 5.',
    )
    expect(() => createLocks(store, null as never)).toThrow('Expected the options to be an object, got null.')
  })
})

test('what is shown of a value is short, and has no line breaks', async () => {
  const { locks } = scene()
  const error = await errorOf(locks.acquire('k', { ttl: `5\n${'x'.repeat(5000)}` }))
  expect(error.message.length).toBeLessThan(300)
  expect(error.message).not.toContain('\n')
  expect(error.message).toContain('(5002 characters)')
})
