import { setTimeout } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { Cluster } from '../../../src/stores/etcd/grpc/cluster.ts'
import { type Dial, loadDial } from '../../../src/stores/etcd/grpc/connection.ts'
import { Member } from '../../../src/stores/etcd/grpc/member.ts'
import { KeyNames } from '../../../src/stores/etcd/rooms/key-names.ts'
import { WatchedRooms } from '../../../src/stores/etcd/rooms/watched-rooms.ts'
import { until } from '../../servers/until.ts'
import { framed, GRPC, reply, type StrangeServer, startStrangeServer } from './strange-server.ts'

let server: StrangeServer
let dial: Dial
let member: Member
beforeAll(async () => {
  server = await startStrangeServer(() => {})
  dial = await loadDial()
})
afterAll(() => server.close())
beforeEach(() => {
  member = new Member({ url: server.url, tls: {}, dial })
})
afterEach(async () => {
  member.close()
  await until('nothing is connected', () => server.sessions.size === 0)
})

function ask(): Promise<Buffer> {
  return member.request({ path: '/ask', message: Buffer.alloc(0), token: '' }, 60_000)
}

test('a reply is put together again, whether it comes byte by byte or has ten megabytes', async () => {
  server.answer = (stream) =>
    reply(
      stream,
      [...framed(Buffer.from('hello'))].map((byte) => Buffer.from([byte])),
    )
  expect(String(await ask())).toBe('hello')
  const large = Buffer.alloc(10_000_000, 'x')
  server.answer = (stream) => reply(stream, [framed(large)])
  expect((await ask()).equals(large)).toBe(true)
})

test('a large reply that takes its time is waited for', async () => {
  const part = Buffer.alloc(10_000, 'x')
  const parts = Array.from({ length: 35 }, () => part)
  server.answer = async (stream, path) => {
    // The reply to the request whether the member is there has to stand in line.
    if (path !== '/ask') return
    stream.respond(GRPC, { waitForTrailers: true })
    stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
    stream.write(framed(Buffer.concat(parts)).subarray(0, 5))
    for (const each of parts) {
      await setTimeout(100)
      stream.write(each)
    }
    stream.end()
  }
  expect(await ask()).toHaveLength(350_000)
})

test('a refusal without a body is understood', async () => {
  server.answer = (stream) => {
    const status = { 'grpc-status': '5', 'grpc-message': 'no%20way' }
    stream.respond({ ...GRPC, ...status }, { endStream: true })
  }
  await expect(ask()).rejects.toMatchObject({ status: 5, message: 'no way' })
})

test('a stream that is reset is a lost answer', async () => {
  server.answer = (stream) => stream.close(2)
  await expect(ask()).rejects.toMatchObject({ status: 13 })
})

test('a member that says goodbye is left: streams end, and requests take a new connection', async () => {
  server.answer = (stream, path) =>
    path === '/talk' ? stream.respond(GRPC) : reply(stream, [framed(Buffer.from('hello'))])
  const ended = new Promise((resolve) => {
    member.openStream({ path: '/talk', token: '' }, { onMessage() {}, onEnd: resolve })
  })
  await ask()
  const [before] = server.sessions
  before?.goaway(0)
  expect(await ended).toBeUndefined()
  expect(String(await ask())).toBe('hello')
  await until('the old connection is gone', () => before?.destroyed === true)
})

test('a watch that says what nobody understands is opened anew, and breaks nothing', async () => {
  const cluster = new Cluster({ endpoints: [server.url], auth: undefined, tls: {}, prefix: 'x/' })
  const rooms = new WatchedRooms({ cluster, names: new KeyNames('x/'), onWatched() {}, onChange() {} })
  let watches = 0
  server.answer = (stream) => {
    watches += 1
    stream.respond(GRPC)
    stream.write(framed(Buffer.from([0xff, 0xff])))
  }
  rooms.open('k', [], 1)
  await until('it is opened anew', () => watches > 1)
  rooms.close()
  cluster.close()
})
