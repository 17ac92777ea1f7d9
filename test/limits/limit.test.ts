import { getEventListeners } from 'node:events'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Redis } from 'ioredis'
import {
  RateLimiterMemory,
  RateLimiterRedis,
  RateLimiterUnion,
  RLWrapperBlackAndWhite,
} from 'rate-limiter-flexible'
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Store } from '../../src/contract/index.ts'
import { AcquireTimeoutError, createLocks, type Locks } from '../../src/index.ts'
import { createLimit } from '../../src/limits/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { block } from '../engine/block.ts'
import { errorOf, outcomeOf } from '../engine/scene.ts'
import { freePort } from '../servers/free-port.ts'
import { startRedis } from '../servers/redis-server.ts'
import { until } from '../servers/until.ts'
import { startMasters } from '../stores/redlock/masters.ts'

const MINUTE = { points: 1, duration: 60 }

/** Two processes at one store. No ticket may be left when the test is over. */
function scene(store: Store = memoryStore()): { locks: Locks; other: Locks } {
  const [locks, other] = [createLocks(store, { label: 'one' }), createLocks(store, { label: 'other' })]
  onTestFinished(async () => {
    const left: string[] = []
    for await (const { key } of locks.inspect()) left.push(key)
    await Promise.all([locks.close(), other.close()])
    expect(left).toEqual([])
  })
  return { locks, other }
}

test('no work begins in a slot that ended while the event loop stood still', async () => {
  const { locks } = scene()
  const rate = {
    async consume() {
      block(60)
    },
  }
  const limit = createLimit(locks, 'exports', { concurrency: 1, rate })
  const begun: string[] = []
  expect(await errorOf(limit.run('user', { ttl: 60 }, () => begun.push('run')))).toMatchObject({
    code: 'lease-lost',
  })
  expect(await errorOf(limit.tryRun('user', { ttl: 60 }, () => begun.push('tryRun')))).toMatchObject({
    code: 'lease-lost',
  })
  expect(begun).toEqual([])
})

/** Work that goes on until the test ends it. */
function work(): { run: () => Promise<string>; begun: Promise<void>; end: () => void } {
  let end = () => {}
  let begin = () => {}
  const begun = new Promise<void>((resolve) => {
    begin = resolve
  })
  const ended = new Promise<string>((resolve) => {
    end = () => resolve('done')
  })
  return {
    begun,
    end,
    run() {
      begin()
      return ended
    },
  }
}

