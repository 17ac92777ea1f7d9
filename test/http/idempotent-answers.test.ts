import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gunzipSync, gzipSync } from 'node:zlib'
import { describe, expect, onTestFinished, test } from 'vitest'
import {
  createRequestLocks,
  type IdempotencyOptions,
  type IncomingRequest,
  type RequestLocks,
  requestIdempotency,
} from '../../src/http/index.ts'
import { ClosedError, createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { until } from '../servers/until.ts'
import { gate, roomsOf } from './scene.ts'

interface Scene {
  readonly url: string
  readonly store: ScriptedStore
  readonly locks: Locks
  readonly requests: RequestLocks
  /** What `onError` was told. */
  readonly errors: unknown[]
}

/** A bare server whose handler writes to the response itself. */
async function serve(
  handler: (request: IncomingRequest, response: ServerResponse) => unknown,
  options: Partial<IdempotencyOptions> = {},
): Promise<Scene> {
  const store = new ScriptedStore(memoryStore())
  const locks = createLocks(store)
  const requests = createRequestLocks(locks)
  const errors: unknown[] = []
  const onError = (error: unknown) => errors.push(error)
  const idempotent = requests.idempotent({ remember: '1h', scope: () => 'ada', onError, ...options })
  const server = createServer((request, response) => {
    const error = (problem: Error & { statusCode?: number }) =>
      response.writeHead(problem.statusCode ?? 500).end(problem.message)
    idempotent(request, response, (problem) =>
      problem === undefined ? handler(request, response) : error(problem),
    )
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(async () => {
    server.closeAllConnections()
    server.close()
    await locks.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, store, locks, requests, errors }
}

const post = (url: string, signal?: AbortSignal) =>
  fetch(url, {
    method: 'POST',
    headers: { 'idempotency-key': 'k' },
    ...(signal === undefined ? {} : { signal }),
  })

describe('the first answer', () => {
  test('is kept as it was, whole, in parts, as bytes, empty, and with headers in any form', async () => {
    const bytes = gzipSync('compressed before')
    const answers: ((response: ServerResponse) => void)[] = [
      (response) => response.end('whole'),
      (response) => {
        response.write('in ')
        response.write(Buffer.from('two '))
        response.end('parts')
      },
      (response) => response.writeHead(200, { 'Content-Encoding': 'gzip', 'X-List': ['a', 'b'] }).end(bytes),
      (response) => response.writeHead(204).end(),
      (response) => response.writeHead(201, 'Made', ['X-Id', '7', 'X-More', 'yes']).end('6d61646520', 'hex'),
      (response) => response.writeHead(201, ['Link', 'a', 'X-Id', '7', 'link', 'b']).end('made'),
      (response) => response.end('\u0000 ü € 😀 \ufeff'),
    ]
    for (const answer of answers) {
      const { url } = await serve((_, response) => answer(response))
      const [first, second] = [await post(url), await post(url)]
      const kept = (response: Response) =>
        [...response.headers].filter(
          ([name]) => !['date', 'idempotent-replayed', 'transfer-encoding', 'content-length'].includes(name),
        )
      expect(second.status).toBe(first.status)
      expect(kept(second)).toEqual(kept(first))
      expect(Buffer.from(await second.arrayBuffer())).toEqual(Buffer.from(await first.arrayBuffer()))
      expect(second.headers.get('idempotent-replayed')).toBe('true')
    }
    expect(String(gunzipSync(bytes))).toBe('compressed before')
  })

  test('is the error that the handler throws before it waits for anything, without a framework', async () => {
    let runs = 0
    const { url, errors } = await serve(() => {
      runs += 1
      if (runs === 1) throw Object.assign(new Error('no funds'), { statusCode: 402 })
      throw new ClosedError('closed')
    })
    const [first, second] = [await post(url), await post(url)]
    expect([first.status, await first.text()]).toEqual([402, 'no funds'])
    expect([second.status, await second.text()]).toEqual([503, 'closed'])
    expect(errors).toEqual([])
  })

  test('is the error that the handler throws, also for a request without a key', async () => {
    const { url } = await serve(() => {
      throw Object.assign(new Error('no funds'), { statusCode: 402 })
    })
    const answer = await fetch(url, { method: 'POST' })
    expect([answer.status, await answer.text()]).toEqual([402, 'no funds'])
  })

  test.each<[string, (response: ServerResponse) => unknown]>([
    ['an invalid status', (response) => Object.assign(response, { statusCode: 1000 }).end('paid')],
    ['an invalid status before a part', (response) => Object.assign(response, { statusCode: 99 }).write('p')],
    ['an invalid head', (response) => response.writeHead(1000, { 'Content-Length': 4 }).end('paid')],
    [
      'an invalid reason',
      (response) => Object.assign(response, { statusCode: 200, statusMessage: 'a\nb' }).end('paid'),
    ],
  ])('is the error page if the handler answers with %s', async (_, answer) => {
    let runs = 0
    const { url, errors } = await serve((_, response) => {
      runs += 1
      try {
        answer(response)
      } catch (error) {
        Object.assign(response, { statusCode: 500, statusMessage: '' }).end(String(error))
      }
    })
    for (const run of [1, 2]) {
      const page = await post(url, AbortSignal.timeout(20_000))
      expect([page.status, await page.text(), runs]).toEqual([500, expect.stringContaining('nvalid'), run])
    }
    expect(errors).toEqual([])
  })

  test('is compressed if it is long', async () => {
    const orders = JSON.stringify(
      Array.from({ length: 600 }, (_, id) => ({ id, state: 'shipped', city: 'Köln' })),
    )
    const { url, errors } = await serve((_, response) => response.end(orders))
    await post(url)
    expect(await (await post(url)).text()).toBe(orders)
    expect(orders.length).toBeGreaterThan(20_000)
    expect(errors).toEqual([])
  })

  test.each([
    ['that nothing compresses', 9_000],
    ['that is sent while it is written', 300_000],
  ])('of a length %s is sent, and its repetition is refused', async (_, length) => {
    const long = Buffer.from(Array.from({ length }, () => Math.random() * 256))
    let runs = 0
    const { url, errors } = await serve(async (_, response) => {
      runs += 1
      for (let at = 0; at < length; at += 10_000) response.write(long.subarray(at, at + 10_000))
      response.end()
    })
    expect(Buffer.from(await (await post(url)).arrayBuffer()).equals(long)).toBe(true)
    const again = await post(url)
    expect([again.status, await again.text()]).toEqual([410, expect.stringContaining('was answered before')])
    expect(runs).toBe(1)
    expect(errors).toMatchObject([{ code: 'idempotency-key', reason: 'answer-not-kept' }])
  })

  test('calls the callback of each write, of a long answer and behind its end', async () => {
    const { url } = await serve(async (_, response) => {
      const write = (chunk: string) => new Promise<void>((resolve) => response.write(chunk, () => resolve()))
      for (let part = 0; part < 5; part += 1) await write('x'.repeat(30_000))
      response.end('end')
      await write('late')
      await new Promise<void>((resolve) => response.end(resolve))
      ended.open()
    })
    const ended = gate()
    expect(await (await post(url)).text()).toBe(`${'x'.repeat(150_000)}end`)
    await ended.opened
  })

  test.each<[string, (response: ServerResponse) => unknown]>([
    [
      'that says another length than it has',
      (response) => response.setHeader('content-length', 3).end('paid'),
    ],
    [
      'that is shorter than its head says',
      (response) => response.writeHead(200, ['Content-Length', '9']).end('paid'),
    ],
  ])('%s never reaches a client, and its repetition is refused', async (_, answer) => {
    let runs = 0
    const { url, errors } = await serve((_, response) => {
      runs += 1
      answer(response)
    })
    await expect(post(url).then((response) => response.text())).rejects.toThrow()
    expect((await post(url)).status).toBe(410)
    expect(runs).toBe(1)
    expect(errors).toMatchObject([{ message: expect.stringContaining('broke off') }])
  })

  test('is kept without its cookies', async () => {
    const { url } = await serve((_, response) =>
      response.setHeader('set-cookie', 'session=secret').end('hello'),
    )
    expect((await post(url)).headers.get('set-cookie')).toBe('session=secret')
    expect((await post(url)).headers.get('set-cookie')).toBeNull()
  })

  test('is the only one', async () => {
    const { url } = await serve((_, response) => {
      response.end('first')
      expect(response.headersSent).toBe(true)
      expect(() => response.setHeader('x-late', 'yes')).toThrow('after they are sent')
      response.write('second')
      response.end('third')
    })
    expect(await (await post(url)).text()).toBe('first')
    expect(await (await post(url)).text()).toBe('first')
  })

  test('reaches the client when it is kept, and not before', async () => {
    const ended = gate()
    const { url, store, locks } = await serve((_, response) => {
      store.always('lose request', ['acquire'])
      response.end('paid')
      ended.open()
    })
    let isThere = false
    const first = post(url).then(() => (isThere = true))
    await ended.opened
    for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
    expect(isThere).toBe(false)
    store.always('answer')
    await first
    expect(await roomsOf(locks)).toEqual(['idempotency:ada:k#done: 1 + 0'])
  })

  test('is sent all the same if the store refuses to keep it, and `onError` is told', async () => {
    let runs = 0
    const { url, store, errors } = await serve((_, response) => {
      runs += 1
      if (runs === 1) store.always('refuse', ['acquire'])
      response.end('paid')
    })
    expect(await (await post(url)).text()).toBe('paid')
    expect(errors).toMatchObject([{ message: expect.stringContaining('the store could not be told') }])
    store.always('answer')
    expect(await (await post(url)).text()).toBe('paid')
    expect(runs).toBe(2)
  })
})

describe('a request that is answered once', () => {
  test('knows its key, and has a lease', async () => {
    const { url } = await serve((request, response) => {
      const { key, lease } = requestIdempotency(request) ?? {}
      response.end(`${key} ${lease?.key} ${lease?.fence !== undefined}`)
    })
    expect(await (await post(url)).text()).toBe('k idempotency:ada:k true')
    expect(requestIdempotency({})).toBeNull()
  })

  test('gives its key back if its handler never answers, when its client has gone and its time is over', async () => {
    let runs = 0
    const { url, locks } = await serve(
      (_, response) => {
        runs += 1
        if (runs === 2) response.end('second')
      },
      { maxHold: 50, ttl: 50, wait: '1m' },
    )
    const client = new AbortController()
    const first = post(url, client.signal)
    first.catch(() => {})
    await until('the handler runs', async () => runs === 1)
    client.abort()
    expect(await (await post(url)).text()).toBe('second')
    await until(
      'only the mark is left',
      async () => String(await roomsOf(locks)) === 'idempotency:ada:k#done: 1 + 0',
    )
  })

  test('is waited for by `close`, and later ones are refused', async () => {
    const begun = gate()
    const end = gate()
    const { url, requests, locks } = await serve(async (_, response) => {
      begun.open()
      await end.opened
      response.end('paid')
    })
    const first = post(url)
    await begun.opened
    const closed = requests.close()
    const late = await post(url)
    expect([late.status, await late.text()]).toEqual([503, expect.stringContaining('shutting down')])
    end.open()
    await closed
    expect(await roomsOf(locks)).toEqual(['idempotency:ada:k#done: 1 + 0'])
    expect(await (await first).text()).toBe('paid')
  })

  test('is answered 503 when the store is away, and does not run', async () => {
    const { url, store } = await serve(() => expect.unreachable())
    store.always('fail')
    expect((await post(url)).status).toBe(503)
    store.always('answer')
  })

  test('passes if its method is another one', async () => {
    const { url, locks } = await serve((_, response) => response.end('got'))
    const answer = await fetch(url, { headers: { 'idempotency-key': 'k' } })
    expect(await answer.text()).toBe('got')
    expect(await roomsOf(locks)).toEqual([])
  })

  test('is compared by a payload that comes later', async () => {
    const amounts = [5, 500]
    const { url } = await serve((_, response) => response.end('paid'), {
      payload: async () => ({ amount: amounts.shift() }),
    })
    expect((await post(url)).status).toBe(200)
    expect((await post(url)).status).toBe(422)
  })

  test.each<[string, unknown]>([
    ['FormData', new FormData()],
    ['a Map in an object', { amounts: new Map([['ada', 5]]) }],
    ['a promise in an object', { amount: Promise.resolve(5) }],
    ['a function', () => 5],
    ['a number that JSON has not', { amount: Number.NaN }],
  ])('is refused if its payload cannot be compared: %s', async (_, payload) => {
    const { url } = await serve(() => expect.unreachable(), { payload: () => payload })
    const answer = await post(url)
    expect([answer.status, await answer.text()]).toEqual([
      500,
      expect.stringContaining('to be bytes, a text or JSON, got'),
    ])
  })

  test('needs a parsed body, and a scope', async () => {
    const { url } = await serve((_, response) => response.end('paid'))
    const unread = await fetch(url, { method: 'POST', body: 'text', headers: { 'idempotency-key': 'k' } })
    expect([unread.status, await unread.text()]).toEqual([
      500,
      expect.stringContaining('Expected a parsed body'),
    ])
    const nobody = await serve(() => expect.unreachable(), { scope: () => undefined as never })
    const answer = await post(nobody.url)
    expect([answer.status, await answer.text()]).toEqual([
      500,
      expect.stringContaining('Expected `scope` to return a text'),
    ])
  })
})

test.each<[string, object]>([
  ['`remember` to be a duration', { remember: undefined }],
  ['`scope` to be a function', { scope: 'ada' }],
  ["`methods` to be a list of methods such as ['POST', 'PUT']", { methods: ['post'] }],
  ['`required` to be true or false', { required: 'yes' }],
  ['the options to be among', { remembr: '1h' }],
])('bad input: expected %s', async (message, options) => {
  await using locks = createLocks(memoryStore())
  const requests = createRequestLocks(locks)
  const all = { remember: '1h', scope: () => 'ada', ...options } as IdempotencyOptions
  expect(() => requests.idempotent(all)).toThrow(`Expected ${message}`)
})
