import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import type { Http2Session, ServerHttp2Session } from 'node:http2'
import { afterEach, describe, expect, test } from 'vitest'
import { Cluster, type EtcdClusterOptions } from '../../../src/stores/etcd/grpc/cluster.ts'
import { TXN, type TxnRequest } from '../../../src/stores/etcd/grpc/messages.ts'
import { KeyNames } from '../../../src/stores/etcd/rooms/key-names.ts'
import { WatchedRooms } from '../../../src/stores/etcd/rooms/watched-rooms.ts'
import { certificate, startEtcd } from '../../servers/etcd-server.ts'
import { startProxy } from '../../servers/tcp-proxy.ts'
import { until } from '../../servers/until.ts'
import { passed } from './passed.ts'
import { framed, GRPC, reply, type StrangeServer, startStrangeServer } from './strange-server.ts'

const closings: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close()
})

function clusterOf(endpoints: readonly string[], options: Partial<EtcdClusterOptions> = {}): Cluster {
  const cluster = new Cluster({ endpoints, auth: undefined, tls: {}, prefix: 'x/', ...options })
  closings.push(() => cluster.close())
  return cluster
}

function roomsOf(cluster: Cluster): WatchedRooms {
  const rooms = new WatchedRooms({ cluster, names: new KeyNames('x/'), onWatched() {}, onChange() {} })
  closings.push(() => rooms.close())
  return rooms
}

async function strange(answer: StrangeServer['answer']): Promise<StrangeServer> {
  const server = await startStrangeServer(answer)
  closings.push(() => server.close())
  return server
}

const NOTHING: TxnRequest = { when: [], apply: [], otherwise: [] }
/** The answer to `NOTHING`, at revision 7. */
const SEVEN = framed(Buffer.from([0x0a, 2, 0x18, 7]))

function answerAll(stream: Parameters<StrangeServer['answer']>[0]): void {
  reply(stream, [SEVEN])
}

describe('a connection that ends', () => {
  test('with a GOAWAY that blames the client is a lost answer, and the next request takes a new connection', async () => {
    const server = await strange((stream) => {
      stream.session?.goaway(11, 0, Buffer.from('too_many_pings'))
      stream.session?.destroy()
    })
    const cluster = clusterOf([server.url])
    await expect(cluster.ask(TXN, NOTHING)).rejects.toMatchObject({ code: 'store-unavailable' })
    server.answer = answerAll
    expect((await cluster.ask(TXN, NOTHING)).reply.revision).toBe(7)
  })

  test('under a request that was carried out leaves it in doubt, also when there is another connection by then', async () => {
    let carryOut = () => {}
    const carriedOut = new Promise<void>((resolve) => {
      carryOut = resolve
    })
    let loseAnswer = () => {}
    const first = await strange((stream) => {
      loseAnswer = () => stream.session?.destroy()
      carryOut()
    })
    const second = await strange(answerAll)
    const cluster = clusterOf([first.url, second.url])
    const asking = cluster.ask(TXN, NOTHING)
    await carriedOut
    const [session] = [...first.sessions] as [ServerHttp2Session]
    first.refuse()
    // The server says goodbye, and still answers the requests that it has.
    session.goaway(0, 2 ** 31 - 1)
    await once(session, 'goaway')
    // The client tries in vain to connect to the first server, and then connects to the second.
    expect((await cluster.ask(TXN, NOTHING)).reply.revision).toBe(7)
    loseAnswer()
    expect(await asking).toMatchObject({ reply: { revision: 7 }, isInDoubt: true })
  })

  test('with a request that it has refused unread costs nothing: it is sent again', async () => {
    let refused = 0
    const server = await strange((stream) => {
      refused += 1
      if (refused > 1) return answerAll(stream)
      stream.close(REFUSED_STREAM)
    })
    expect(await clusterOf([server.url]).ask(TXN, NOTHING)).toMatchObject({ reply: { revision: 7 } })
  })

  test('without a word, for all requests on it, is replaced although new ones are answered', async () => {
    const deaf = new Set<Http2Session>()
    const server = await strange((stream, path) => {
      if (stream.session !== undefined && deaf.has(stream.session)) return
      if (path.endsWith('/Watch')) stream.respond(GRPC)
      else answerAll(stream)
    })
    const cluster = clusterOf([server.url])
    const rooms = roomsOf(cluster)
    rooms.open('k', [], 1)
    await cluster.ask(TXN, NOTHING)
    for (const session of server.sessions) deaf.add(session)
    await expect(cluster.ask(TXN, NOTHING)).rejects.toMatchObject({ code: 'store-unavailable' })
    expect((await cluster.ask(TXN, NOTHING)).reply.revision).toBe(7)
  })
})

