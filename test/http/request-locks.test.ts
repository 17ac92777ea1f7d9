import { getEventListeners, once } from 'node:events'
import { connect as connectHttp2, createServer as createHttp2 } from 'node:http2'
import { type AddressInfo, connect as connectTcp } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import { asHttpError, createRequestLocks, openServerLocks, requestSignal } from '../../src/http/index.ts'
import {
  AcquireTimeoutError,
  ClosedError,
  ConflictError,
  createLocks,
  DeadlockError,
  type HoldfastError,
  LeaseLostError,
  type Locks,
  QueueFullError,
  StaleFenceError,
  StartTimeoutError,
  StoreError,
} from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { block } from '../engine/block.ts'
import { errorOf, outcomeOf } from '../engine/scene.ts'
import { Letter, ScriptedStore } from '../engine/scripted-store.ts'
import { until } from '../servers/until.ts'
import { aborted, call, gate, roomsOf, serve, twoProcesses, untilRooms } from './scene.ts'

describe('a lock for a request', () => {
  test('is held while the work runs, and the answer is the work’s', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const { url } = await serve(async (_, response) => {
      const rooms = await requests.withLock(response, 'pay', () => roomsOf(other))
      response.end(rooms.join())
    })
    expect(await (await call(url).answer).text()).toBe('pay: 1 + 0')
    expect(await roomsOf(other)).toEqual([])
  })

  test('does not begin when the event loop stood still between the grant and the work', async () => {
    const { locks } = twoProcesses()
    const requests = createRequestLocks(locks)
    onTestFinished(locks.on('working', () => block(60)))
    const { url } = await serve(async (_, response) => {
      const error = await errorOf(requests.withLock(response, 'pay', { ttl: 60 }, () => expect.unreachable()))
      response.end(String(error['code']))
    })
    expect(await (await call(url).answer).text()).toBe('lease-lost')
  })

  test('gives up its place in the queue when the client hangs up, and the work does not run', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const held = await other.acquire('pay')
    const failed = gate<Error>()
    const { url } = await serve(async (_, response) => {
      failed.open(await errorOf(requests.withLock(response, 'pay', () => expect.unreachable())))
    })
    const { hangUp } = call(url, { method: 'POST', body: 'a body that is read' })
    await untilRooms(other, 'pay: 1 + 1')
    hangUp()
    expect(await failed.opened).toMatchObject({ name: 'AbortError', statusCode: 499 })
    await untilRooms(other, 'pay: 1 + 0')
    await held.release()
  })

  test('gives up the places of all requests that a client has pipelined', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const warnings: Error[] = []
    const onWarning = (warning: Error) => warnings.push(warning)
    process.on('warning', onWarning)
    onTestFinished(() => void process.off('warning', onWarning))
    const held = await other.acquire('pay')
    const { url } = await serve((_, response) =>
      requests.withLock(response, 'pay', () => expect.unreachable()),
    )
    const client = connectTcp(Number(new URL(url).port), '127.0.0.1')
    client.write('GET / HTTP/1.1\r\nhost: localhost\r\n\r\n'.repeat(20))
    await untilRooms(other, 'pay: 1 + 20')
    client.destroy()
    await untilRooms(other, 'pay: 1 + 0')
    await held.release()
    expect(warnings).toEqual([])
  })

  test('is not given up by a pipelined request whose turn comes', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const { url } = await serve(async (request, response) => {
      const work = () => new Promise<void>((resolve) => setTimeout(resolve, 5))
      await requests.withLock(response, 'pay', work)
      response.end(request.url)
    })
    const client = connectTcp(Number(new URL(url).port), '127.0.0.1')
    const last = 'GET /last HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n'
    client.write(`${'GET / HTTP/1.1\r\nhost: localhost\r\n\r\n'.repeat(5)}${last}`)
    const answers = String(Buffer.concat(await client.toArray()))
    expect(answers.match(/HTTP\/1.1 200 OK/g)).toHaveLength(6)
    expect(answers).toMatch(/\/last/)
    expect(await roomsOf(other)).toEqual([])
  })

  test('tells the work when the client hangs up, and is released when the work has ended, not before', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const begun = gate()
    const end = gate()
    const told = gate<Error>()
    const settled = gate<unknown>()
    const { url } = await serve(async (_, response) => {
      const outcome = requests.withLock(response, 'pay', async (lease, { signal }) => {
        signal.addEventListener('abort', () => told.open(signal.reason))
        begun.open()
        await end.opened
        return lease.signal.aborted
      })
      outcome.then(settled.open, settled.open)
      await outcome
    })
    const { hangUp } = call(url)
    await begun.opened
    hangUp()
    expect(await told.opened).toMatchObject({ name: 'AbortError' })
    expect(await roomsOf(other)).toEqual(['pay: 1 + 0'])
    end.open()
    // The lease itself was held all the time.
    expect(await settled.opened).toBe(false)
    await untilRooms(other)
  })

  test('does not abort because the answer was given while the work goes on', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const answered = gate()
    const ended = gate<boolean>()
    const { url } = await serve(async (_, response) => {
      response.on('close', answered.open)
      await requests.withLock(response, 'pay', async (_, { signal }) => {
        response.end('accepted')
        await answered.opened
        await untilRooms(other, 'pay: 1 + 0')
        ended.open(signal.aborted)
      })
    })
    expect(await (await call(url).answer).text()).toBe('accepted')
    expect(await ended.opened).toBe(false)
  })

  test('is not asked for when the client has gone before', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const arrived = gate()
    const failed = gate<Error>()
    const { url } = await serve(async (_, response) => {
      arrived.open()
      await once(response, 'close')
      failed.open(await errorOf(requests.withLock(response, 'pay', () => expect.unreachable())))
    })
    const { hangUp } = call(url)
    await arrived.opened
    hangUp()
    expect(await failed.opened).toMatchObject({ name: 'AbortError' })
    expect(await roomsOf(other)).toEqual([])
  })

  test('is not asked for when the client of a pipelined request has gone before', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const arrived = gate()
    const failed = gate<Error>()
    const { url } = await serve(async (request, response) => {
      if (request.url === '/first') return
      arrived.open()
      await once(request.socket, 'close')
      failed.open(await errorOf(requests.withLock(response, 'pay', () => expect.unreachable())))
    })
    const client = connectTcp(Number(new URL(url).port), '127.0.0.1')
    client.write('GET /first HTTP/1.1\r\nhost: a\r\n\r\nGET /second HTTP/1.1\r\nhost: a\r\n\r\n')
    await arrived.opened
    client.destroy()
    expect(await failed.opened).toMatchObject({ name: 'AbortError' })
    expect(await roomsOf(other)).toEqual([])
  })

  test('tells the work when the lease is lost', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const { url } = await serve((_, response) =>
      requests.withLock(response, 'pay', { ttl: 500 }, async (_, { signal }) => {
        await other.evictAll('pay', { reason: 'test' })
        return aborted(signal)
      }),
    )
    const response = await call(url).answer
    expect(response.status).toBe(500)
    expect(await response.text()).toContain('"pay"')
  })

  test('is had over HTTP/2 as well, and ends with its stream', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const begun = gate()
    const told = gate<Error>()
    const late = gate<Error>()
    let arrivals = 0
    const server = createHttp2(async (request, response) => {
      arrivals += 1
      if (request.url === '/late') {
        await once(response, 'close')
        late.open(await errorOf(requests.withLock(response, 'pay', () => expect.unreachable())))
        return
      }
      requests
        .withLock(response, 'pay', async (_, { signal }) => {
          if (request.url === '/quick') return 'quick'
          begun.open()
          return aborted(signal)
        })
        .then((text) => response.end(text), told.open)
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const session = connectHttp2(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    onTestFinished(() => {
      session.destroy()
      server.close()
    })
    const quick = session.request({ ':path': '/quick' })
    expect(String(await quick.toArray())).toBe('quick')
    const slow = session.request({ ':path': '/slow' })
    slow.on('error', () => {})
    await begun.opened
    slow.close(8)
    expect(await told.opened).toMatchObject({ name: 'AbortError' })
    await untilRooms(other)
    const gone = session.request({ ':path': '/late' })
    gone.on('error', () => {})
    await until('it has arrived', () => arrivals === 3)
    gone.close(8)
    expect(await late.opened).toMatchObject({ name: 'AbortError' })
  })

  test('may be for no request at all, and ends its wait by a signal of one’s own', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const shutdown = new AbortController()
    const { signal } = shutdown
    expect(await requests.withLock(undefined, 'pay', undefined, (lease) => lease.key)).toBe('pay')
    const held = await other.acquire('pay')
    const waiting = requests.withLock(undefined, 'pay', { signal }, () => expect.unreachable())
    const during = requests.withLock(signal, 'pay', () => expect.unreachable())
    await untilRooms(other, 'pay: 1 + 2')
    const reason = new Error('SIGTERM')
    shutdown.abort(reason)
    expect(await errorOf(waiting)).toBe(reason)
    expect(await errorOf(during)).toBe(reason)
    expect(await errorOf(requests.withLock(signal, 'pay', () => expect.unreachable()))).toBe(reason)
    expect(getEventListeners(signal, 'abort')).toEqual([])
    await held.release()
  })

  test('never begins the work of a client that has gone, however late it went', async () => {
    const store = new ScriptedStore(memoryStore())
    const locks = createLocks(store)
    onTestFinished(() => locks.close())
    const requests = createRequestLocks(locks)
    let begun = 0
    let inVain = 0
    for (let turns = 0; turns < 20; turns += 1) {
      const client = new AbortController()
      const granted = new Letter()
      store.next('acquire', granted)
      const outcome = requests.withLock(client.signal, 'pay', () => {
        begun += 1
        if (client.signal.aborted) inVain += 1
      })
      outcome.catch(() => {})
      await until('it was asked', () => store.sent.length > 0)
      granted.arrive().reply()
      for (let turn = 0; turn < turns; turn += 1) await Promise.resolve()
      client.abort(new Error('gone'))
      await Promise.allSettled([outcome])
      store.sent.length = 0
      await until('it is free', async () => (await roomsOf(locks)).length === 0)
    }
    expect(inVain).toBe(0)
    // Some aborts came too late, and some did not.
    expect(begun).toBeGreaterThan(0)
    expect(begun).toBeLessThan(20)
  })

  test('may be one of many for the same request, and warns of nothing', async () => {
    const { locks } = twoProcesses()
    const requests = createRequestLocks(locks)
    const warnings: Error[] = []
    const onWarning = (warning: Error) => warnings.push(warning)
    process.on('warning', onWarning)
    onTestFinished(() => void process.off('warning', onWarning))
    const { signal } = new AbortController()
    const { url } = await serve(async (_, response) => {
      for (const during of [response, signal, undefined]) {
        await requests.withLock(during, 'outer', async () => {
          for (let turn = 0; turn < 12; turn += 1) {
            await requests.withLock(during, `pay:${turn}`, () => {})
            await requests.withLock(during, 'outer', { reentrant: true }, () => {})
          }
        })
      }
      response.end('done')
    })
    expect(await (await call(url).answer).text()).toBe('done')
    expect(warnings).toEqual([])
  })

  test('listens once to a signal that many calls have, such as a shutdown signal', async () => {
    const { locks, other } = twoProcesses()
    const requests = createRequestLocks(locks)
    const shutdown = new AbortController()
    const { signal } = shutdown
    const held = await other.acquire('pay')
    const outcomes = Array.from({ length: 30 }, (_, index) =>
      requests.withLock(index % 2 === 0 ? signal : new AbortController().signal, 'pay', { signal }, () =>
        expect.unreachable(),
      ),
    ).map(errorOf)
    await untilRooms(other, 'pay: 1 + 30')
    // One listener is that of createRequestLocks, and one is the engine's.
    expect(getEventListeners(signal, 'abort').length).toBeLessThanOrEqual(2)
    shutdown.abort(new Error('SIGTERM'))
    expect(new Set((await Promise.all(outcomes)).map(({ message }) => message))).toEqual(new Set(['SIGTERM']))
    await held.release()
  })

  test('keeps nothing on a signal that outlives it, whatever the work has left on its own', async () => {
    const { locks } = twoProcesses()
    const requests = createRequestLocks(locks)
    const shutdown = new AbortController()
    const { signal } = shutdown
    const told: unknown[] = []
    for (const during of [undefined, signal]) {
      await requests.withLock(during, 'pay', { signal }, (_, work) => {
        work.signal.addEventListener('abort', () => told.push(work.signal.reason))
      })
    }
    expect(getEventListeners(signal, 'abort')).toEqual([])
    // AbortSignal.any keeps nothing either. No list of listeners shows it.
    shutdown.abort()
    expect(told).toEqual([])
  })

  test('tells the work that was left behind that the client has gone, as long as the answer is not complete', async () => {
    const { locks } = twoProcesses()
    const requests = createRequestLocks(locks)
    const told = gate<unknown>()
    const streaming = gate()
    const { url } = await serve(async (_, response) => {
      await requests.withLock(response, 'pay', (_, { signal }) => {
        signal.addEventListener('abort', () => told.open(signal.reason))
      })
      response.write('the first part')
      streaming.open()
    })
    const { hangUp } = call(url)
    await streaming.opened
    hangUp()
    expect(await told.opened).toMatchObject({ name: 'AbortError' })
  })
})

