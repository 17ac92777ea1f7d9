import { once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { unreachedBecause } from '../../src/base/unreached.ts'
import { connect, createLocks } from '../../src/index.ts'
import { redisStore } from '../../src/stores/redis/index.ts'
import { errorOf } from '../engine/scene.ts'
import { type EtcdServer, startEtcd } from '../servers/etcd-server.ts'
import { freePort } from '../servers/free-port.ts'
import { type RedisServer, startRedis } from '../servers/redis-server.ts'

const certificate = (name: string) =>
  new URL(`../servers/etcd-certificates/${name}`, import.meta.url).pathname

let plain: RedisServer
let secure: RedisServer
let securePort: number
let etcd: EtcdServer
let closed: number

beforeAll(async () => {
  closed = await freePort()
  plain = await startRedis()
  securePort = await freePort()
  secure = await startRedis({
    args: [
      ...['--tls-port', String(securePort), '--tls-auth-clients', 'no'],
      ...['--tls-cert-file', certificate('member.pem'), '--tls-key-file', certificate('member.key')],
      ...['--tls-ca-cert-file', certificate('authority.pem')],
    ],
  })
  etcd = await startEtcd()
})
afterAll(() => Promise.all([plain.close(), secure.close(), etcd.close()]))

const listeners: Server[] = []
afterAll(() => {
  for (const server of listeners) server.close()
})

async function listening(server: Server): Promise<number> {
  listeners.push(server)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

describe('the message of connect() says why', () => {
  test.each([
    ['redis', () => `redis://127.0.0.1:${closed}`],
    ['postgres', () => `postgres://app@127.0.0.1:${closed}/app`],
    ['etcd', () => `etcd://127.0.0.1:${closed}`],
    ['redlock', () => `redlock:redis://127.0.0.1:${closed},${plain.url},redis://127.0.0.1:${closed}`],
  ])('nothing listens there: %s', async (_, url) => {
    expect(await errorOf(connect(url()))).toMatchObject({
      code: 'store-unavailable',
      message: expect.stringContaining(`Nothing listens at 127.0.0.1:${closed} (ECONNREFUSED).`),
    })
  })

  test.each([
    ['redis', 'redis://nobody.invalid'],
    ['postgres', 'postgres://app@nobody.invalid/app'],
    ['etcd', 'etcd://nobody.invalid'],
    ['redlock', 'redlock:redis://nobody.invalid'],
  ])('the host name has no address: %s', async (_, url) => {
    const error = await errorOf(connect(url))
    expect(error).toMatchObject({ code: 'store-unavailable' })
    expect(error.message).toMatch(
      /host name .* has no address|host name has no address|No name server answered/,
    )
    // It may be a part of a password with a / in it.
    expect(error.message).not.toContain('nobody')
  })

  test('only the server speaks TLS', async () => {
    expect(await errorOf(connect(`redis://127.0.0.1:${securePort}`))).toMatchObject({
      code: 'store-unavailable',
      message: expect.stringMatching(/only one of the two sides speaks TLS \((?:ECONNRESET|EPIPE)\)\.$/),
    })
  })

  test('only the client speaks TLS', async () => {
    // Redis waits for the end of what is no line for it, and says nothing.
    expect(await errorOf(connect(`rediss://127.0.0.1:${plain.port}`))).toMatchObject({
      code: 'store-unavailable',
      message: expect.stringMatching(/^The Redis server does not speak TLS at that port\./),
    })
    const mute = await listening(createServer())
    expect(await errorOf(connect(`rediss://127.0.0.1:${mute}`))).toMatchObject({
      message: expect.stringContaining('whether it speaks TLS (rediss:) at that port or not (redis:)'),
    })
    expect(await errorOf(connect(`etcds://localhost:${etcd.port}`))).toMatchObject({
      message: expect.stringContaining('TLS'),
    })
    const talker = await listening(createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')))
    expect(await errorOf(connect(`rediss://127.0.0.1:${talker}`))).toMatchObject({
      message: expect.stringMatching(
        /does not speak (?:TLS|it) at that port|only one of the two sides speaks TLS/,
      ),
    })
  })

  test('something that is no Redis hangs up', async () => {
    const other = await listening(createServer((socket) => socket.once('data', () => socket.end())))
    const { message, cause } = await errorOf(connect(`redis://127.0.0.1:${other}`))
    expect(message).toMatch(/^The Redis server could not be reached\. /)
    expect(cause).toMatchObject({ message: 'The connection was closed there without an answer' })
  })

  test('nobody vouches for the certificate', async () => {
    expect(await errorOf(connect(`rediss://localhost:${securePort}`))).toMatchObject({
      code: 'store-unavailable',
      message: expect.stringMatching(
        /^The Redis server could not be reached\. The certificate of the server was not/,
      ),
    })
  })
})

test.each([
  ['ioredis', (url: string) => new Redis(url, { lazyConnect: true })],
  ['redis', (url: string) => createClient({ url })],
])('so does the message of a call that waited in vain, through %s', async (_, newClient) => {
  await using locks = createLocks(redisStore(newClient(`redis://127.0.0.1:${closed}`)))
  const error = await errorOf(locks.acquire('k', { wait: '4s' }))
  expect(error).toMatchObject({
    code: 'store-unavailable',
    message: expect.stringMatching(
      /^"k" was not acquired within \d+ ms\. The Redis server could not be reached\. Nothing listens at 127\.0\.0\.1:\d+ \(ECONNREFUSED\)\.$/,
    ),
  })
})

test('the reason is found in what an error collects or was caused by, and nowhere else', () => {
  const refused = Object.assign(new Error('connect'), { code: 'ECONNREFUSED', address: '::1', port: 5432 })
  const sentence = 'Nothing listens at [::1]:5432 (ECONNREFUSED).'
  expect(unreachedBecause(new AggregateError([refused]))).toBe(sentence)
  expect(unreachedBecause(new Error('outer', { cause: refused }))).toBe(sentence)
  expect(unreachedBecause({ ...refused, address: 'se/cret' })).toBe(
    'Nothing listens at its address (ECONNREFUSED).',
  )
  const circular: { cause?: unknown } = {}
  circular.cause = circular
  for (const nothing of [undefined, null, 'ECONNREFUSED', new Error('ECONNREFUSED'), { code: 5 }, circular])
    expect(unreachedBecause(nothing)).toBeUndefined()
})
