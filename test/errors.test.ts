import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import type { HoldfastErrorClasses, HoldfastErrorCode, Lease } from '../src/index.ts'
import * as holdfast from '../src/index.ts'
import { createTaskQueue } from '../src/queue/index.ts'
import { errorOf, scene } from './engine/scene.ts'
import { readProjectFile } from './tidy/project.ts'

const { isHoldfastError, HoldfastError } = holdfast

/** One error of every code. The compiler reports a code that is missing here. */
const all: { readonly [Code in HoldfastErrorCode]: (cause?: unknown) => HoldfastErrorClasses[Code] } = {
  'acquire-timeout': (cause) =>
    new holdfast.AcquireTimeoutError('m', { key: 'k', waitedMs: 5, ahead: 1, cause }),
  'start-timeout': (cause) => new holdfast.StartTimeoutError('m', { key: 'k', waitedMs: 5, cause }),
  'lease-lost': (cause) => new holdfast.LeaseLostError('m', { key: 'k', reason: 'expired', cause }),
  'store-unavailable': (cause) => new holdfast.StoreError('store-unavailable', 'm', { key: 'k', cause }),
  'store-refused': (cause) => new holdfast.StoreError('store-refused', 'm', { key: 'k', cause }),
  deadlock: (cause) => new holdfast.DeadlockError('m', { key: 'k', cause }),
  'stale-fence': (cause) => new holdfast.StaleFenceError('m', { key: 'k', cause }),
  'invalid-argument': (cause) => new holdfast.InvalidArgumentError('m', { key: 'k', cause }),
  closed: (cause) => new holdfast.ClosedError('m', { key: 'k', cause }),
  conflict: (cause) => new holdfast.ConflictError('m', { key: 'k', cause }),
  'step-down': (cause) => new holdfast.StepDownError('m', { key: 'k', cause }),
  'queue-full': (cause) => new holdfast.QueueFullError('m', { key: 'k', cause }),
  'task-failed': (cause) => new holdfast.TaskFailedError('m', { key: 'k', cause }),
  'idempotency-key': (cause) => new holdfast.IdempotencyKeyError('m', { key: 'k', reason: 'running', cause }),
}
const codes = Object.keys(all) as HoldfastErrorCode[]