test('a server that shuts down rejects the waits, and lets requests finish that have their lock', async () => {
  const { locks, other } = twoProcesses()
  const requests = createRequestLocks(locks)
  const begun = gate()
  const end = gate()
  const { url } = await serve(async (request, response) => {
    const work = async () => {
      begun.open()
      await end.opened
      return 'done'
    }
    response.end(
      await requests.withLock(response, request.url ?? '', { wait: Number.POSITIVE_INFINITY }, work),
    )
  })
  const holding = call(`${url}/a`).answer
  await begun.opened
  const waiting = call(`${url}/a`).answer
  await untilRooms(other, '/a: 1 + 1')
  void requests.close()
  expect((await waiting).status).toBe(503)
  expect((await call(`${url}/b`).answer).status).toBe(503)
  expect(await outcomeOf(holding)).toBe('pending')
  // Work that tidies up at a shutdown belongs to no request.
  expect(await requests.withLock(undefined, 'tidy', (lease) => lease.key)).toBe('tidy')
  end.open()
  expect(await (await holding).text()).toBe('done')
})

test('a request that works while the server shuts down may take further keys, and may wait for them', async () => {
  const { locks, other } = twoProcesses()
  const requests = createRequestLocks(locks)
  const begun = gate()
  const end = gate()
  const { url } = await serve(async (_, response) => {
    const work = async (): Promise<string> => {
      begun.open()
      await end.opened
      return requests.withLock(response, 'invoice', (lease) => lease.key)
    }
    const before = await requests.withLock(response, 'order', work)
    const error = await errorOf(requests.withLock(response, 'later', () => expect.unreachable()))
    response.end(`${before} ${error['code']}`)
  })
  const held = await other.acquire('invoice')
  const answer = call(url).answer
  await begun.opened
  const closed = requests.close()
  end.open()
  await untilRooms(other, 'invoice: 1 + 1', 'order: 1 + 0')
  await held.release()
  expect(await (await answer).text()).toBe('invoice closed')
  await closed
})

