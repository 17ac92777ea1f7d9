import { Redis } from 'ioredis'
import { describe, expect, test } from 'vitest'
import { createLocks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { type LockManager, webLocks } from '../../src/web-locks/index.ts'
import { settled } from '../engine/fake-clock.ts'
import { errorOf } from '../engine/scene.ts'
import { Letter, ScriptedStore } from '../engine/scripted-store.ts'
import { startRedis } from '../servers/redis-server.ts'
import { held, scene } from './scene.ts'

// The scenarios of the tests that all browsers share for Web Locks (web-platform-tests, web-locks/), except those that
// need a document or a worker.

const unreached = () => expect.unreachable()

function requestWith(locks: LockManager, ...args: readonly unknown[]): Promise<unknown> {
  return (locks.request as (...args: readonly unknown[]) => Promise<unknown>).apply(locks, args as never)
}

/** The exact reason with which the promise rejects. */
function reasonOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(unreached, (reason: unknown) => reason)
}

describe('names', () => {
  test.each([
    '',
    'abc\0def',
    '\uD800',
    '\uDC00',
    '\uDC00\uD800',
    '\uFFFF',
    '100 %',
    '%0000',
    'x-anything',
    '😀',
  ])('%j is taken, granted and listed as it is', async (name) => {
    const { one, other } = scene()
    expect(await one.request(name, (lock) => lock.name)).toBe(name)
    const first = await held(one, name)
    const waiting = other.request(name, { mode: 'shared' }, () => {})
    await settled()
    const { held: holding, pending } = await other.query()
    expect([holding, pending].map(([info]) => info?.name)).toEqual([name, name])
    first.release('')
    await waiting
  })

  test('that are not valid UTF-16 are not mangled', async () => {
    const { one } = scene()
    await one.request('\uD800', async () => {
      expect(await one.request('\uFFFD', { ifAvailable: true }, (lock) => lock?.name)).toBe('\uFFFD')
      expect(await one.request('%d800', { ifAvailable: true }, (lock) => lock?.name)).toBe('%d800')
      expect(await one.request('\uD800', { ifAvailable: true }, (lock) => lock)).toBeNull()
    })
  })

  test.each(['-', '-foo'])('%j is reserved', async (name) => {
    const { one } = scene()
    expect(await reasonOf(one.request(name, unreached))).toMatchObject({ name: 'NotSupportedError' })
  })
})

describe('arguments', () => {
  test.each<[string, readonly unknown[]]>([
    ['none', []],
    ['a name alone', ['r']],
    ...[undefined, null, 123, 'abc', [], {}, Promise.resolve()].map(
      (callback): [string, readonly unknown[]] => [
        `${JSON.stringify(callback)} as callback`,
        ['r', callback],
      ],
    ),
    ['a callback that is none, with options', ['r', {}, {}]],
    ['a symbol as name', [Symbol('r'), unreached]],
    ['a name that cannot be a text', [{ toString: () => ({}), valueOf: () => ({}) }, unreached]],
    ['the mode foo', ['r', { mode: 'foo' }, unreached]],
    ['the mode null', ['r', { mode: null }, unreached]],
    ['a symbol as mode', ['r', { mode: Symbol('shared') }, unreached]],
    ...['string', 12.34, false, {}, Symbol('s'), () => {}, globalThis, null].map(
      (signal): [string, readonly unknown[]] => [
        `a ${typeof signal} as signal`,
        ['r', { signal }, unreached],
      ],
    ),
    ['a wrong callback before a reserved name', ['-r', 'callback']],
    ['a wrong mode before a reserved name', ['-r', { mode: 'foo' }, unreached]],
  ])('%s are a TypeError', async (_, args) => {
    const { one } = scene()
    expect(await reasonOf(requestWith(one, ...args))).toBeInstanceOf(TypeError)
  })

  test.each<[string, readonly unknown[]]>([
    ['steal with ifAvailable', ['r', { steal: true, ifAvailable: true }, unreached]],
    ['steal with mode shared', ['r', { mode: 'shared', steal: true }, unreached]],
    ['steal with a signal', ['r', { steal: true, signal: new AbortController().signal }, unreached]],
    [
      'ifAvailable with a signal',
      ['r', { ifAvailable: true, signal: new AbortController().signal }, unreached],
    ],
    ['a reserved name with an aborted signal', ['-r', { signal: AbortSignal.abort() }, unreached]],
    ['steal with an aborted signal', ['r', { steal: true, signal: AbortSignal.abort() }, unreached]],
  ])('%s is a NotSupportedError', async (_, args) => {
    const { one } = scene()
    const reason = await reasonOf(requestWith(one, ...args))
    expect(reason).toBeInstanceOf(DOMException)
    expect(reason).toMatchObject({ name: 'NotSupportedError' })
  })

  test('are converted as WebIDL does: members in their order and once each, others never, truthy for true', async () => {
    const { one } = scene()
    const read: string[] = []
    const options = new Proxy(
      {},
      {
        get(_, name) {
          read.push(String(name))
          return name === 'ifAvailable' ? 'yes' : undefined
        },
      },
    )
    expect(await requestWith(one, 'r', options, (lock: unknown) => lock !== null)).toBe(true)
    expect(read).toEqual(['ifAvailable', 'mode', 'signal', 'steal'])
    expect(await requestWith(one, 'r', null, () => 'null is no options')).toBe('null is no options')
    expect(await requestWith(one, 'r', undefined, () => 'nor is undefined')).toBe('nor is undefined')
    expect(await requestWith(one, null, (lock: { name: string }) => lock.name)).toBe('null')
  })
})