describe('a limit', () => {
  test('lets so many calls run at once for each key, over all processes, and the next one when one is done', async () => {
    const { locks, other } = scene()
    const limits = [locks, other].map((one) => createLimit(one, 'exports', { concurrency: 2 }))
    let [running, most] = [0, 0]
    const values = await Promise.all(
      Array.from({ length: 20 }, (_, index) =>
        limits[index % 2]?.run('ada', async () => {
          running += 1
          most = Math.max(most, running)
          await new Promise((resolve) => setTimeout(resolve, 1))
          running -= 1
          return index
        }),
      ),
    )
    expect(values).toEqual(Array.from({ length: 20 }, (_, index) => index))
    expect(most).toBe(2)
  })

  test('is a separate limit for each key and each name', async () => {
    const { locks } = scene()
    const busy = work()
    const [imports, exports] = ['imports', 'exports'].map((name) =>
      createLimit(locks, name, { concurrency: 1 }),
    )
    const running = exports?.run('ada', busy.run)
    await busy.begun
    expect(await exports?.tryRun('ada', () => 1)).toEqual({ ran: false, reason: 'concurrency' })
    expect(await exports?.tryRun('bob', () => 1)).toEqual({ ran: true, value: 1 })
    expect(await imports?.tryRun('ada', () => 1)).toEqual({ ran: true, value: 1 })
    busy.end()
    expect(await running).toBe('done')
  })

  test('has no slot in common with another limit, whatever names users choose', async () => {
    const { locks } = scene()
    const api = createLimit(locks, 'api', { concurrency: 1 })
    const hostile = work()
    const running = api.run('admin:ada', hostile.run)
    await hostile.begun
    // If a name could contain `:`, a limit of this name would have the very slots of that user.
    expect(() => createLimit(locks, 'api:admin', { concurrency: 1 })).toThrow(
      'Expected `name` to be a text without `:`, because the key follows after a `:`, got "api:admin".',
    )
    for (const user of ['__proto__', 'constructor', ' ', '../..', '{ada}', '*', '👩‍💻', 'x'.repeat(1020)]) {
      expect(await api.tryRun(user, ({ key }) => key)).toEqual({ ran: true, value: `api:${user}` })
    }
    hostile.end()
    await running
  })

  test('takes the smallest number that any process has, while a deploy changes it', async () => {
    const { locks, other } = scene()
    const [before, after] = [
      createLimit(locks, 'exports', { concurrency: 1 }),
      createLimit(other, 'exports', { concurrency: 3 }),
    ]
    const [old, fresh] = [work(), work()]
    const first = before.run('ada', old.run)
    await old.begun
    expect(await after.tryRun('ada', () => 1)).toEqual({ ran: false, reason: 'concurrency' })
    old.end()
    await first
    const second = after.run('ada', fresh.run)
    await fresh.begun
    expect(await after.tryRun('ada', () => 1)).toEqual({ ran: true, value: 1 })
    expect(await before.tryRun('ada', () => 1)).toEqual({ ran: false, reason: 'concurrency' })
    fresh.end()
    await second
  })

  test('lets no more run at once whatever the defaults of the locks are, and no call wait for a slot of its own work', async () => {
    const locks = createLocks(memoryStore(), {
      reentrant: true,
      minHold: '1h',
      lockDelay: '1h',
      maxWaiting: 1,
    })
    onTestFinished(() => locks.close())
    const limit = createLimit(locks, 'exports', { concurrency: 1, wait: '10s' })
    const nested = limit.run('ada', () => limit.run('ada', () => expect.unreachable()))
    expect(await errorOf(nested)).toMatchObject({ code: 'deadlock', key: 'exports:ada' })
    const tried = await limit.run('ada', () => limit.tryRun('ada', () => expect.unreachable()))
    expect(tried).toEqual({ ran: false, reason: 'concurrency' })
    const calls = Array.from({ length: 4 }, (_, call) => limit.run('ada', async () => call))
    expect(await Promise.all(calls)).toEqual([0, 1, 2, 3])
    expect(await limit.tryRun('ada', () => 'again')).toEqual({ ran: true, value: 'again' })
  })

  test('begins no more within a window than there are points, in order of arrival', async () => {
    const { locks, other } = scene()
    const rate = new RateLimiterMemory({ points: 3, duration: 0.4 })
    const limits = [locks, other].map((one) => createLimit(one, 'exports', { concurrency: 1, rate }))
    const begun: { index: number; afterMs: number }[] = []
    const calledAt = Date.now()
    await Promise.all(
      Array.from({ length: 7 }, (_, index) =>
        limits[index % 2]?.run('ada', () => begun.push({ index, afterMs: Date.now() - calledAt })),
      ),
    )
    expect(begun.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6])
    // A timer of the limiter may be a little early by the wall clock.
    expect(begun[3]?.afterMs).toBeGreaterThanOrEqual(395)
    expect(begun[6]?.afterMs).toBeGreaterThanOrEqual(790)
  })

  test('passes on the error of the work, and has given the slot back', async () => {
    const { locks } = scene()
    const limit = createLimit(locks, 'exports', {
      concurrency: 1,
      rate: new RateLimiterMemory({ points: 9, duration: 60 }),
    })
    const broken = new Error('broken')
    const fail = () => Promise.reject(broken)
    expect(await errorOf(limit.run('ada', fail))).toBe(broken)
    expect(await errorOf(limit.tryRun('ada', fail))).toBe(broken)
    expect(await limit.tryRun('ada', ({ key }) => key)).toEqual({ ran: true, value: 'exports:ada' })
  })
})