test('a server knows when the work of all its requests has ended, also of clients that have gone', async () => {
  const { locks, other } = twoProcesses()
  const requests = createRequestLocks(locks)
  const begun = gate()
  const end = gate()
  const { url } = await serve((_, response) =>
    requests.withLock(response, 'pay', async () => {
      begun.open()
      await end.opened
      throw new Error('that fails')
    }),
  )
  const { hangUp } = call(url)
  await begun.opened
  hangUp()
  // `close` does not wait for a lock that belongs to no request. It may be there for as long as the locks are.
  const forever = requests.withLock(undefined, 'leader', (lease) => aborted(lease.signal))
  forever.catch(() => {})
  const closed = requests.close()
  expect(await outcomeOf(closed)).toBe('pending')
  end.open()
  await closed
  await requests.close()
  expect(await roomsOf(other)).toEqual(['leader: 1 + 0'])
  await locks.close()
})

test('a request has one signal, however often it is asked for', async () => {
  const { url } = await serve(async (_, response) => {
    const signals = [requestSignal(response), requestSignal(response)]
    response.end(String(signals[0] === signals[1] && response.listenerCount('close')))
  })
  const before = Number(await (await call(url).answer).text())
  expect(before).toBeGreaterThanOrEqual(1)
})

describe('errors', () => {
  test.each<[HoldfastError, number | undefined, string | undefined]>([
    [new AcquireTimeoutError('m', { waitedMs: 5 }), 409, undefined],
    [new StartTimeoutError('m', { waitedMs: 5 }), 429, undefined],
    [new StartTimeoutError('m', { waitedMs: 5, retryAfterMs: 1001 }), 429, '2'],
    [new ConflictError('m'), 409, undefined],
    [new StaleFenceError('m'), 409, undefined],
    [new StoreError('store-unavailable', 'm'), 503, '1'],
    [new ClosedError('m'), 503, '1'],
    [new QueueFullError('m'), 503, '1'],
    [new StoreError('store-refused', 'm'), undefined, undefined],
    [new LeaseLostError('m', { reason: 'expired' }), undefined, undefined],
    [new DeadlockError('m'), undefined, undefined],
  ])('%s is answered with %s', (error, statusCode, retryAfter) => {
    expect(asHttpError(error)).toBe(error)
    const fields = error as { statusCode?: number; headers?: Record<string, string> }
    expect(fields.statusCode).toBe(statusCode)
    expect(fields.headers?.['retry-after']).toBe(retryAfter)
  })

  test('that are not ours, or have their status, are left alone', () => {
    const foreign = new Error('m')
    expect(asHttpError(foreign)).toBe(foreign)
    expect('statusCode' in foreign).toBe(false)
    expect(asHttpError(undefined)).toBe(undefined)
    const known = Object.assign(new StaleFenceError('m'), { statusCode: 412 })
    expect(asHttpError(known).statusCode).toBe(412)
    // Express and Koa read `status` instead.
    const status = Object.assign(new StaleFenceError('m'), { status: 412 })
    expect(asHttpError(status)).toEqual(Object.assign(new StaleFenceError('m'), { status: 412 }))
    const frozen = Object.freeze(new StaleFenceError('m'))
    expect(asHttpError(frozen)).toBe(frozen)
  })

  test('may have other statuses', async () => {
    const { locks, other } = twoProcesses()
    const held = await other.acquire('pay')
    const requests = createRequestLocks(locks, { statusCodes: { 'acquire-timeout': 423 } })
    expect(await errorOf(requests.withLock(undefined, 'pay', { wait: 0 }, () => 1))).toMatchObject({
      statusCode: 423,
      headers: {},
    })
    await held.release()
  })
})