describe('a lock', () => {
  test('cannot be changed by its receiver', async () => {
    const { one } = scene()
    await one.request('r', (lock) => {
      expect(() => Object.assign(lock, { name: 'another' })).toThrow(TypeError)
      expect(lock.name).toBe('r')
    })
  })

  test('is released before the request resolves, and that is after everything that it waited for', async () => {
    const { one, other } = scene()
    const order: string[] = []
    let release = () => {}
    const holding = new Promise<void>((resolve) => {
      release = resolve
    })
    const returned = one.request('r', () => holding)
    const freed = returned.then(() => other.request('r', { ifAvailable: true }, (lock) => lock !== null))
    void returned.then(() => order.push('returned'))
    void holding.then(() => order.push('holding'))
    await settled()
    release()
    expect(await freed).toBe(true)
    expect(order).toEqual(['holding', 'returned'])
  })

  test('is a native promise, which rejects with exactly what is thrown, and follows no thenable', async () => {
    const { one } = scene()
    let followed = false
    // biome-ignore lint/suspicious/noThenProperty: that is what must not be called.
    const thrown = { then: () => (followed = true) }
    const request = one.request('r', async () => Promise.reject(thrown))
    expect(Promise.resolve(request)).toBe(request)
    expect(await request.then(unreached, (reason: unknown) => reason === thrown)).toBe(true)
    expect(followed).toBe(false)
    const null_ = one.request('r', { ifAvailable: true }, () => Promise.reject(123))
    expect(await reasonOf(null_)).toBe(123)
  })
})

describe('ifAvailable', () => {
  test('passes on the callback’s result without a lock', async () => {
    const { one } = scene()
    await one.request('r', async () => {
      expect(await one.request('r', { ifAvailable: true }, (lock) => [lock, 123])).toEqual([null, 123])
      expect(await reasonOf(one.request('r', { ifAvailable: true }, () => Promise.reject(123)))).toBe(123)
      expect(await one.request('another', { ifAvailable: true }, (lock) => lock !== null)).toBe(true)
    })
  })

  test.each([
    ['shared', 'shared', true],
    ['shared', 'exclusive', false],
    ['exclusive', 'shared', false],
    ['exclusive', 'exclusive', false],
  ] as const)('while it is held %s, asked for %s: %s', async (mode, asked, isGranted) => {
    const { one, other } = scene()
    await one.request('r', { mode }, async () => {
      const granted = other.request('r', { mode: asked, ifAvailable: true }, (lock) => lock !== null)
      expect(await granted).toBe(isGranted)
    })
  })

  test('does not overtake waiters', async () => {
    const { one, other } = scene()
    const first = await held(one, 'r', { mode: 'shared' })
    const waiting = other.request('r', () => 'in its turn')
    await settled()
    expect(await one.request('r', { mode: 'shared', ifAvailable: true }, (lock) => lock)).toBeNull()
    first.release('')
    expect(await waiting).toBe('in its turn')
  })
})

