import { once } from 'node:events'
import { connect as connectHttp2, createServer as createHttp2Server } from 'node:http2'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { type RedisServer, startRedis } from './redis-server.ts'
import { sendCommand } from './resp.ts'
import { type FaultProxy, startProxy } from './tcp-proxy.ts'
import { until } from './until.ts'

describe('the fault proxy', () => {
  let server: RedisServer
  let proxy: FaultProxy

  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.close())
  beforeEach(async () => {
    await server.command('FLUSHALL')
    proxy = await startProxy({ targetPort: server.port })
  })
  afterEach(() => proxy.close())

  const viaProxy = (...args: string[]) => sendCommand({ port: proxy.port, timeoutMs: 30_000 }, args)
  const counter = async () => Number(await server.command('GET', 'n'))

  test('passes requests and replies', async () => {
    expect(await viaProxy('ECHO', 'hello')).toBe('hello')
  })

  test('delays each direction by the time it was told', async () => {
    proxy.delay({ requestMs: 60, replyMs: 40 })
    const askedAt = performance.now()
    await viaProxy('PING')
    expect(performance.now() - askedAt).toBeGreaterThanOrEqual(99)
  })

  test('swallows replies of requests that are carried out', async () => {
    const { socket, received } = await openSocket(proxy.port)
    proxy.dropReplies()
    socket.write('INCR n\r\n')
    await until('the reply is lost', () => proxy.swallowed === 1)
    expect(await counter()).toBe(1)
    expect(received()).toBe('')
  })

  test('swallows requests', async () => {
    proxy.dropRequests()
    await expect(sendCommand({ port: proxy.port, timeoutMs: 100 }, ['INCR', 'n'])).rejects.toThrow('No reply')
    expect(await counter()).toBe(0)
  })

  test('destroys a connection that lost bytes when it goes back to normal, and keeps the others', async () => {
    const lossy = await openSocket(proxy.port)
    const idle = await openSocket(proxy.port)
    proxy.dropReplies()
    lossy.socket.write('INCR n\r\n')
    await until('the reply is lost', () => proxy.swallowed === 1)
    proxy.normal()
    await until('its connection is destroyed', () => lossy.socket.destroyed)
    idle.socket.write('PING\r\n')
    await until('the other connection answers', () => idle.received() === '+PONG\r\n')
  })

  test('holds replies and delivers them late', async () => {
    const { socket, received } = await openSocket(proxy.port)
    proxy.holdReplies()
    socket.write('INCR n\r\n')
    await until('the server has counted', async () => (await counter()) === 1)
    expect(received()).toBe('')
    proxy.normal()
    await until('the reply arrives', () => received() === ':1\r\n')
  })

  test('holds requests and delivers them late', async () => {
    const { socket, received } = await openSocket(proxy.port)
    proxy.holdRequests()
    socket.write('INCR n\r\n')
    await expect(sendCommand({ port: proxy.port, timeoutMs: 100 }, ['PING'])).rejects.toThrow('No reply')
    expect(await counter()).toBe(0)
    proxy.normal()
    await until('the reply arrives', () => received() === ':1\r\n')
  })

  test('accepts connections and forwards nothing when half-open, not even the end of the server', async () => {
    await using victim = await startRedis()
    await using between = await startProxy({ targetPort: victim.port })
    const { socket, received } = await openSocket(between.port)
    between.halfOpen()
    await victim.kill()
    await openSocket(between.port)
    socket.write('PING\r\n')
    await expect(sendCommand({ port: between.port, timeoutMs: 100 }, ['PING'])).rejects.toThrow('No reply')
    expect(received()).toBe('')
    expect(socket.destroyed).toBe(false)
  })

  test('cuts open connections and lets new ones through', async () => {
    const { socket } = await openSocket(proxy.port)
    proxy.cut()
    await until('the connection is gone', () => socket.destroyed)
    expect(await viaProxy('PING')).toBe('PONG')
    await until('no connection is counted', () => proxy.connections === 0)
  })

  test('refuses until it is normal again', async () => {
    proxy.refuse()
    await expect(viaProxy('PING')).rejects.toThrow()
    proxy.normal()
    expect(await viaProxy('PING')).toBe('PONG')
  })

  test('loses exactly one reply, of the request that was named', async () => {
    const lost = proxy.loseNextReply('INCR')
    expect(await viaProxy('PING')).toBe('PONG')
    await expect(viaProxy('INCR', 'n')).rejects.toThrow()
    await lost
    expect(await counter()).toBe(1)
    expect(await viaProxy('INCR', 'n')).toBe(2)
  })

  test('loses the reply to the request that was named, whatever else HTTP/2 answers meanwhile', async () => {
    let isCarriedOut = false
    const upstream = createHttp2Server()
    upstream.on('stream', (stream, { ':path': path }) => {
      stream.on('error', () => {})
      stream.respond()
      if (path === '/chatter') {
        const timer = setInterval(() => stream.write('more'), 1)
        stream.on('close', () => clearInterval(timer))
        return
      }
      stream.once('data', () => {
        setTimeout(() => {
          isCarriedOut = true
          if (!stream.destroyed) stream.end('done')
        }, 100)
      })
    })
    await once(upstream.listen(0, '127.0.0.1'), 'listening')
    await using busy = await startProxy({ targetPort: (upstream.address() as AddressInfo).port })
    const client = connectHttp2(`http://127.0.0.1:${busy.port}`)
    client.on('error', () => {})
    const chatter = client.request({ ':path': '/chatter' })
    const asked = client.request({ ':path': '/work', ':method': 'POST' })
    for (const stream of [chatter, asked]) stream.on('error', () => {})
    await Promise.all([once(chatter, 'data'), once(asked, 'response')])
    const replies: string[] = []
    asked.on('data', (bytes: Buffer) => replies.push(bytes.toString()))
    const lost = busy.loseNextReply('this one')
    asked.end('this one')
    await lost
    expect(isCarriedOut).toBe(true)
    await until('the client is cut off', () => client.destroyed)
    expect(replies).toEqual([])
    upstream.close()
  })

  test('loses exactly one request', async () => {
    const lost = proxy.loseNextRequest('INCR')
    await expect(viaProxy('INCR', 'n')).rejects.toThrow()
    await lost
    expect(await counter()).toBe(0)
    expect(await viaProxy('INCR', 'n')).toBe(1)
  })

  test('silences the connections that have sent something, or the next one, and no others', async () => {
    const [one, other] = [await openSocket(proxy.port), await openSocket(proxy.port)]
    one.socket.write('ECHO one\r\n')
    await until('it is answered', () => one.received().includes('one'))
    expect(proxy.silence('echo ONE')).toBe(1)
    const swallowed = proxy.swallowed
    one.socket.write('ECHO lost\r\n')
    await until('the proxy has swallowed it', () => proxy.swallowed > swallowed)
    other.socket.write('ECHO other\r\n')
    await until('the other one is answered', () => other.received().includes('other'))
    expect(one.received()).not.toContain('lost')
    proxy.silenceNext()
    await expect(sendCommand({ port: proxy.port, timeoutMs: 1000 }, ['PING'])).rejects.toThrow(/No reply/)
    expect(await viaProxy('PING')).toBe('PONG')
    proxy.normal()
    await until('the silent one is closed', () => one.socket.destroyed)
    expect(other.socket.destroyed).toBe(false)
    other.socket.destroy()
  })

  test('closes its clients when the server is killed', async () => {
    await using victim = await startRedis()
    await using between = await startProxy({ targetPort: victim.port })
    const { socket } = await openSocket(between.port)
    await victim.kill()
    await until('the client is closed', () => socket.destroyed)
  })

  async function openSocket(port: number): Promise<{ socket: Socket; received: () => string }> {
    const socket = connect(port, '127.0.0.1')
    let text = ''
    socket.setEncoding('utf8').on('data', (chunk) => {
      text += chunk
    })
    socket.on('error', () => {})
    await once(socket, 'connect')
    // Sends one command first, so that the proxy has a connection to the server before a test sets a fault.
    socket.write('PING\r\n')
    if (proxy.port === port) await until('the link is up', () => text === '+PONG\r\n')
    text = ''
    return { socket, received: () => text }
  }
})