describe('a window that is used up', () => {
  test('is an error at once if `wait` ends before its end, and says when to come back', async () => {
    const { locks } = scene()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: new RateLimiterMemory(MINUTE) })
    await limit.run('ada', () => {})
    const error = await errorOf(limit.run('ada', { wait: '20s' }, () => expect.unreachable()))
    expect(error).toMatchObject({ name: 'StartTimeoutError', code: 'start-timeout', key: 'exports:ada' })
    expect(error['waitedMs']).toBeLessThan(20_000)
    expect(error['retryAfterMs']).toBeGreaterThan(20_000)
    expect(error['retryAfterMs']).toBeLessThanOrEqual(60_000)
    expect(error.message).toMatch(
      /^The rate limiter of "ada" lets the next call begin in \d+ ms, and `wait` is 20000 ms\./,
    )
    expect(await limit.run('bob', () => 'another key')).toBe('another key')
  })

  test('is a value for a caller that does not wait', async () => {
    const { locks } = scene()
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate: new RateLimiterMemory(MINUTE) })
    expect(await limit.tryRun('ada', () => 1)).toEqual({ ran: true, value: 1 })
    const refused = await limit.tryRun('ada', () => expect.unreachable())
    expect(refused).toEqual({ ran: false, reason: 'rate', retryAfterMs: expect.any(Number) })
  })

  test('is not waited for where its points never come back', async () => {
    const { locks } = scene()
    const rate = new RateLimiterMemory({ points: 1, duration: 0 })
    const limit = createLimit(locks, 'trial', { concurrency: 1, rate, wait: Number.POSITIVE_INFINITY })
    await limit.run('ada', () => {})
    const error = await errorOf(limit.run('ada', () => expect.unreachable()))
    expect(error).toMatchObject({ code: 'start-timeout', retryAfterMs: undefined })
    expect(error.message).toContain('of "ada" will never let this call begin')
  })

  test('is not waited for, nor counted, where there is no slot', async () => {
    const { locks } = scene()
    const rate = new RateLimiterMemory({ points: 5, duration: 60 })
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate })
    const busy = work()
    const running = limit.run('ada', busy.run)
    await busy.begun
    const error = await errorOf(limit.run('ada', { wait: 50 }, () => expect.unreachable()))
    expect(error).toMatchObject({ code: 'start-timeout', retryAfterMs: undefined })
    expect(await limit.tryRun('ada', () => expect.unreachable())).toMatchObject({ reason: 'concurrency' })
    expect((await rate.get('ada'))?.consumedPoints).toBe(1)
    busy.end()
    await running
  })

  test('is left at once by an abort, and so is the slot, with no listener kept', async () => {
    const { locks, other } = scene()
    const rate = new RateLimiterMemory(MINUTE)
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate, wait: '10m' })
    await limit.run('ada', () => {})
    const { signal, abort } = abortable()
    const first = limit.run('ada', { signal }, () => expect.unreachable())
    const second = limit.run('ada', { signal }, () => expect.unreachable())
    await until('the first waits for the window', async () => (await rate.get('ada'))?.consumedPoints === 2)
    expect(await outcomeOf(first)).toBe('pending')
    const reason = new Error('the client has gone')
    abort(reason)
    expect(await errorOf(first)).toBe(reason)
    expect(await errorOf(second)).toBe(reason)
    expect(getEventListeners(signal, 'abort')).toEqual([])
    expect((await rate.get('ada'))?.consumedPoints).toBe(2)
    expect(await other.semaphore('exports:ada', 1).tryWithPermits(() => 'free')).toMatchObject({
      value: 'free',
    })
  })

  test('ends a wait for a slot with the reason of its signal, also if that is a time-out of something else', async () => {
    const { locks } = scene()
    const limit = createLimit(locks, 'exports', { concurrency: 1 })
    const busy = work()
    const running = limit.run('ada', busy.run)
    await busy.begun
    const { signal, abort } = abortable()
    const waiting = limit.run('ada', { signal }, () => expect.unreachable())
    const reason = new AcquireTimeoutError('The lock of the request was not free.', { waitedMs: 5 })
    abort(reason)
    expect(await errorOf(waiting)).toBe(reason)
    expect(await errorOf(limit.run('ada', { signal }, () => expect.unreachable()))).toBe(reason)
    busy.end()
    await running
  })

  test('is waited for by many calls with one signal, with one listener for all', async () => {
    const { locks } = scene()
    const rate = new RateLimiterMemory(MINUTE)
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate, wait: '10m' })
    const { signal, abort } = abortable()
    const users = Array.from({ length: 30 }, (_, index) => `user:${index}`)
    await Promise.all(users.map((user) => limit.run(user, () => {})))
    const errors = users.map((user) => errorOf(limit.run(user, { signal }, () => expect.unreachable())))
    await until('all wait for the window', async () => {
      const answers = await Promise.all(users.map((user) => rate.get(user)))
      return answers.every((answer) => answer?.consumedPoints === 2)
    })
    await nextTurn()
    expect(getEventListeners(signal, 'abort').length).toBeLessThanOrEqual(2)
    const reason = new Error('SIGTERM')
    abort(reason)
    expect(new Set(await Promise.all(errors))).toEqual(new Set([reason]))
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  test('is not waited for any longer when the slot is lost: another call may have it', async () => {
    const { locks, other } = scene()
    const rate = new RateLimiterMemory(MINUTE)
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate, wait: '10m' })
    await limit.run('ada', () => {})
    const waiting = limit.run('ada', { ttl: '6s' }, () => expect.unreachable())
    waiting.catch(() => {})
    await until('it waits for the window', async () => (await rate.get('ada'))?.consumedPoints === 2)
    await other.evictAll('exports:ada', { reason: 'test' })
    expect(await errorOf(waiting)).toMatchObject({ code: 'lease-lost', reason: 'evicted' })
  })

  test('is not waited for any longer during the question to the limiter, whatever it answers later', async () => {
    const { locks, other } = scene()
    for (const later of ['consumed', 'failed'] as const) {
      let answer = () => {}
      let asked = () => {}
      const isAsked = new Promise<void>((resolve) => {
        asked = resolve
      })
      const consume = () => {
        asked()
        return new Promise((resolve, reject) => {
          answer = later === 'consumed' ? () => resolve({}) : () => reject(new Error('too late'))
        })
      }
      const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { consume } })
      const { signal, abort } = abortable()
      const waiting = limit.run('ada', { signal }, () => expect.unreachable())
      waiting.catch(() => {})
      await isAsked
      const reason = new Error('the client has gone')
      // The abort comes in the very tick of the answer, and behind it.
      if (later === 'consumed') answer()
      abort(reason)
      answer()
      expect(await errorOf(waiting)).toBe(reason)
      expect(await other.semaphore('exports:ada', 1).tryWithPermits(() => 'free')).toMatchObject({
        value: 'free',
      })
    }
  })

  test('never begins the work of a caller that has gone, however late', async () => {
    const { locks } = scene()
    let begun = 0
    let missed = 0
    for (const how of ['run', 'tryRun'] as const) {
      for (let turns = 0; turns < 20; turns += 1) {
        const { signal, abort } = abortable()
        let answer: (value: unknown) => void = () => {}
        const consume = () =>
          new Promise((resolve) => {
            answer = resolve
          })
        const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { consume } })
        const work = () => {
          begun += 1
          if (signal.aborted) missed += 1
        }
        const outcome =
          how === 'run' ? limit.run('ada', { signal }, work) : limit.tryRun('ada', { signal }, work)
        outcome.catch(() => {})
        await until('the limiter is asked', () => answer.length > 0)
        answer({})
        for (let turn = 0; turn < turns; turn += 1) await Promise.resolve()
        abort(new Error('gone'))
        await Promise.allSettled([outcome])
      }
    }
    expect(missed).toBe(0)
    // Some aborts came too late, and some did not.
    expect(begun).toBeGreaterThan(0)
    expect(begun).toBeLessThan(40)
  })

  test('is left when the locks are closed', async () => {
    const locks = createLocks(memoryStore())
    const rate = new RateLimiterMemory(MINUTE)
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate, wait: '10m' })
    await limit.run('ada', () => {})
    const waiting = limit.run('ada', () => expect.unreachable())
    waiting.catch(() => {})
    await until('it waits for the window', async () => (await rate.get('ada'))?.consumedPoints === 2)
    await locks.close()
    expect(await errorOf(waiting)).toMatchObject({ code: 'closed' })
  })

  test('is waited for once more when another call was quicker', async () => {
    const { locks } = scene()
    const rate = new RateLimiterMemory({ points: 1, duration: 0.2 })
    const limit = createLimit(locks, 'exports', { concurrency: 3, rate })
    const begun: string[] = []
    await Promise.all(['a', 'b', 'c'].map((name) => limit.run('ada', () => begun.push(name))))
    expect(begun.sort()).toEqual(['a', 'b', 'c'])
  })

  test('may be asked for more than one point', async () => {
    const { locks } = scene()
    const rate = new RateLimiterMemory({ points: 5, duration: 60 })
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate })
    expect(await limit.tryRun('ada', { points: 4 }, () => 1)).toMatchObject({ ran: true })
    expect(await limit.tryRun('ada', { points: 2 }, () => 1)).toMatchObject({ ran: false, reason: 'rate' })
    expect(await errorOf(limit.run('ada', { points: 6 }, () => 1))).toMatchObject({
      message: 'Expected `points` to be a whole number from 1 to 5, got 6.',
    })
  })

  test('may be that of several limiters: the longest refusal counts', async () => {
    const { locks } = scene()
    const rate = new RateLimiterUnion(
      new RateLimiterMemory({ keyPrefix: 'second', points: 1, duration: 1 }),
      new RateLimiterMemory({ keyPrefix: 'hour', points: 1, duration: 3600 }),
    )
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate })
    expect(await limit.tryRun('ada', () => 1)).toMatchObject({ ran: true })
    const refused = await limit.tryRun('ada', () => expect.unreachable())
    expect(refused).toMatchObject({ ran: false, reason: 'rate' })
    expect((refused as { retryAfterMs: number }).retryAfterMs).toBeGreaterThan(1000)
  })

  test('may be that of a list of those who are never let in', async () => {
    const { locks } = scene()
    const rate = new RLWrapperBlackAndWhite({
      limiter: new RateLimiterMemory(MINUTE),
      blackList: ['mallory'],
    })
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate, wait: '24h' })
    const error = await errorOf(limit.run('mallory', () => expect.unreachable()))
    expect(error).toMatchObject({ code: 'start-timeout', retryAfterMs: undefined })
    expect(error.message).toContain('of "mallory" will never let this call begin')
    expect(await limit.tryRun('mallory', () => expect.unreachable())).toEqual({
      ran: false,
      reason: 'rate',
      retryAfterMs: undefined,
    })
  })

  test('gives the slot back whatever it answers', async () => {
    const { locks, other } = scene()
    const answers: (() => Promise<unknown>)[] = [
      () => Promise.reject({ msBeforeNext: Number.NaN }),
      () => Promise.reject({ msBeforeNext: '5' }),
      () => Promise.reject(undefined),
      () => Promise.reject({}),
      () => Promise.reject('down'),
      () => {
        throw new Error('at once')
      },
    ]
    for (const consume of answers) {
      const limit = createLimit(locks, 'exports', { concurrency: 1, rate: { consume } })
      const error = await errorOf(limit.run('ada', { wait: '20s' }, () => expect.unreachable()))
      expect(error['code']).toMatch(/^(start-timeout|store-unavailable)$/)
      expect(await other.semaphore('exports:ada', 1).tryWithPermits(() => 'free')).toMatchObject({
        value: 'free',
      })
    }
  })
})

