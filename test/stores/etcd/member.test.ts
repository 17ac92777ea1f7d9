import { once } from 'node:events'
import {
  type ClientHttp2Session,
  connect,
  createServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { Cluster } from '../../../src/stores/etcd/cluster.ts'
import { Member } from '../../../src/stores/etcd/member.ts'
import { RoomNames } from '../../../src/stores/etcd/room-names.ts'
import { Rooms } from '../../../src/stores/etcd/rooms.ts'
import { until } from '../../servers/until.ts'

/** Says what no etcd can be made to say. */
let server: Http2Server
let url: string
let answer: (stream: ServerHttp2Stream, path: string) => void
const sessions = new Set<ServerHttp2Session>()
beforeAll(async () => {
  server = createServer()
  server.on('session', (session) => {
    sessions.add(session)
    session.once('close', () => sessions.delete(session))
  })
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {})
    answer(stream, String(headers[':path']))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => server.close())

let member: Member
beforeEach(() => {
  member = new Member(url, {})
})
afterEach(async () => {
  member.close()
  await until('nothing is connected', () => sessions.size === 0)
})

function ask(): Promise<Buffer> {
  return member.request('/ask', framed(Buffer.alloc(0)), { token: '', timeoutMs: 5000 })
}

function framed(message: Buffer): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt32BE(message.length, 1)
  return Buffer.concat([head, message])
}

function reply(stream: ServerHttp2Stream, chunks: readonly Buffer[]): void {
  stream.respond(GRPC, { waitForTrailers: true })
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
  for (const chunk of chunks) stream.write(chunk)
  stream.end()
}

const GRPC = { ':status': 200, 'content-type': 'application/grpc' }

test('a reply is put together again, whether it comes byte by byte or has forty megabytes', async () => {
  answer = (stream) =>
    reply(
      stream,
      [...framed(Buffer.from('hello'))].map((byte) => Buffer.from([byte])),
    )
  expect(String(await ask())).toBe('hello')
  const large = Buffer.alloc(40_000_000, 'x')
  answer = (stream) => reply(stream, [framed(large)])
  expect((await ask()).equals(large)).toBe(true)
})

test('a refusal without a body is understood', async () => {
  answer = (stream) => {
    const status = { 'grpc-status': '5', 'grpc-message': 'no%20way' }
    stream.respond({ ...GRPC, ...status }, { endStream: true })
  }
  await expect(ask()).rejects.toMatchObject({ status: 5, message: 'no way' })
})

test('a stream that is reset is a lost answer', async () => {
  answer = (stream) => stream.close(2)
  await expect(ask()).rejects.toMatchObject({ name: 'ConnectionError', unsent: false })
})

test('a member that says goodbye is left: conversations end, and requests take a new connection', async () => {
  answer = (stream, path) =>
    path === '/talk' ? stream.respond(GRPC) : reply(stream, [framed(Buffer.from('hello'))])
  const ended = new Promise((resolve) => {
    member.converse('/talk', { token: '', ears: { onMessage() {}, onEnd: resolve } })
  })
  await ask()
  const [before] = sessions
  before?.goaway(0)
  expect(await ended).toBeUndefined()
  expect(String(await ask())).toBe('hello')
  await until('the old connection is gone', () => before?.destroyed === true)
})

test('a connection that has no numbers left for requests is replaced', async () => {
  answer = (stream) => reply(stream, [framed(Buffer.from('hello'))])
  await ask()
  const another = connect(url)
  const shared = Object.getPrototypeOf(another) as Numbered
  another.close()
  const { request } = shared
  shared.request = function (this: Numbered, ...given) {
    shared.request = request
    this.setNextStreamID(2 ** 31 - 3)
    return request.apply(this, given)
  }
  expect(String(await ask())).toBe('hello')
  expect(String(await ask())).toBe('hello')
  expect(String(await ask())).toBe('hello')
  expect(String(await ask())).toBe('hello')
})

test('a watch that says what nobody understands is opened anew, and breaks nothing', async () => {
  const cluster = new Cluster({ endpoints: [url], auth: undefined, tls: {}, prefix: 'x/' })
  const rooms = new Rooms({ cluster, names: new RoomNames('x/'), onChange() {} })
  let watches = 0
  answer = (stream) => {
    watches += 1
    stream.respond(GRPC)
    stream.write(framed(Buffer.from([0xff, 0xff])))
  }
  rooms.open('k', [], 1)
  await until('it is opened anew', () => watches > 1)
  rooms.close()
  cluster.close()
})

/** The types of Node.js 20 do not know it. */
interface Numbered extends ClientHttp2Session {
  setNextStreamID(id: number): void
}
