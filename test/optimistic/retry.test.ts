import { describe, expect, test } from 'vitest'
import { ConflictError } from '../../src/index.ts'
import { retryOnConflict, updateOptimistically } from '../../src/optimistic/index.ts'
import { undisturbed } from '../base/measured.ts'

const conflict = () => new ConflictError('somebody came first')
const withCode = (code: string, error: Error = new Error(code)) => Object.assign(error, { code })

describe('updateOptimistically', () => {
  /** A register with a version. Other writers write between our read and our write, the first `interruptions` times. */
  const register = (interruptions: number) => {
    let stored = { value: 0, version: 1 }
    let left = interruptions
    return {
      reads: [] as number[],
      get stored() {
        return stored
      },
      read() {
        this.reads.push(stored.value)
        const seen = stored
        if (left > 0) stored = { value: stored.value + 100, version: stored.version + 1 }
        left -= 1
        return seen
      },
      write(value: number, seen: { version: number }) {
        if (seen.version !== stored.version) return false
        stored = { value, version: seen.version + 1 }
        return true
      },
    }
  }

  test('starts over from the read until no other writer came first, so that no change is lost', async () => {
    const r = register(3)
    const written = await updateOptimistically({
      read: () => r.read(),
      change: ({ value }) => value + 1,
      write: (next, seen) => r.write(next, seen),
    })
    expect(written).toBe(301)
    expect(r.stored).toEqual({ value: 301, version: 5 })
    expect(r.reads).toEqual([0, 100, 200, 300])
  })

  test('gives up after so many attempts, and says how many', async () => {
    const r = register(Number.POSITIVE_INFINITY)
    const update = updateOptimistically({
      read: () => r.read(),
      change: ({ value }) => value + 1,
      write: (next, seen) => r.write(next, seen),
      attempts: 4,
    })
    await expect(update).rejects.toMatchObject({
      code: 'conflict',
      message: expect.stringMatching(
        /^Somebody else changed it first, 4 times in \d+ ms\. Nothing was written/,
      ),
      cause: expect.any(Error),
    })
    expect(r.reads).toHaveLength(4)
  })

  test.each([null, undefined])('a change of %s leaves it alone', async (nothing) => {
    const r = register(0)
    const write = () => expect.unreachable('it wrote')
    expect(await updateOptimistically({ read: () => r.read(), change: () => nothing, write })).toBeNull()
  })

  test('an error of read, change or write comes through at once', async () => {
    for (const part of ['read', 'change', 'write'] as const) {
      let calls = 0
      const fail = () => {
        calls += 1
        throw new TypeError(part)
      }
      const steps = { read: () => 1, change: () => 2, write: () => true, [part]: fail }
      await expect(updateOptimistically(steps)).rejects.toThrow(new TypeError(part))
      expect(calls).toBe(1)
    }
  })

  test('a write that forgets to say whether it wrote is an error, not a success', async () => {
    const forgetful = { read: () => 1, change: () => 2, write: () => undefined as unknown as boolean }
    await expect(updateOptimistically(forgetful)).rejects.toThrow(
      'Expected `write` to be a function that answers true (written) or false (somebody came first), got undefined.',
    )
  })
})