describe('over servers', () => {
  test('counts slots and points of all processes', async () => {
    await using server = await startRedis()
    const clients = [new Redis(server.url), new Redis(server.url)]
    onTestFinished(() => {
      for (const client of clients) client.disconnect()
    })
    const processes = clients.map((client) => {
      const locks = createLocks(redisStore(client))
      const rate = new RateLimiterRedis({ storeClient: client, points: 4, duration: 1 })
      return { locks, limit: createLimit(locks, 'exports', { concurrency: 2, rate }) }
    })
    let [running, most] = [0, 0]
    const begun: number[] = []
    const calledAt = Date.now()
    await Promise.all(
      Array.from({ length: 10 }, (_, index) =>
        processes[index % 2]?.limit.run('ada', async () => {
          begun.push(Date.now() - calledAt)
          running += 1
          most = Math.max(most, running)
          await new Promise((resolve) => setTimeout(resolve, 1))
          running -= 1
        }),
      ),
    )
    expect(most).toBeLessThanOrEqual(2)
    // The server takes the time once for everything that it does in one step.
    expect(begun[4]).toBeGreaterThanOrEqual(990)
    expect(begun[8]).toBeGreaterThanOrEqual(1980)
    for (const { locks } of processes) await locks.close()
  })

  test('a limiter whose store is away or hangs is an error that says so, and the slot is free', async () => {
    const { locks } = scene()
    await using server = await startRedis()
    const storeClient = new Redis(server.url, { maxRetriesPerRequest: 0 })
    storeClient.on('error', () => {})
    onTestFinished(() => storeClient.disconnect())
    const rate = new RateLimiterRedis({ storeClient, points: 9, duration: 60 })
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate })
    await limit.run('ada', () => {})
    await server.pause()
    const late = await errorOf(limit.run('ada', { wait: 100 }, () => expect.unreachable()))
    expect(late).toMatchObject({ name: 'StoreError', code: 'store-unavailable', key: 'exports:ada' })
    expect(late.message).toBe(
      'The rate limiter did not answer in time, so the work under "exports:ada" was not begun. Check its store, or give it an `insuranceLimiter`.',
    )
    server.resume()
    await until('it answers again', () => limit.run('ada', () => true))
    await server.kill()
    const failed = await errorOf(limit.run('ada', () => expect.unreachable()))
    expect(failed).toMatchObject({ code: 'store-unavailable', cause: expect.any(Error) })
    expect(failed.message).toMatch(/^The rate limiter failed, so/)
    expect(await errorOf(limit.tryRun('ada', () => expect.unreachable()))).toMatchObject({
      code: 'store-unavailable',
    })
  })

  test('a limiter with an insurance goes on without its store, and so does the limit', async () => {
    const { locks } = scene()
    const storeClient = new Redis({ port: await freePort(), maxRetriesPerRequest: 0, lazyConnect: true })
    storeClient.on('error', () => {})
    onTestFinished(() => storeClient.disconnect())
    const insuranceLimiter = new RateLimiterMemory({ points: 1, duration: 60 })
    const rate = new RateLimiterRedis({ storeClient, points: 9, duration: 60, insuranceLimiter })
    const limit = createLimit(locks, 'exports', { concurrency: 1, rate })
    expect(await limit.run('ada', () => 'insured')).toBe('insured')
    expect(await limit.tryRun('ada', () => expect.unreachable())).toMatchObject({
      ran: false,
      reason: 'rate',
    })
  })

  test('on a quorum one at a time is possible, and more are refused', async () => {
    await using masters = await startMasters(3)
    await using locks = createLocks(masters.store())
    const rate = new RateLimiterMemory({ points: 9, duration: 60 })
    expect(await createLimit(locks, 'exports', { concurrency: 1, rate }).run('ada', () => 'ran')).toBe('ran')
    const two = createLimit(locks, 'exports', { concurrency: 2, rate })
    expect(await errorOf(two.run('ada', () => expect.unreachable()))).toMatchObject({
      message: expect.stringContaining('got a semaphore'),
    })
    expect((await rate.get('ada'))?.consumedPoints).toBe(1)
  })
})