describe('modes', () => {
  test('requests are granted in their order, over several names too, and none waits for another name', async () => {
    const { one } = scene()
    const granted: number[] = []
    const requests = ['a', 'b', 'c', 'a', 'b', 'c'].map((name, at) =>
      one.request(name, { mode: 'shared' }, () => granted.push(at)),
    )
    await Promise.all(requests)
    expect(granted).toEqual([0, 1, 2, 3, 4, 5])
    let blocked: Promise<unknown> = Promise.resolve()
    const order: string[] = []
    await one.request('a', () => {
      blocked = one.request('a', () => order.push('a'))
      return one.request('b', () => order.push('b'))
    })
    await blocked
    expect(order).toEqual(['b', 'a'])
  })

  test('the end of an exclusive lock lets in all shared ones behind it, and the end of those the exclusive one', async () => {
    const { one, other } = scene()
    const five = () =>
      Promise.all(
        Array.from({ length: 5 }, (_, at) => held(at % 2 === 0 ? one : other, 'r', { mode: 'shared' })),
      )
    const modes = async () => {
      const { held: holding, pending } = await other.query()
      return [holding, pending].map((list) => list.map(({ mode }) => mode).join(' '))
    }
    const shared = 'shared shared shared shared shared'
    const first = await five()
    const exclusive = held(one, 'r')
    await settled()
    const last = five()
    await settled()
    expect(await modes()).toEqual([shared, `exclusive ${shared}`])
    for (const lock of first) lock.release('')
    const alone = await exclusive
    expect(await modes()).toEqual(['exclusive', shared])
    alone.release('')
    await alone.result
    // The last request resolves in this very moment.
    expect(await modes()).toEqual([shared, ''])
    for (const lock of await last) lock.release('')
  })
})

describe('a signal', () => {
  test.each([
    ['the default reason', undefined],
    ['a reason of its own', 'My cat handled it'],
  ])('that aborts in the same tick is in time, with %s, and the next one has its turn', async (_, reason) => {
    const { one, other } = scene()
    const controller = new AbortController()
    const first = one.request('r', { signal: controller.signal }, unreached)
    const next = other.request('r', () => 'resolved')
    controller.abort(reason)
    expect(await reasonOf(first)).toBe(controller.signal.reason)
    expect(await next).toBe('resolved')
  })

  test('of another lock that is lost ends the wait with why', async () => {
    const { one, other } = scene()
    const first = await held(one, 'r')
    let inner: Promise<unknown> = Promise.resolve()
    const outer = one.request('outer', (lock) => {
      inner = reasonOf(one.request('r', { signal: lock.signal }, unreached))
      return inner
    })
    outer.catch(() => {})
    await settled()
    await other.request('outer', { steal: true }, () => {})
    expect(await inner).toMatchObject({ code: 'lease-lost', key: 'web-locks:outer' })
    first.release('')
  })

  test('that has aborted already is told before anything is asked', async () => {
    const { one } = scene()
    const request = one.request('r', { signal: AbortSignal.abort('My dog ate it.') }, unreached)
    expect(await reasonOf(request)).toBe('My dog ate it.')
    expect(await one.query()).toEqual({ held: [], pending: [] })
  })

  test('that aborts after the release changes nothing', async () => {
    const { one } = scene()
    const controller = new AbortController()
    const lock = await held(one, 'r', { signal: controller.signal })
    lock.release('resolved ok')
    controller.abort()
    expect(await lock.result).toBe('resolved ok')
  })
})

