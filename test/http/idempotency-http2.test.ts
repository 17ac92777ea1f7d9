import { once } from 'node:events'
import { type ClientHttp2Session, connect, createServer, type Http2ServerResponse } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { fastify } from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { holdfast } from '../../src/fastify/index.ts'
import { createRequestLocks } from '../../src/http/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { memoryStore } from '../../src/stores/memory/index.ts'
import { ScriptedStore } from '../engine/scripted-store.ts'
import { gate } from './scene.ts'

const OPTIONS = { remember: '1h', scope: () => 'ada', onError: () => {} } as const

interface Scene {
  readonly session: ClientHttp2Session
  readonly store: ScriptedStore
}

/** A bare server of HTTP/2, and a client that is connected to it. */
async function serve(handler: (response: Http2ServerResponse) => unknown): Promise<Scene> {
  const { locks, store } = scriptedLocks()
  const idempotent = createRequestLocks(locks).idempotent(OPTIONS)
  const server = createServer((request, response) =>
    idempotent(request, response, (problem?: Error & { statusCode?: number }) => {
      if (problem === undefined) handler(response)
      else response.writeHead(problem.statusCode ?? 500).end(problem.message)
    }),
  )
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return { session: connectTo(server.address() as AddressInfo), store }
}

function scriptedLocks(): { locks: Locks; store: ScriptedStore } {
  const store = new ScriptedStore(memoryStore())
  const locks = createLocks(store)
  onTestFinished(() => locks.close())
  return { locks, store }
}

function connectTo({ port }: AddressInfo): ClientHttp2Session {
  const session = connect(`http://127.0.0.1:${port}`)
  onTestFinished(() => session.destroy())
  return session
}

async function post(session: ClientHttp2Session): Promise<Record<string, unknown>> {
  const asked = session.request({ ':path': '/', ':method': 'POST', 'idempotency-key': 'k' })
  const [headers] = await once(asked, 'response')
  const { ':status': status, 'x-payment': payment, 'idempotent-replayed': replayed } = headers
  return { status, payment, replayed, body: await text(asked) }
}

test.each<[string, (response: Http2ServerResponse) => unknown]>([
  [
    'that is ended',
    (response) => {
      response.statusCode = 201
      response.setHeader('X-Payment', 'p1')
      response.end('paid')
    },
  ],
  ['with a head', (response) => response.writeHead(201, { 'X-Payment': 'p1' }).end('paid')],
  [
    'in parts',
    (response) => {
      response.writeHead(201, { 'X-Payment': 'p1' })
      response.write('pa')
      response.end('id')
    },
  ],
])('over HTTP/2 an answer %s is kept', async (_, answer) => {
  const { session } = await serve(answer)
  const first = { status: 201, payment: 'p1', body: 'paid' }
  expect(await post(session)).toEqual(first)
  expect(await post(session)).toEqual({ ...first, replayed: 'true' })
})

test('over HTTP/2 no part of an answer reaches the client before it is kept', async () => {
  const ended = gate()
  const { session, store } = await serve((response) => {
    store.always('lose request', ['acquire'])
    response.writeHead(201).end('paid')
    ended.open()
  })
  let isThere = false
  const asked = session.request({ ':path': '/', ':method': 'POST', 'idempotency-key': 'k' })
  asked.on('response', () => (isThere = true))
  await ended.opened
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
  expect(isThere).toBe(false)
  store.always('answer')
  expect(await text(asked)).toBe('paid')
})

test('over HTTP/2 the head of an answer counts as written', async () => {
  const { session } = await serve((response) => {
    response.writeHead(200).write('pa')
    expect(response.headersSent).toBe(true)
    expect(() => response.setHeader('x-late', 'yes')).toThrow('after they are sent')
    expect(() => response.writeHead(500)).toThrow('after they are sent')
    response.end('id')
    response.statusCode = 500
  })
  expect(await post(session)).toEqual({ status: 200, body: 'paid' })
  expect(await post(session)).toEqual({ status: 200, body: 'paid', replayed: 'true' })
})

test('over HTTP/2 a long answer is sent while it is written, and its repetition is refused', async () => {
  const { session } = await serve((response) => {
    response.writeHead(201, { 'x-payment': 'p1' })
    for (let part = 0; part < 10; part += 1) response.write('x'.repeat(10_000))
    response.end('end')
  })
  expect(await post(session)).toEqual({ status: 201, payment: 'p1', body: `${'x'.repeat(100_000)}end` })
  expect(await post(session)).toMatchObject({ status: 410 })
})

test('over HTTP/2 an answer of another length than it says is refused', async () => {
  const { session } = await serve((response) => response.writeHead(200, { 'content-length': 9 }).end('paid'))
  await expect(post(session)).rejects.toThrow('NGHTTP2_INTERNAL_ERROR')
  expect(await post(session)).toMatchObject({ status: 410 })
})

test('over HTTP/2 Fastify answers once', async () => {
  let runs = 0
  const app = fastify({ http2: true })
  await app.register(holdfast, { locks: scriptedLocks().locks })
  app.post('/', { preHandler: app.idempotent(OPTIONS) }, async (_, reply) => {
    runs += 1
    return reply.code(201).header('x-payment', `p${runs}`).send({ paid: runs })
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  onTestFinished(() => app.close())
  const session = connectTo(app.server.address() as AddressInfo)
  const first = { status: 201, payment: 'p1', body: '{"paid":1}' }
  expect(await post(session)).toEqual(first)
  expect(await post(session)).toEqual({ ...first, replayed: 'true' })
})