describe('bad input', () => {
  const locks = createLocks(memoryStore())
  const rate = new RateLimiterMemory(MINUTE)
  const make = (options: unknown, name: unknown = 'n', over: unknown = locks) =>
    createLimit(over as Locks, name as string, options as never)

  test.each<[string, () => unknown]>([
    ['`locks` to be what createLocks or connect returns, got an object (Object)', () => make({}, 'n', {})],
    ['`name` to be a string of 1 to 200 characters, got ""', () => make({ concurrency: 1 }, '')],
    ['the options to be an object, got undefined', () => createLimit(locks, 'n', undefined as never)],
    ['the options to be an object, got an array of 0', () => make([])],
    ['the options to be among `concurrency`, `rate`, `wait`, got `points`', () => make({ points: 5 })],
    ['`concurrency` to be a whole number from 1 to 1000000, got undefined', () => make({ rate })],
    ['`concurrency` to be a whole number from 1 to 1000000, got 0', () => make({ concurrency: 0 })],
    [
      "`rate` to be { points, window } such as { points: 10, window: '1m' }, or a limiter of rate-limiter-flexible, got an object (Object)",
      () => make({ concurrency: 1, rate: { points: 5, duration: 1 } }),
    ],
    [
      '`points` to be a whole number from 1 to 1000, got 1001',
      () => make({ concurrency: 1, rate: { points: 1001, window: '1m' } }),
    ],
    [
      '`window` to be a duration from 50 ms',
      () => make({ concurrency: 1, rate: { points: 1, window: 'day' } }),
    ],
    [
      'the options to be among `points`, `window`, got `duration`',
      () => make({ concurrency: 1, rate: { points: 1, window: '1m', duration: 1 } }),
    ],
    ['`wait` to be a duration from 0 ms to 24 days', () => make({ concurrency: 1, wait: 'soon' })],
    [
      '`key` to be a string with at least one character, got ""',
      () => make({ concurrency: 1 }).run('', () => 1),
    ],
    [
      '`key` to be a string with at least one character, got 42',
      () => make({ concurrency: 1 }).run(42 as never, () => 1),
    ],
    [
      '`key` to have at most 1016 characters, got 1017.',
      () => make({ concurrency: 1 }, 'exports').run('x'.repeat(1017), () => 1),
    ],
    ['`key` to be text without NUL', () => make({ concurrency: 1 }).run('\0', () => 1)],
    ['`work` to be a function, got undefined', () => make({ concurrency: 1 }).run('k', undefined as never)],
    ['`work` to be a function, got "k"', () => make({ concurrency: 1 }).tryRun('k', 'k' as never)],
    [
      '`points` to be left out where the limit has no `rate`, got 2',
      () => make({ concurrency: 1 }).run('k', { points: 2 }, () => 1),
    ],
    [
      '`points` to be a whole number from 1 to 1, got -1',
      () => make({ concurrency: 1, rate }).run('k', { points: -1 }, () => 1),
    ],
    [
      'the options to be among `ttl`, `renew`, `maxHold`, `signal`, `points`, got `wait`',
      () => make({ concurrency: 1 }).tryRun('k', { wait: 1 } as never, () => 1),
    ],
    [
      '`signal` to be an AbortSignal',
      () => make({ concurrency: 1 }).run('k', { signal: 'now' as never }, () => 1),
    ],
    ['`ttl` to be a duration from 50 ms', () => make({ concurrency: 1 }).run('k', { ttl: 1 }, () => 1)],
  ])('expected %s', async (message, call) => {
    const error = await errorOf(Promise.resolve().then(call))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toContain(`Expected ${message}`)
  })
})

function abortable(): { signal: AbortSignal; abort: (reason: Error) => void } {
  const controller = new AbortController()
  return { signal: controller.signal, abort: (reason) => controller.abort(reason) }
}