describe('steal', () => {
  test('breaks a lock that was asked for in the same tick, and the last thief wins', async () => {
    const { one } = scene()
    const never = () => new Promise<never>(() => {})
    const robbed = [one.request('r', never), one.request('r', { steal: true }, never)].map(errorOf)
    expect(await one.request('r', { steal: true }, (lock) => lock.name)).toBe('r')
    for (const error of await Promise.all(robbed)) expect(error).toMatchObject({ name: 'AbortError' })
  })

  test.each([1, 5])(
    'of %i and one more who ask in one tick of a process, the last one wins, also over a network',
    async (count) => {
      await using server = await startRedis()
      const client = new Redis(server.url)
      await using locks = createLocks(redisStore(client))
      const one = webLocks(locks)
      const never = () => new Promise<never>(() => {})
      const first = errorOf(one.request('r', never))
      const thieves = Array.from({ length: count }, () => errorOf(one.request('r', { steal: true }, never)))
      expect(await one.request('r', { steal: true }, () => 'the last')).toBe('the last')
      for (const error of await Promise.all([first, ...thieves])) {
        expect(error).toMatchObject({ name: 'AbortError' })
      }
      expect(await one.query()).toEqual({ held: [], pending: [] })
      client.disconnect()
    },
  )

  test('keeps the order of the thieves of a process, whose requests may overtake one another', async () => {
    const store = new ScriptedStore(memoryStore())
    const { one } = scene(store)
    const letter = new Letter()
    store.next('evict', letter)
    const slow = errorOf(one.request('r', { steal: true }, () => new Promise<never>(() => {})))
    const last = one.request('r', { steal: true }, () => 'the last')
    await settled()
    letter.arrive().reply()
    expect(await last).toBe('the last')
    expect(await slow).toMatchObject({ name: 'AbortError' })
    expect(await one.query()).toEqual({ held: [], pending: [] })
  })

  test('lets waiters wait until the thief is done', async () => {
    const { one } = scene()
    one.request('r', () => new Promise(() => {})).catch(() => {})
    const order: string[] = []
    const waiting = one.request('r', () => order.push('waiting'))
    await one.request('r', { steal: true }, () => order.push('thief'))
    await waiting
    expect(order).toEqual(['thief', 'waiting'])
  })
})

describe('query', () => {
  test('returns dictionaries with name, mode and clientId', async () => {
    const { one, other } = scene()
    await one.request('r', async () => {
      const waiting = [one, other].map((locks) => locks.request('r', { mode: 'shared' }, () => {}))
      await settled()
      const snapshot = await one.query()
      const [client, another] = [snapshot.held[0]?.clientId, snapshot.pending[1]?.clientId]
      expect(snapshot).toEqual({
        held: [{ name: 'r', mode: 'exclusive', clientId: client }],
        pending: [
          { name: 'r', mode: 'shared', clientId: client },
          { name: 'r', mode: 'shared', clientId: another },
        ],
      })
      expect(typeof client).toBe('string')
      expect(client).not.toBe(another)
      return waiting
    })
  })

  test('counts shared locks, and tells those that are held from those that wait', async () => {
    const { one } = scene()
    await one.request('r', { mode: 'shared' }, () =>
      one.request('r', { mode: 'shared' }, async () => {
        expect((await one.query()).held.map(({ mode }) => mode)).toEqual(['shared', 'shared'])
      }),
    )
    expect(await one.query()).toEqual({ held: [], pending: [] })
  })

  test('can observe a deadlock', async () => {
    const { one, other } = scene()
    const giveUp = new AbortController()
    const [first, second] = [await held(one, 'a'), await held(other, 'b')]
    const waiting = [
      other.request('a', { signal: giveUp.signal }, unreached),
      one.request('b', { signal: giveUp.signal }, unreached),
    ].map(reasonOf)
    await settled()
    const { held: holding, pending } = await one.query()
    const clients = (list: typeof holding, name: string) =>
      list.filter((info) => info.name === name).map(({ clientId }) => clientId)
    expect(clients(holding, 'a')).toEqual(clients(pending, 'b'))
    expect(clients(holding, 'b')).toEqual(clients(pending, 'a'))
    expect(pending).toHaveLength(2)
    giveUp.abort('enough')
    expect(await Promise.all(waiting)).toEqual(['enough', 'enough'])
    first.release('')
    second.release('')
  })
})