describe('retryOnConflict', () => {
  const wrapped = (error: Error) => new Error('Failed query', { cause: error })
  const prisma = Object.assign(new Error('P2010'), {
    code: 'P2010',
    meta: { driverAdapterError: { cause: { originalCode: '40001' } } },
  })
  test.each([
    ['a serialization failure', withCode('40001')],
    ['a deadlock', withCode('40P01')],
    ['one that Drizzle has wrapped', wrapped(withCode('40001'))],
    ['one of a raw statement of Prisma', prisma],
    ['one of Prisma’s own statements', withCode('P2034')],
    ['one that the work reports itself', conflict()],
  ])('tries again after %s', async (_, error) => {
    const attempts: number[] = []
    const result = await retryOnConflict((attempt) => {
      attempts.push(attempt)
      if (attempt < 3) throw error
      return 'done'
    })
    expect([result, attempts]).toEqual(['done', [1, 2, 3]])
  })

  test.each([
    ['a unique key', withCode('23505')],
    ['a lost connection', withCode('EPIPE')],
    ['a time limit of the server', withCode('57014')],
    ['anything else', new Error('no')],
  ])('does not try again after %s', async (_, error) => {
    let attempts = 0
    const work = () => {
      attempts += 1
      throw error
    }
    await expect(retryOnConflict(work)).rejects.toBe(error)
    expect(attempts).toBe(1)
  })

  test('ends when the time is over, however many attempts are left', async () => {
    // A machine that stands still for as long as the wait leaves time for one attempt only.
    const attempts = await undisturbed(
      (count) => count > 1,
      async () => {
        let count = 0
        const always = () => {
          count += 1
          throw conflict()
        }
        const startedAt = performance.now()
        await expect(
          retryOnConflict({ attempts: Number.POSITIVE_INFINITY, wait: 60 }, always),
        ).rejects.toMatchObject({
          code: 'conflict',
        })
        // The function never sleeps past its end: it gives up instead.
        expect(performance.now() - startedAt).toBeLessThan(10_000)
        return count
      },
    )
    expect(attempts).toBeGreaterThan(1)
  })

  test('with a wait of 0 there is one attempt', async () => {
    let attempts = 0
    const always = () => {
      attempts += 1
      throw conflict()
    }
    await expect(retryOnConflict({ wait: 0 }, always)).rejects.toThrow(
      'Somebody else changed it first, once in',
    )
    expect(attempts).toBe(1)
  })

  test('an abort ends it with the reason of the signal: before, between, and not after a success', async () => {
    const reason = new Error('shutting down')
    const work = () => expect.unreachable('it worked')
    await expect(retryOnConflict({ signal: AbortSignal.abort(reason) }, work)).rejects.toBe(reason)

    const between = new AbortController()
    const collide = () => {
      between.abort(reason)
      throw conflict()
    }
    await expect(retryOnConflict({ signal: between.signal }, collide)).rejects.toBe(reason)

    const late = new AbortController()
    const succeed = () => {
      late.abort(reason)
      return 'done'
    }
    expect(await retryOnConflict({ signal: late.signal }, succeed)).toBe('done')
  })

  test('an abort ends a pause at once, and leaves no listener behind', async () => {
    const controller = new AbortController()
    const { signal } = controller
    let listeners = 0
    const { addEventListener, removeEventListener } = signal
    signal.addEventListener = (...args: unknown[]) => {
      listeners += 1
      if (listeners === 3) setImmediate(() => controller.abort('enough'))
      return Reflect.apply(addEventListener, signal, args)
    }
    signal.removeEventListener = (...args: unknown[]) => {
      removed += 1
      return Reflect.apply(removeEventListener, signal, args)
    }
    let removed = 0
    const always = () => {
      throw conflict()
    }
    await expect(retryOnConflict({ signal, attempts: 1000, wait: Infinity }, always)).rejects.toBe('enough')
    expect([listeners, removed]).toEqual([3, 3])
  })

  const wrong: [string, unknown, string][] = [
    ['no attempt', { attempts: 0 }, '`attempts` to be a whole number from 1 on, or Infinity, got 0'],
    ['half an attempt', { attempts: 1.5 }, '`attempts` to be'],
    ['a wait that is none', { wait: 'long' }, '`wait` to be a duration'],
    ['a signal that is none', { signal: {} }, '`signal` to be an AbortSignal'],
    [
      'a misspelt option',
      { retries: 5 },
      'the options to be among `attempts`, `wait`, `signal`, got `retries`',
    ],
    ['options that are none', null, 'the options to be an object'],
  ]
  test.each(wrong)('%s is refused', (_, options, message) => {
    expect(() => retryOnConflict(options as never, () => 1)).toThrow(`Expected ${message}`)
  })

  test('work that is no function is refused', () => {
    expect(() => retryOnConflict(5 as never)).toThrow('Expected `work` to be a function, got 5.')
  })
})