describe.each(codes)('the error with code %s', (code) => {
  test('is an Error and a HoldfastError, with its code, its key and its cause', () => {
    const cause = new Error('socket hang up')
    const error = all[code](cause)
    expect(error).toBeInstanceOf(Error)
    expect(error).toBeInstanceOf(HoldfastError)
    expect(error).toMatchObject({ code, key: 'k', cause, message: 'm' })
    expect(error.name).toBe(error.constructor.name)
    expect(error.stack).toContain('errors.test.ts')
  })

  test('has no cause unless there is one, and shows its code when it is logged', () => {
    const error = all[code]()
    expect('cause' in error).toBe(false)
    expect(String(error)).toBe(`${error.name}: m`)
    expect(inspect(error)).toContain(code)
  })

  test('is known to isHoldfastError, under its own code only', () => {
    const error = all[code]()
    expect(isHoldfastError(error)).toBe(true)
    expect(codes.filter((one) => isHoldfastError(error, one))).toEqual([code])
  })

  test('has a place in docs/errors.md, under its class', () => {
    const headings = readProjectFile('docs/errors.md').match(/^## .*$/gm) ?? []
    const { name } = all[code]()
    expect(
      headings.filter((heading) => heading.includes(name) && heading.includes(`\`${code}\``)),
    ).toHaveLength(1)
  })
})

describe('isHoldfastError', () => {
  test.each([
    undefined,
    null,
    'closed',
    5,
    {},
    { code: 'closed', message: 'm' },
    new Error('m'),
    new TypeError('m'),
    Object.assign(new Error('m'), { code: 'ENOENT' }),
    Object.assign(new Error('m'), { code: 5 }),
    new DOMException('m', 'AbortError'),
    AbortSignal.timeout(0).reason,
  ])('is false for %s', (value) => {
    expect(isHoldfastError(value)).toBe(false)
    expect(isHoldfastError(value, 'closed')).toBe(false)
  })

  test('knows the errors of a second copy of the library, and so does instanceof', async () => {
    const specifier = '../src/errors.ts?second-copy'
    const copy = (await import(specifier)) as typeof import('../src/errors.ts')
    const error = new copy.AcquireTimeoutError('m', { key: 'k', waitedMs: 5 })
    expect(error).toBeInstanceOf(HoldfastError)
    expect(error).toBeInstanceOf(holdfast.AcquireTimeoutError)
    expect(error).not.toBeInstanceOf(holdfast.ClosedError)
    expect(isHoldfastError(error)).toBe(true)
    expect(isHoldfastError(error, 'acquire-timeout')).toBe(true)
    expect(isHoldfastError(error, 'closed')).toBe(false)
    expect(copy.isHoldfastError(all['stale-fence'](), 'stale-fence')).toBe(true)
  })

  test('narrows the type, so that the key and the code may be read', () => {
    const caught: unknown = all['lease-lost']()
    const key = isHoldfastError(caught) ? caught.key : 'none'
    expect(key).toBe('k')
  })

  test('narrows to the class of the code, so that what only this class has may be read', () => {
    const caught: unknown = all['lease-lost']()
    const reason = isHoldfastError(caught, 'lease-lost') ? caught.reason : 'none'
    expect(reason).toBe('expired')
  })
})

test('every code has a class, and all classes come from the entry point', () => {
  const names = Object.entries(holdfast).flatMap(([name, value]) =>
    typeof value === 'function' && value.prototype instanceof HoldfastError ? [name] : [],
  )
  expect(new Set(names)).toEqual(new Set(codes.map((code) => all[code]().name)))
})

describe('what the library says when things go wrong', () => {
  test('names the key, ends as a sentence, and never shows an id, a fence or an owner', async () => {
    const { clock, store, locks, other } = scene()
    const TTL = 1000
    const leases: Lease[] = []
    const keep = <L extends Lease>(lease: L): L => {
      leases.push(lease)
      return lease
    }
    const errors: Error[] = []
    const collect = async (failing: Promise<unknown>) => {
      errors.push(await clock.until(errorOf(failing)))
    }

    const held = keep(await other.locks.acquire('held', { ttl: '5m' }))
    await collect(locks.acquire('held', { wait: 100 }))
    await collect(locks.acquire('held', { wait: 0 }))
    const waiting = errorOf(locks.acquire('held'))
    await clock.advance(10)
    for await (const room of other.locks.inspect({ prefix: 'held' }))
      await other.locks.evict('held', room.queue[0]?.id ?? '', { reason: 'not today' })
    errors.push(await clock.until(waiting))

    const expired = keep(await locks.acquire('expired', { ttl: TTL, renew: false }))
    const stuck = keep(await locks.acquire('stuck', { ttl: TTL, maxHold: 3000 }))
    const evicted = keep(await locks.acquire('evicted', { ttl: TTL }))
    const reset = keep(await locks.acquire('reset', { ttl: TTL }))
    const released = keep(await locks.acquire('released', { ttl: TTL }))
    await released.release()
    await other.locks.evict('evicted', evicted.id, { reason: 'stuck' })
    await store.real.release({ key: 'reset', id: reset.id, cancel: false })
    await clock.advance(4 * TTL)
    for (const lease of [expired, stuck, evicted, reset, released]) await collect(lease.extend())
    for (const lease of [expired, evicted]) await collect(locks.adopt(lease.toJSON()))

    await collect(locks.withLock('a', () => locks.withLock('a', () => {})))
    const lock = locks.readWrite('a')
    await collect(lock.read(() => lock.write({ reentrant: true }, () => {})))
    await collect(locks.acquire(''))
    await collect(locks.adopt({ ...held.toJSON(), units: 2 }))

    store.always('lose request')
    await collect(locks.acquire('silent', { ttl: 100, wait: 100 }))
    await collect(locks.inspect().next())
    store.always('fail')
    await collect(locks.acquire('failing', { ttl: 100, wait: 100 }))
    store.always('answer')
    await clock.until(locks.close())
    await collect(locks.acquire('closed'))
    await held.release()
    await clock.advance(60_000)

    expect(new Set(errors.map((error) => (error as holdfast.HoldfastError).code))).toEqual(
      new Set([
        'acquire-timeout',
        'lease-lost',
        'store-unavailable',
        'deadlock',
        'invalid-argument',
        'closed',
      ]),
    )
    const secrets = [
      // The part of an id that all tickets of the process share.
      held.id.slice(0, 16),
      ...leases.flatMap(({ id, fence }) => [id, String(fence)]),
      '{"label":"test"}',
    ]
    for (const error of errors) {
      const said = `${error.message} ${error.cause instanceof Error ? error.cause.message : ''}`
      expect(secrets.filter((secret) => said.includes(secret))).toEqual([])
      expect(error.message).toMatch(/^["A-Z].*\.$/)
      const { key } = error as holdfast.HoldfastError
      if (key !== undefined && !isHoldfastError(error, 'closed')) expect(error.message).toContain(`"${key}"`)
    }
  })

  test('is a new error each time, with the stack of this time', async () => {
    const { locks } = scene()
    const [one, two] = [await errorOf(locks.acquire('')), await errorOf(locks.acquire(''))]
    expect(one).not.toBe(two)
  })

  test('comes from the task queue in the same form', async () => {
    const queue = createTaskQueue({ maxActiveTasks: 1, maxQueueSize: 1 })
    let end: () => void = () => {}
    const active = queue.run(() => new Promise<void>((resolve) => (end = resolve)))
    const queued = queue.run(() => {})
    const full = await errorOf(queue.run(() => {}))
    expect(isHoldfastError(full, 'queue-full')).toBe(true)
    end()
    await Promise.all([active, queued])
  })
})

test('a message is one line that steers no terminal, whatever keys and reasons are in it', () => {
  const hostile = 'x\x1b[2J\u202e\u2028\r\n'
  const { message, evictedBecause } = new holdfast.LeaseLostError(`The lease on "k" is over: ${hostile}.`, {
    reason: 'evicted',
    evictedBecause: hostile,
  })
  expect(message).toBe('The lease on "k" is over: x\\x1b[2J\\u{202e}\\u{2028}\\x0d\\x0a.')
  // A program gets the reason as it was given.
  expect(evictedBecause).toBe(hostile)
})

test('what a stranger wrote into the store does not fill a log', () => {
  const long = 'x'.repeat(2 ** 21)
  const { message, evictedBecause } = new holdfast.LeaseLostError(long, {
    reason: 'evicted',
    evictedBecause: long,
  })
  expect(message.length).toBeLessThan(5000)
  expect(evictedBecause).toMatch(/^x{500}… \(2097152 characters\)$/)
})