describe('bad input', () => {
  const locks = createLocks(memoryStore())
  const requests = createRequestLocks(locks)

  test.each<[string, () => unknown]>([
    [
      '`locks` to be what createLocks or connect returns, got undefined',
      () => createRequestLocks(undefined as never),
    ],
    ['the options to be an object, got null', () => createRequestLocks(locks, null as never)],
    [
      'the options to be among `statusCodes`, got `statuscodes`',
      () => createRequestLocks(locks, { statuscodes: {} } as never),
    ],
    ['`statusCodes` to be an object such as', () => createRequestLocks(locks, { statusCodes: 423 as never })],
    [
      "`statusCodes` to have codes of Holdfast's errors, got `acquire-timout`",
      () => createRequestLocks(locks, { statusCodes: { 'acquire-timout': 423 } as never }),
    ],
    ["`statusCodes['closed']` to be a whole number", () => asHttpError(new Error('m'), { closed: 5 })],
    ['`response` to be the response of a request, got undefined', () => requestSignal(undefined as never)],
    [
      '`response` to be the response of a request, got an object (AbortSignal)',
      () => requestSignal(new AbortController().signal as never),
    ],
    ['the options to be an object, got undefined', () => openServerLocks(undefined as never)],
    [
      "`statusCodes['closed']` to be a whole number from 400 to 599, got 200",
      () => createRequestLocks(locks, { statusCodes: { closed: 200 } }),
    ],
    [
      '`during` to be the response of a request, an AbortSignal or undefined, got an object (Object)',
      () => requests.withLock({} as never, 'k', () => 1),
    ],
    ['`work` to be a function, got undefined', () => requests.withLock(undefined, 'k', undefined as never)],
    [
      'the options to be an object, got "2s"',
      () => requests.withLock(undefined, 'k', '2s' as never, () => 1),
    ],
    [
      '`signal` to be an AbortSignal, got 5',
      () => requests.withLock(undefined, 'k', { signal: 5 as never }, () => 1),
    ],
    ['`key` to be a string', () => requests.withLock(undefined, undefined as never, () => 1)],
    ['`wait` to be a duration', () => requests.withLock(undefined, 'k', { wait: 'soon' }, () => 1)],
  ])('expected %s', async (message, make) => {
    const error = await errorOf(Promise.resolve().then(make))
    expect(error).toMatchObject({ code: 'invalid-argument' })
    expect(error.message).toContain(`Expected ${message}`)
  })

  test('leaves nothing waiting', async () => {
    await until('nothing waits', async () => (await roomsOf(locks as Locks)).length === 0)
  })
})