const REFUSED_STREAM = 7

describe('a server that is no etcd', () => {
  test.each([429, 502, 503, 504])(
    'but a proxy without one, and says %i, may have one later',
    async (status) => {
      const server = await strange((stream) => {
        stream.respond({ ':status': status, 'content-type': 'text/html' })
        stream.end('<html>not now</html>')
      })
      const cluster = clusterOf([server.url])
      await expect(cluster.ask(TXN, NOTHING)).rejects.toMatchObject({ code: 'store-unavailable' })
      server.answer = answerAll
      expect((await cluster.ask(TXN, NOTHING)).reply.revision).toBe(7)
    },
  )

  test.each([
    ['text that never ends', 'text/html', Buffer.from('<p>'.repeat(5000)), 'store-refused'],
    ['a message of 4 GB', 'application/grpc', Buffer.alloc(16_000, 0xff).fill(0, 0, 1), 'store-refused'],
    // Empty messages without end, and more of them than the client can skip in time.
    ['zeros that never end', 'application/grpc', Buffer.alloc(16_000), expect.stringMatching(/^store-/)],
  ])('that says %s is an error, and heard no longer', async (_, type, chunk, code) => {
    let heard = 0
    let isOver = false
    const server = await strange((stream) => {
      stream.respond({ ':status': 200, 'content-type': type })
      const say = () => {
        if (stream.destroyed) return
        heard += chunk.length
        if (stream.write(chunk)) setImmediate(say)
        else stream.once('drain', say)
      }
      stream.once('close', () => {
        isOver = true
      })
      say()
    })
    await expect(clusterOf([server.url]).ask(TXN, NOTHING)).rejects.toMatchObject({ code })
    await until('it is told to stop', () => isOver)
    expect(heard).toBeLessThan(200_000_000)
  })
})

describe('a member that refuses for good', () => {
  const refuse = (status: string) => (stream: Parameters<StrangeServer['answer']>[0]) =>
    stream.respond({ ...GRPC, 'grpc-status': status, 'grpc-message': 'no' }, { endStream: true })
  const noEtcd = (stream: Parameters<StrangeServer['answer']>[0]) =>
    stream.respond({ ':status': 404, 'content-type': 'text/html' }, { endStream: true })
  const mute = () => {}
  const [UNIMPLEMENTED, PERMISSION_DENIED, UNAVAILABLE] = ['12', '7', '14']

  async function failureOf(...answers: StrangeServer['answer'][]): Promise<[string, string, boolean]> {
    const servers = await Promise.all(answers.map(strange))
    const cluster = clusterOf(servers.map(({ url }) => url))
    const error = await cluster.ask(TXN, NOTHING).catch((reason: unknown) => reason)
    const { code, message } = error as { code: string; message: string }
    return [code, message, cluster.leavesDoubt(error)]
  }

  test.each([
    ['is no etcd', noEtcd],
    ['does not know the API', refuse(UNIMPLEMENTED)],
  ])(
    'because it %s says nothing of the others: while they are away, asking again may help',
    async (_, answer) => {
      const [code, message] = await failureOf(answer, refuse(UNAVAILABLE))
      expect([code, message]).toEqual([
        'store-unavailable',
        expect.stringMatching(/could be reached.*Of another one.*not etcd/),
      ])
      expect((await failureOf(refuse(UNAVAILABLE), answer))[0]).toBe('store-unavailable')
      expect(await failureOf(answer, answer)).toEqual(['store-refused', expect.any(String), false])
    },
  )

  test('for all members is believed although another one is away, and whether that one carries it out is in doubt', async () => {
    const refused = ['store-refused', expect.stringContaining('may not read and write')]
    expect(await failureOf(refuse(PERMISSION_DENIED))).toEqual([...refused, false])
    expect(await failureOf(refuse(PERMISSION_DENIED), mute)).toEqual([...refused, true])
    expect(await failureOf(mute, refuse(PERMISSION_DENIED))).toEqual([...refused, true])
  })
})

describe('a watch', () => {
  test('that is refused without its number, as newer etcds do it, is asked for again with a new token', async () => {
    let tokens = 0
    let watches = 0
    const refusal = framed(watchReply({ id: -1, reason: 'etcdserver: invalid auth token' }))
    const server = await strange((stream, path, { token }) => {
      if (path.endsWith('/Authenticate')) {
        tokens += 1
        const text = Buffer.from(`token-${tokens}`)
        return reply(stream, [framed(Buffer.from([0x12, text.length, ...text]))])
      }
      watches += 1
      stream.respond(GRPC)
      if (token === 'token-1') stream.write(refusal)
    })
    const rooms = roomsOf(clusterOf([server.url], { auth: { username: 'app', password: 'sesame' } }))
    rooms.open('k', [], 1)
    await until('it is asked for with another token', () => watches === 2 && tokens === 2)
  })

  test('that is refused without its number for want of permission is asked for now and then, and not at once', async () => {
    let watches = 0
    const refusal = framed(watchReply({ id: -1, reason: 'etcdserver: permission denied' }))
    const server = await strange((stream) => {
      watches += 1
      stream.respond(GRPC)
      stream.write(refusal)
    })
    const rooms = roomsOf(clusterOf([server.url]))
    const from = performance.now()
    rooms.open('k', [], 1)
    await until('it has been asked for again some times', () => watches > 4)
    expect(performance.now() - from).toBeGreaterThan(200)
  })

  test('that was there for long and cannot be had again is not asked for without a pause', async () => {
    let tokens = 0
    let end: (() => void) | undefined
    const server = await strange((stream, path) => {
      if (path.endsWith('/Watch')) {
        stream.respond(GRPC, { waitForTrailers: true })
        stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '16', 'grpc-message': 'old' }))
        stream.write(framed(watchReply({ id: 1 })))
        end = () => stream.end()
        return
      }
      tokens += 1
      if (tokens === 1) reply(stream, [framed(Buffer.from([0x12, 1, 0x61]))])
      else stream.respond({ ...GRPC, 'grpc-status': '14' }, { endStream: true })
    })
    const rooms = roomsOf(clusterOf([server.url], { auth: { username: 'app', password: 'sesame' } }))
    rooms.open('k', [], 1)
    await until('it is there', () => end !== undefined)
    await passed(5500)
    end?.()
    const from = performance.now()
    await passed(2000)
    await until('it is asked for again and again', () => tokens > 2)
    expect(tokens).toBeLessThan((30 * (performance.now() - from)) / 2000)
  })

  test('comes, and a request is answered, where connecting takes longer than a second', async () => {
    await using server = await startEtcd({ tls: 'server' })
    await using proxy = await startProxy({ targetPort: server.port })
    proxy.delay({ requestMs: 600, replyMs: 600 })
    const tls = { ca: readFileSync(certificate('authority.pem')) }
    const cluster = clusterOf([`https://localhost:${proxy.port}`], { tls })
    const rooms = roomsOf(cluster)
    rooms.open('k', [], 1)
    await until('it is there', async () => ((await server.requests())['Watch'] ?? 0) > 0)
    proxy.delay({})
    await until('a request is answered', () =>
      cluster.ask(TXN, NOTHING).then(
        () => true,
        () => false,
      ),
    )
  })

  test('that has nothing to say for a minute stays, on the connection that it began with', async () => {
    await using server = await startEtcd()
    await using proxy = await startProxy({ targetPort: server.port })
    const cluster = clusterOf([`http://127.0.0.1:${proxy.port}`])
    await cluster.ask(TXN, NOTHING)
    const rooms = roomsOf(cluster)
    rooms.open('k', [], 1)
    await until('it is there', async () => (await server.requests())['Watch'] === 1)
    const from = performance.now()
    await until(
      'a minute is over',
      async () => {
        expect([await server.requests(), proxy.connections]).toMatchObject([{ Watch: 1 }, 1])
        return performance.now() - from > 61_000
      },
      { withinMs: 90_000, everyMs: 1000 },
    )
    await cluster.ask(TXN, NOTHING)
  })
})

/** WatchResponse: watch_id 2, created 3, canceled 4, cancel_reason 6. */
function watchReply({ id, reason }: { id: 1; reason?: undefined } | { id: -1; reason: string }): Buffer {
  if (reason === undefined) return Buffer.from([0x10, id, 0x18, 1])
  const minusOne = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]
  return Buffer.from([0x10, ...minusOne, 0x18, 1, 0x20, 1, 0x32, reason.length, ...Buffer.from(reason)])
}
